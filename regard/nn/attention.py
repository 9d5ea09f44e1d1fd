"""Attention: for every query, a weighted mean of values, the weights a softmax over scores with the keys.

    context_t = Σ_s a_ts · value_s        a_t· = softmax_s(score(query_t, key_s))

One base class does mask, softmax, tap and weighted sum; a descendant says only what a score is:

    additive (Bahdanau 2014)      v · tanh(W q + U k)
    dot, general (Luong 2015)     q · k,   q · W k
    concat (Luong 2015)           v · tanh(W [q; k])      (the additive form, used after the step)
    scaled dot (Vaswani 2017)     q · k / √d, in H heads of width d

`mask [B,S]` says which keys may be looked at, `pattern [T,S]` which query may look at which key: True where
one may look. A row with nothing to look at gives zeros. What is behind a mask has weight zero and must be finite,
since 0 × NaN is NaN: `hide` sees to that where a memory is made, once, and not at every look.
Queries may have K rows for each row of the memory (the beams of a sentence): they are folded into query
positions, so the memory is never copied.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.nn.blocks import drop
from regard.nn.product import Linear


def padding_mask(lengths: Tensor, size: int) -> Bool[Tensor, "B S"]:
    """True at the real positions of rows of the given lengths."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def masked_softmax(scores: Float[Tensor, "*B T S"], allowed: Tensor | None) -> Float[Tensor, "*B T S"]:
    """Softmax over the allowed keys; exactly zero elsewhere, and a row without any is all zeros."""
    if allowed is None:
        return scores.softmax(-1)
    lowest = torch.finfo(scores.dtype).min  # finite, so that an empty row has a gradient of zero instead of NaN
    return scores.masked_fill(~allowed, lowest).softmax(-1).masked_fill(~allowed, 0)


class Attention(nn.Module):
    """What all kinds share; `tap`, set by `regard.record`, is shown the weights [B,H,T,S]."""

    tap: Callable[[Tensor], None] | None = None
    heads: int = 0  # 0: queries and keys have no head dimension
    dropout: float = 0.0

    def keys(self, memory: Float[Tensor, "B S M"]) -> Tensor:
        """The part of the scores that depends on the memory alone, computed once for a source."""
        return memory

    def scores(self, query: Tensor, keys: Tensor) -> Float[Tensor, "*B T S"]:
        """How well every query goes with every key."""
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "N T Q"],
        keys: Tensor,
        values: Float[Tensor, "B S M"],
        mask: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "N T M"]:
        """The context of every query."""
        return self.over(keys, values, mask)(query)

    def over(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> Callable[[Tensor], Tensor]:
        """A function from queries to contexts, for a decoder that looks step by step."""

        def look(query: Tensor) -> Tensor:
            folded, unfold = fold(query, len(values), self.tap is not None)
            return unfold(self.attend(folded, keys, values, mask))

        return look

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, pattern: Tensor | None = None
    ) -> Tensor:
        """Mask, softmax, tap, weighted sum."""
        return self.gather(masked_softmax(self.scores(query, keys), combine(mask, pattern, self.heads)), values)

    def gather(self, weights: Float[Tensor, "*B T S"], values: Tensor) -> Tensor:
        """Tap, dropout, and what the weights make of the values."""
        if self.tap is not None:
            self.tap(weights if self.heads else weights.unsqueeze(1))
        if self.training and self.dropout:
            weights = drop(weights, self.dropout)
        return self.weigh(weights, values)

    def weigh(self, weights: Float[Tensor, "*B T S"], values: Tensor) -> Tensor:
        """The weighted sum."""
        return weights @ values


def combine(mask: Tensor | None, pattern: Tensor | None, heads: int) -> Tensor | None:
    """Both masks as one that broadcasts against scores [B,T,S] or [B,H,T,S]."""
    if mask is not None:
        mask = mask[:, None, None, :] if heads else mask[:, None, :]
    if mask is None or pattern is None:
        return mask if pattern is None else pattern
    return mask & pattern


def hide(values: Tensor, mask: Tensor | None) -> Tensor:
    """Values [B,S,M] or [B,H,S,M] with zeros behind the mask: 0 × NaN would be NaN."""
    if mask is None:
        return values
    return values.masked_fill(~(mask[:, :, None] if values.dim() == 3 else mask[:, None, :, None]), 0)


def fold(query: Tensor, rows: int, tapped: bool) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Queries [B·K,T,Q] → [B,K·T,Q] for a memory of B rows, and the way back."""
    total, steps, width = query.shape
    if total == rows:
        return query, lambda context: context
    if tapped:
        raise RuntimeError("attention cannot be recorded inside a search: record one pass over the finished output")
    return query.reshape(rows, -1, width), lambda context: context.reshape(total, steps, -1)


class Additive(Attention):
    """Bahdanau et al. 2014, section A.1.2: e = v · tanh(W s + U h)."""

    def __init__(self, query: int, memory: int, width: int) -> None:
        super().__init__()
        self.query = Linear(query, width, bias=False)
        self.memory = Linear(memory, width)
        self.score = Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.score(torch.tanh(self.query(query)[:, :, None] + keys[:, None])).squeeze(-1)


class Concat(Additive):
    """Luong et al. 2015, eq. 8: v · tanh(W [s; h]), which is the additive score with W cut in two."""


class Dot(Attention):
    """Luong et al. 2015, eq. 8: s · h; both must have the same width."""

    def __init__(self, query: int, memory: int, width: int = 0) -> None:
        super().__init__()
        if query != memory:
            raise ValueError(f"dot attention needs queries as wide as the memory, found {query} and {memory}")

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(-1, -2)


class General(Attention):
    """Luong et al. 2015, eq. 8: s · W h."""

    def __init__(self, query: int, memory: int, width: int = 0) -> None:
        super().__init__()
        self.memory = Linear(memory, query, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.memory(memory)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(-1, -2)


SCORES = {"additive": Additive, "dot": Dot, "general": General, "concat": Concat}


class MultiHead(Attention):
    """Vaswani et al. 2017, section 3.2: H scaled dot products side by side.

    head_h = softmax(Q W_h^Q (K W_h^K)ᵀ / √d) V W_h^V        output = [head_1; …; head_H] W^O

    With no tap set the fused kernel of torch is taken, except for the steps of a search; a test holds both paths
    equal.
    """

    fused: bool = True  # nothing is added to the scores that the kernel does not know of

    def __init__(self, width: int, heads: int, dropout: float = 0.0, memory: int = 0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} cannot be divided into {heads} heads")
        self.heads = heads
        self.dropout = dropout
        self.query = Linear(width, width)
        self.memory = Linear(memory or width, 2 * width)  # keys and values in one product
        self.out = Linear(width, width)
        for weight in (self.query.weight, *self.memory.weight.chunk(2), self.out.weight):
            nn.init.xavier_uniform_(weight.data)
        for linear in (self.query, self.memory, self.out):
            nn.init.zeros_(linear.bias)

    def split(self, vectors: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        """One row of vectors per head."""
        return vectors.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, memory: Float[Tensor, "B S M"]) -> tuple[Float[Tensor, "B H S d"], Float[Tensor, "B H S d"]]:
        """Keys and values of everything that can be looked at."""
        keys, values = self.memory(memory).chunk(2, -1)
        if torch.is_grad_enabled():
            return self.split(keys), self.split(values)
        return self.split(keys).mT.contiguous().mT, self.split(values).contiguous()  # as the steps of a search read it

    def forward(  # type: ignore[override]
        self,
        query: Float[Tensor, "N T D"],
        keys: Float[Tensor, "B H S d"],
        values: Float[Tensor, "B H S d"],
        mask: Bool[Tensor, "B S"] | None = None,
        pattern: Bool[Tensor, "T S"] | None = None,
    ) -> Float[Tensor, "N T D"]:
        """Every query's context, from all heads."""
        folded, unfold = fold(self.query(query), len(keys), self.tap is not None)
        context = self.attend(self.split(folded), keys, values, mask, pattern)
        return self.out(unfold(context.transpose(1, 2).flatten(2)))

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return (query * query.size(-1) ** -0.5) @ keys.transpose(-1, -2)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, pattern: Tensor | None = None
    ) -> Tensor:
        stepping = not torch.is_grad_enabled() and mask is not None and query.size(-2) < keys.size(-2)
        dropout = self.dropout if self.training else 0.0
        drawing = dropout > 0 and query.device.type == "cpu"  # the kernel knows no other generator than torch's
        if self.tap is not None or stepping or drawing or not self.fused:  # plain products: faster for few queries
            return super().attend(query, keys, values, mask, pattern)
        return F.scaled_dot_product_attention(
            query, keys, values, combine(mask, pattern, self.heads), dropout_p=dropout
        )
