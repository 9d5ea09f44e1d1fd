"""From ids to vectors: the token's embedding, its position added to it or set beside it, and dropout."""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.blocks import Dropout
from regard.nn.position import Learned, Sinusoidal

PositionKind = Literal["sinusoidal", "learned", "none"]
PositionJoin = Literal["add", "concatenate"]


def token_table(vocabulary: int, width: int) -> nn.Embedding:
    """An embedding table whose vectors, times √width, have elements of unit variance."""
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table


class Embedding(nn.Module):
    """√D · E(token), joined with the position; `width` is that of the result."""

    def __init__(
        self,
        tokens: nn.Embedding,
        width: int,
        positions: PositionKind = "none",
        join: PositionJoin = "add",
        limit: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.join = join
        self.scale = math.sqrt(width)
        position_width = width if join == "add" else width - tokens.embedding_dim
        self.positions: nn.Module | None = None
        if positions == "sinusoidal":
            self.positions = Sinusoidal(position_width)
        elif positions == "learned":
            self.positions = Learned(position_width, limit)
        self.dropout = Dropout(dropout)

    def forward(self, ids: Int[Tensor, "B T"], start: int = 0) -> Float[Tensor, "B T D"]:
        """Vectors of ids that stand at the positions start, start + 1, …"""
        vectors = self.tokens(ids)
        if self.positions is None:
            return self.dropout(vectors * self.scale)
        places = self.positions(start, ids.size(1))
        if self.join == "add":
            return self.dropout(torch.add(places, vectors, alpha=self.scale))
        return self.dropout(torch.cat([vectors * self.scale, places.expand(len(ids), -1, -1)], -1))

    def entry(self, position: int) -> tuple[Float[Tensor, "V E"], Float[Tensor, " P"], float]:
        """What `forward` joins at one position, with nothing dropped: table, vector of the position, factor."""
        table = self.tokens.weight
        place = table.new_zeros(1) if self.positions is None else self.positions(position, 1)[0]
        return table, place, self.scale
