"""A decoder layer for one more position, as a search needs it: the same sums in as few operations as torch allows.

What a step of a small model costs is not its arithmetic but the number of operations. Here queries, keys and values are
one product, keys and values stand in one cache, vectors have no dimension for the position, no module is called, and
weights lie as products with few rows read them fastest.
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

PARTS = (
    "self_attention", "cross_attention", "feed_forward", "around_attention", "around_cross", "around_feed_forward",
)  # fmt: skip


FEW = 64  # rows up to which a product is faster with weights that lie [in, out]; at 32 up to three times


@dataclass(frozen=True)
class Affine:
    """A linear map with its weights in both orders, for few rows and for many."""

    few: Float[Tensor, "I O"]
    many: Float[Tensor, "I O"]  # as in a layer, [out, in], but turned
    bias: Float[Tensor, " O"] | None

    @classmethod
    def of(cls, weight: Float[Tensor, "O I"], bias: Tensor | None) -> "Affine":
        """From the weights of a layer."""
        return cls(weight.t().contiguous(), weight.t(), bias)

    def __call__(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        weight = self.few if len(x) <= FEW else self.many
        return torch.mm(x, weight) if self.bias is None else torch.addmm(self.bias, x, weight)


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
        both = torch.cat([own.query.weight, own.memory.weight]), torch.cat([own.query.bias, own.memory.bias])
        ours, out, theirs, back, inner, outer = (
            Affine.of(*each)
            for each in (both, *map(affine, (own.out, cross.query, cross.out, forward.inner, forward.outer)))
        )
        return cls(
            own.heads,
            pre,
            tuple(norms),
            (ours, out),
            (theirs, back),
            (inner, outer),
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
        y = outer(self.activate(inner(self.norm(2, x) if self.pre else x)))
        return x + y if self.pre else self.norm(2, x + y), cache

    def norm(self, number: int, x: Tensor) -> Tensor:
        """Layer norm of a sub-layer."""
        weight, bias, epsilon = self.norms[number]
        return torch.layer_norm(x, weight.shape, weight, bias, epsilon)

    def back(self, x: Float[Tensor, "N D"], cache: Cache) -> tuple[Float[Tensor, "N D"], Cache]:
        """Self-attention over all positions so far."""
        into, out = self.look_back
        rows, width = x.shape
        both = into(x).view(rows, 3, self.heads, -1)
        room, length = cache.reserve(1).pairs, cache.length
        room[:, :, :, length] = both[:, 1:]
        cache = Cache(room, length + 1)
        context = F.scaled_dot_product_attention(both[:, 0, :, None], *cache.filled())
        return out(context.reshape(rows, width)), cache

    def over(self, x: Float[Tensor, "N D"], keys: Tensor, values: Tensor, bias: Tensor) -> Float[Tensor, "N D"]:
        """Attention to the memory, the beams of a sentence together."""
        into, out = self.look_over
        sentences, heads, _, size = values.shape
        query = into(x).view(sentences, -1, heads, size).transpose(1, 2).reshape(len(bias), -1, size)
        scores = torch.baddbmm(bias, query, keys.flatten(0, 1).mT, alpha=size**-0.5)
        context = torch.bmm(scores.softmax(-1), values.flatten(0, 1))
        context = context.view(sentences, heads, -1, size).transpose(1, 2).reshape(x.shape)
        return out(context)


def make_steps(layers: Sequence[nn.Module]) -> tuple[LayerStep, ...] | None:
    """The steps of all layers, or none."""
    steps = [step for layer in layers if (step := LayerStep.of(layer))]
    return tuple(steps) if len(steps) == len(layers) else None


def affine(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight and bias."""
    return linear.weight, linear.bias


def score_bias(mask: Tensor, heads: int, like: Tensor) -> Float[Tensor, "BH 1 S"]:
    """What is added to the scores of all heads so that nothing behind the mask is looked at."""
    bias = like.new_zeros(mask.shape).masked_fill_(~mask, float("-inf"))
    return bias.repeat_interleave(heads, 0)[:, None]
