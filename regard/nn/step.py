"""A decoder layer for one more position, as a search needs it: the same sums in as few operations as torch allows.

What a step of a small model costs is not its arithmetic but the number of operations. Here queries, keys and values are
one product, keys and values stand in one cache, vectors have no dimension for the position, and no module is called.
The contract tests hold a model's steps equal to its pass over all positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.attention import MultiHead
from regard.nn.blocks import FeedForward, Residual
from regard.nn.self_attention import Cache, SelfAttention

Affine = tuple[Tensor, Tensor]  # weight and bias
PARTS = (
    "self_attention", "cross_attention", "feed_forward", "around_attention", "around_cross", "around_feed_forward",
)  # fmt: skip


@dataclass(frozen=True)
class LayerStep:
    """A layer of self-attention, cross-attention and feed-forward, its weights laid out for a search."""

    heads: int
    pre: bool  # whether the norms are before the sub-layers
    norms: tuple[tuple[Tensor, Tensor, float], ...]  # of the three sub-layers: weight, bias, ε
    look_back: tuple[Affine, Affine]  # queries, keys and values; output
    look_over: tuple[Affine, Affine]  # queries; output
    think: tuple[Affine, Affine]
    activate: Callable[[Tensor], Tensor]

    @classmethod
    def of(cls, layer: nn.Module) -> "LayerStep | None":
        """The layer's step; None if it has parts that are not known here, or somebody looks on."""
        own, cross, forward, *around = (getattr(layer, name, None) for name in PARTS)
        if not isinstance(own, SelfAttention) or type(cross) is not MultiHead or not isinstance(forward, FeedForward):
            return None
        if own.relation is not None or own.radius or own.tap is not None or cross.tap is not None:
            return None
        pre, norms = False, []
        for each in around:
            if not isinstance(each, Residual) or not each.residual or not isinstance(each.norm, nn.LayerNorm):
                return None
            pre = each.pre
            norms.append((each.norm.weight, each.norm.bias, each.norm.eps))
        together = torch.cat([own.query.weight, own.memory.weight]), torch.cat([own.query.bias, own.memory.bias])
        return cls(
            own.heads,
            pre,
            tuple(norms),
            (together, affine(own.out)),
            (affine(cross.query), affine(cross.out)),
            (affine(forward.inner), affine(forward.outer)),
            forward.activate,
        )

    def select(self, rows: Tensor) -> "LayerStep":
        """Weights have no rows of a batch."""
        return self

    def forward(
        self, x: Float[Tensor, "N D"], keys: Tensor, values: Tensor, bias: Tensor, cache: Cache
    ) -> tuple[Float[Tensor, "N D"], Cache]:
        """The layer's output for the next position, and the cache with it; `bias` [B·H,1,S] is added to the scores."""
        y, cache = self.back(self.norm(0, x) if self.pre else x, cache)
        x = x + y if self.pre else self.norm(0, x + y)
        y = self.over(self.norm(1, x) if self.pre else x, keys, values, bias)
        x = x + y if self.pre else self.norm(1, x + y)
        inner, outer = self.think
        y = F.linear(self.activate(F.linear(self.norm(2, x) if self.pre else x, *inner)), *outer)
        return x + y if self.pre else self.norm(2, x + y), cache

    def norm(self, number: int, x: Tensor) -> Tensor:
        """Layer norm of a sub-layer."""
        weight, bias, epsilon = self.norms[number]
        return torch.layer_norm(x, weight.shape, weight, bias, epsilon)

    def back(self, x: Float[Tensor, "N D"], cache: Cache) -> tuple[Float[Tensor, "N D"], Cache]:
        """Self-attention over all positions so far."""
        into, out = self.look_back
        rows, width = x.shape
        both = F.linear(x, *into).view(rows, 3, self.heads, -1)
        room, length = cache.reserve(1).pairs, cache.length
        room[:, :, :, length] = both[:, 1:]
        cache = Cache(room, length + 1)
        context = F.scaled_dot_product_attention(both[:, 0, :, None], *cache.filled())
        return F.linear(context.reshape(rows, width), *out), cache

    def over(self, x: Float[Tensor, "N D"], keys: Tensor, values: Tensor, bias: Tensor) -> Float[Tensor, "N D"]:
        """Attention to the memory, the beams of a sentence together."""
        into, out = self.look_over
        sentences, heads, _, size = values.shape
        query = F.linear(x, *into).view(sentences, -1, heads, size).transpose(1, 2).reshape(len(bias), -1, size)
        scores = torch.baddbmm(bias, query, keys.flatten(0, 1).mT, alpha=size**-0.5)
        context = torch.bmm(scores.softmax(-1), values.flatten(0, 1))
        context = context.view(sentences, heads, -1, size).transpose(1, 2).reshape(x.shape)
        return F.linear(context, *out)


def make_steps(layers: Sequence[nn.Module]) -> tuple[LayerStep, ...] | None:
    """The steps of all layers, or none."""
    steps = [step for layer in layers if (step := LayerStep.of(layer))]
    return tuple(steps) if len(steps) == len(layers) else None


def affine(linear: nn.Linear) -> Affine:
    """Weight and bias."""
    return linear.weight, linear.bias


def score_bias(mask: Tensor, heads: int, like: Tensor) -> Float[Tensor, "BH 1 S"]:
    """What is added to the scores of all heads so that nothing behind the mask is looked at."""
    bias = like.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
    return bias.repeat_interleave(heads, 0)[:, None]
