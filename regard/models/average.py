"""Average attention network (Zhang, Xiong and Su 2018, "Accelerating Neural Transformer via an Average Attention
Network").

Idea: a Transformer whose decoder does not look back by self-attention but by the mean of all it has read, which a step
of the search updates at constant cost and memory.

    g_t = FeedForward((1/t) Σ_{k≤t} x_k)                the mean, transformed
    i_t, f_t = σ(W [x_t; g_t])                          how much of the word itself, how much of what was before
    h_t = i_t ⊙ x_t + f_t ⊙ g_t

with residual connection, dropout and layer norm around it as around every sub-layer. All else is the Transformer's.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.base import Memory
from regard.models.transformer import Sizes, Transformer, TransformerState, make_feed_forward, make_residual
from regard.nn.attention import MultiHead
from regard.nn.product import Linear


@dataclass
class Running:
    """The sum of what a layer has read, and of how many words."""

    sum: Float[Tensor, "N D"]
    length: int


class Average(nn.Module):
    """The mean of everything so far, gated with the present word."""

    def __init__(self, options: Transformer.Config) -> None:
        super().__init__()
        self.feed_forward = make_feed_forward(options)
        self.gates = Linear(2 * options.width, 2 * options.width)

    def forward(self, x: Float[Tensor, "N T D"], past: Running | None) -> tuple[Float[Tensor, "N T D"], Running]:
        """Every position's mean, after the words in `past`, and what to go on with."""
        sums, read = x.cumsum(1), torch.arange(1, x.size(1) + 1, device=x.device)
        if past is not None:
            sums, read = sums + past.sum[:, None], read + past.length
        assert self.feed_forward is not None
        before = self.feed_forward(sums / read[:, None])
        own, other = self.gates(torch.cat([x, before], -1)).sigmoid().chunk(2, -1)
        return own * x + other * before, Running(sums[:, -1], (past.length if past else 0) + x.size(1))


class AverageLayer(nn.Module):
    """The mean of the past, attention to the memory, feed-forward."""

    def __init__(self, options: Transformer.Config) -> None:
        super().__init__()
        self.average = Average(options)
        self.cross_attention = MultiHead(options.width, options.heads, options.attention_dropout)
        self.feed_forward = make_feed_forward(options)
        self.around_average = make_residual(options, self.average)
        self.around_cross = make_residual(options, self.cross_attention)
        self.around_feed_forward = make_residual(options, self.feed_forward)

    def forward(
        self, x: Float[Tensor, "N T D"], keys: Tensor, values: Tensor, mask: Tensor, past: Running | None
    ) -> tuple[Float[Tensor, "N T D"], Running | None]:
        def look_back(y: Tensor) -> Tensor:
            nonlocal past
            y, past = self.average(y, past)
            return y

        x = self.around_average(x, look_back)
        x = self.around_cross(x, lambda y: self.cross_attention(y, keys, values, mask))
        return self.around_feed_forward(x, self.feed_forward), past


class AverageAttention(Transformer):
    """The Transformer's encoder, and a decoder that looks back at a mean."""

    decoder_layer = AverageLayer

    class Config(Sizes):  # pyright: ignore[reportIncompatibleVariableOverride] (fewer options)
        tie: Literal["none", "output", "embeddings", "all"] = "output"  # which of source, target, output share a table

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__(Transformer.Config(**options.model_dump()), source_vocabulary, target_vocabulary)

    def start(self, memory: Memory, layout: Any = None) -> TransformerState:
        nothing = memory.values.new_zeros(len(memory.values), self.options.width)
        return TransformerState(tuple(Running(nothing, 0) for _ in self.decoder), 0)
