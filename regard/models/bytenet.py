"""ByteNet (Kalchbrenner et al. 2016, "Neural Machine Translation in Linear Time").

Idea: no attention and no recurrence; the decoder is stacked on the encoder, column on column, and dilated convolutions
make the window of a position grow exponentially with depth. Time is linear in the length, and the path between two
positions logarithmic.

    residual block   x ← x + W3 ρ(conv_r(ρ(W1 ρ(x))))        ρ = ReLU after layer norm; conv of kernel k, dilation r,
                     r = 1, 2, 4, 8, 16, 1, 2, …             unmasked in the encoder, masked in the decoder
    unfolding        the source is represented in 1.2 |s| columns; step t reads column t, zeros beyond the last,
                     and the decoder goes on until EOS
    output           W ReLU(V ρ(x))

with the outer width twice the inner one. Differs from the paper: target embedding and source column enter the
decoder by one linear map; dropout on the embeddings and on the output of each block.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from regard.config import Fraction, Options, Positive, Several
from regard.data.batch import Batch
from regard.models.base import Autoregressive, Memory, check_shared
from regard.nn.attention import hide, padding_mask
from regard.nn.blocks import Dropout
from regard.nn.convolution import Convolution
from regard.nn.embedding import token_table
from regard.nn.product import Linear


@dataclass
class UnfoldingState:
    """The last inputs of each block's convolution."""

    pasts: tuple[Tensor, ...]  # each [N, its reach, D]
    position: int


class ResidualBlock(nn.Module):
    """Down to half the width, a dilated convolution, and up again."""

    def __init__(self, width: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        inner = width // 2
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in (width, inner, inner))
        self.down = Linear(width, inner)
        self.convolution = Convolution(inner, inner, kernel, dilation)
        self.up = Linear(inner, width)
        self.dropout = Dropout(dropout)

    def around(self, x: Float[Tensor, "B S D"], mask: Tensor) -> Float[Tensor, "B S D"]:
        """In the encoder: both sides are seen, padding is zero."""
        return self._after(x, self.convolution.around(hide(self._before(x), mask)))

    def behind(self, x: Float[Tensor, "N T D"], past: Tensor | None) -> tuple[Float[Tensor, "N T D"], Tensor]:
        """In the decoder: nothing after a position is seen."""
        y, past = self.convolution.behind(self._before(x), past)
        return self._after(x, y), past

    def _before(self, x: Tensor) -> Tensor:
        return F.relu(self.norms[1](self.down(F.relu(self.norms[0](x)))))

    def _after(self, x: Tensor, y: Tensor) -> Tensor:
        return x + self.dropout(self.up(F.relu(self.norms[2](y))))


class ByteNet(Autoregressive):
    """Encoder and decoder of dilated convolutions, one on top of the other."""

    class Config(Options):
        width: Positive = 256  # outer (2d); the convolutions are half as wide
        encoder_layers: Positive = 10  # residual blocks
        decoder_layers: Positive = 10
        encoder_kernel: Positive = 3
        decoder_kernel: Several = 3  # of 1, a position would see nothing of those before it
        dilations: Positive = 5  # so many doublings, 1 to 16, then again from 1
        tie: Literal["none", "output", "embeddings", "all"] = "none"  # which of source, target, output share a table
        dropout: Fraction = 0.1

        @model_validator(mode="after")
        def _check(self) -> "ByteNet.Config":
            if self.width % 2:
                raise ValueError(f"width must be even, found {self.width}: the convolutions are half as wide")
            return self

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        shared = check_shared(options.tie, source_vocabulary, target_vocabulary)
        self.options = options
        width = options.width
        self.source = token_table(source_vocabulary, width)
        self.target = self.source if shared else token_table(target_vocabulary, width)
        self.scale = width**0.5
        self.dropout = Dropout(options.dropout)
        self.encoder = self._blocks(options.encoder_layers, options.encoder_kernel)
        self.join = Linear(2 * width, width)
        self.decoder = self._blocks(options.decoder_layers, options.decoder_kernel)
        self.norm = nn.LayerNorm(width)
        self.last = Linear(width, width)
        self.projection = None
        if options.tie in ("none", "embeddings"):
            self.projection = Linear(width, target_vocabulary)

    def _blocks(self, number: int, kernel: int) -> nn.ModuleList:
        options = self.options
        dilations = [2 ** (layer % options.dilations) for layer in range(number)]
        return nn.ModuleList(ResidualBlock(options.width, kernel, dilation, options.dropout) for dilation in dilations)

    def encode(self, batch: Batch) -> Memory:
        columns = unfolded(batch.source_length)
        size = unfolded(batch.source.size(1))
        given = padding_mask(batch.source_length, batch.source.size(1))
        x = hide(self.dropout(self.source(batch.source) * self.scale), given)
        x, mask = F.pad(x, (0, 0, 0, size - x.size(1))), padding_mask(columns, size)
        for block in self.encoder:
            x = block.around(x, mask)  # type: ignore[operator]
        return Memory(x, mask)

    def start(self, memory: Memory, layout: Any = None) -> UnfoldingState:
        rows, inner = len(memory.values), self.options.width // 2
        reaches = [block.convolution.reach for block in self.decoder]  # type: ignore[union-attr]
        return UnfoldingState(tuple(memory.values.new_zeros(rows, reach, inner) for reach in reaches), 0)  # type: ignore[arg-type]

    def decode(
        self, tokens: Int[Tensor, "N T"], memory: Memory, state: UnfoldingState | None = None
    ) -> tuple[Float[Tensor, "N T D"], UnfoldingState]:
        position, pasts = (state.position, state.pasts) if state else (0, (None,) * len(self.decoder))
        steps = tokens.size(1)
        columns = memory.values[:, position : position + steps]
        columns = F.pad(columns, (0, 0, 0, steps - columns.size(1)))
        columns = columns.repeat_interleave(len(tokens) // len(columns), 0)
        embedded = self.dropout(self.target(tokens) * self.scale)
        x, after = self.join(torch.cat([embedded, columns], -1)), []
        for block, past in zip(self.decoder, pasts, strict=True):
            x, past = block.behind(x, past)  # type: ignore[operator]
            after.append(past)
        hidden = F.relu(self.last(F.relu(self.norm(x))))
        return self.dropout(hidden), UnfoldingState(tuple(after), position + steps)

    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        if self.projection is None:
            return self.target.weight, None
        return self.projection.weight, self.projection.bias


def unfolded(source: Any) -> Any:
    """Columns for a source of so many tokens: 1.2 |s|, rounded up."""
    return -(-source * 6 // 5)
