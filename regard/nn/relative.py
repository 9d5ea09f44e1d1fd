"""How far apart query and key stand, as a self-attention may take it into account.

    rotary (Su 2021)            q and k turned by an angle that grows with their position, so that q · k knows j − i
    ALiBi (Press 2022)          q_i · k_j / √d − m_h · |i − j|,   m_h = 2^(−8h/H); the paper has j ≤ i only
    Shaw 2018, eq. 3 and 4      q_i · (k_j + a_{j−i}) / √d,  and values v_j + b_{j−i};  j − i clipped to ± limit
    Transformer-XL (Dai 2019)   ((q_i + u) · k_j + (q_i + v) · W r_{i−j}) / √d,  r sinusoidal; u and v of each layer

Between T queries and S keys there are T + S − 1 distances. `skew` makes of a query's products with a vector for each
distance the row that belongs to its scores, without an index for each pair.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.position import angles, sinusoidal
from regard.nn.product import Linear

RelationKind = Literal["shaw", "transformer_xl", "rotary", "alibi"]


def distances(queries: int, keys: int, first: int, device: torch.device | None = None) -> Int[Tensor, "N"]:
    """All j − i between query i and key j, in ascending order; query 0 stands at the key `first`."""
    return torch.arange(1 - queries - first, keys - first, device=device)


def skew(x: Float[Tensor, "*B T N"], keys: int) -> Float[Tensor, "*B T S"]:
    """Of every query's value for each distance the one that belongs to each key."""
    queries, number = x.shape[-2:]
    if queries == 1:
        return x
    flat = x.flatten(-2)[..., queries - 1 : -1]  # so that each row begins one place earlier than the one before
    return flat.unflatten(-1, (queries, number - 1))[..., :keys]


def unskew(x: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T N"]:
    """The reverse: every query's value for each distance, zero where no key stands."""
    queries, keys = x.shape[-2:]
    if queries == 1:
        return x
    flat = F.pad(x, (0, queries - 2)).flatten(-2)
    return F.pad(flat, (queries - 1, 1)).unflatten(-1, (queries, queries + keys - 1))


class Relation(nn.Module):
    """What a self-attention knows of positions; by itself nothing. `first` is the key beside which query 0 stands."""

    def place(
        self, query: Float[Tensor, "B H T d"], keys: Float[Tensor, "B H T d"], start: int
    ) -> tuple[Float[Tensor, "B H T d"], Float[Tensor, "B H T d"]]:
        """Queries and keys of the positions start, start + 1, …, as they enter the product."""
        return query, keys

    def bias(self, query: Tensor, keys: Tensor, first: int) -> Float[Tensor, "*B T S"] | None:
        """What is added to q · k, before the sum is divided by √d."""
        return None

    def context(self, weights: Tensor, first: int) -> Float[Tensor, "*B T d"] | None:
        """What is added to the weighted sum of values."""
        return None


class Rotary(Relation):
    """Su et al. 2021, eq. 34: each pair of elements is turned by t · θ_i, θ_i = 10000^(−2i/d)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width = width // heads
        self.table: Tensor  # [2,T,d/2]: cosines and sines; grows on demand and is never saved
        self.register_buffer("table", torch.empty(2, 0, self.width // 2), persistent=False)

    def place(self, query: Tensor, keys: Tensor, start: int) -> tuple[Tensor, Tensor]:
        end = start + query.size(2)
        table = self.table  # of this call: another thread may let it grow meanwhile
        if end > table.size(1):
            with torch.inference_mode(False):  # training may go on with what a validation has made
                turn = angles(torch.arange(max(2 * end, 512)), self.width)
                self.table = table = torch.stack([turn.cos(), turn.sin()]).to(table)
        cosine, sine = table[:, start:end]
        return turned(query, cosine, sine), turned(keys, cosine, sine)


def turned(x: Float[Tensor, "B H T d"], cosine: Tensor, sine: Tensor) -> Float[Tensor, "B H T d"]:
    """Pairs of elements (a, b) → (a cos − b sin, a sin + b cos)."""
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)


class ALiBi(Relation):
    """Press et al. 2022: every head likes what is near, each more or less so; nothing is learned."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))
        self.slopes: Tensor
        self.register_buffer("slopes", slopes * (width // heads) ** 0.5, persistent=False)  # the sum is divided by √d

    def bias(self, query: Tensor, keys: Tensor, first: int) -> Tensor:
        queries, number = query.size(-2), keys.size(-2)
        far = distances(queries, number, first, query.device).abs()
        matrix = skew(far.to(query).expand(queries, -1), number)
        return -self.slopes[:, None, None] * matrix


class Shaw(Relation):
    """Shaw et al. 2018: a learned vector for each distance, in keys and in values, the same for all heads."""

    def __init__(self, width: int, heads: int, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.keys = nn.Parameter(torch.empty(2 * limit + 1, width // heads))
        self.values = nn.Parameter(torch.empty(2 * limit + 1, width // heads))
        nn.init.xavier_uniform_(self.keys)
        nn.init.xavier_uniform_(self.values)

    def _rows(self, table: Tensor, queries: int, keys: int, first: int) -> Float[Tensor, "N d"]:
        near = distances(queries, keys, first, table.device).clamp(-self.limit, self.limit)
        return table.index_select(0, near + self.limit)

    def bias(self, query: Tensor, keys: Tensor, first: int) -> Tensor:
        rows = self._rows(self.keys, query.size(-2), keys.size(-2), first)
        return skew(query @ rows.t(), keys.size(-2))

    def context(self, weights: Tensor, first: int) -> Tensor:
        return unskew(weights) @ self._rows(self.values, weights.size(-2), weights.size(-1), first)


class TransformerXL(Relation):
    """Dai et al. 2019, section 3.3: terms (b), (c) and (d) of the score; (a) is q · k."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.relative = Linear(width, width, bias=False)  # W_{k,R}
        self.content = nn.Parameter(torch.zeros(heads, 1, width // heads))  # u
        self.place_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))  # v
        self.table: Tensor  # of the distances from the middle row on both sides; grows on demand and is never saved
        self.register_buffer("table", torch.empty(0, width), persistent=False)
        nn.init.xavier_uniform_(self.relative.weight)

    def _rows(self, queries: int, keys: int, first: int) -> Float[Tensor, "N D"]:
        """Sinusoidal vectors of i − j for every distance j − i."""
        table = self.table  # of this call: another thread may let it grow meanwhile
        near = distances(queries, keys, first, table.device)
        farthest = max(queries + first, keys)
        if 2 * farthest > len(table):
            size = max(2 * farthest, 256)
            with torch.inference_mode(False):
                self.table = table = sinusoidal(2 * size, self.width, -size).to(table)
        return table.index_select(0, len(table) // 2 - near)

    def bias(self, query: Tensor, keys: Tensor, first: int) -> Tensor:
        rows = self.relative(self._rows(query.size(-2), keys.size(-2), first))
        rows = rows.unflatten(-1, (self.heads, -1)).permute(1, 2, 0)  # [H,d,N]
        return self.content @ keys.mT + skew((query + self.place_bias) @ rows, keys.size(-2))


def make_relation(kind: str, width: int, heads: int, limit: int) -> Relation | None:
    """What a layer's self-attention knows of distances; None for a kind of position that is not relative."""
    if kind == "shaw":
        return Shaw(width, heads, limit)
    kinds = {"transformer_xl": TransformerXL, "rotary": Rotary, "alibi": ALiBi}
    return kinds[kind](width, heads) if kind in kinds else None
