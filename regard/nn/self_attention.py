"""Self-attention: a sequence looks at itself, all of it, only back, or only around each place.

    all            every position at every other (Vaswani 2017, encoder)
    causal         at those before it and at itself (decoder)
    restricted     only at the `radius` positions on either side (Vaswani 2017, section 4, with r = 2 · radius)
    others         at every other, but not at itself (Gu 2018, decoder)

Restricted attention is computed in blocks of queries, each with the keys it can reach: time and memory grow with n · r,
not with n². What it knows of positions, if the embeddings do not say it all, is a `Relation`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.nn.attention import MultiHead
from regard.nn.product import linear
from regard.nn.relative import Relation, Rotary

BLOCK = 32  # queries that are computed together, at least


def band(
    queries: int, keys: int, first: int, before: int, after: int, device: torch.device | None = None
) -> Bool[Tensor, "T S"]:
    """True from `before` keys before a query's own place to `after` behind it; query 0 stands at the key `first`."""
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(first + after).triu(first - before)


@dataclass
class Cache:
    """Keys and values of the positions decoded so far, side by side in a buffer that grows when it is full.

    `append` writes into the buffer, so a cache belongs to one continuation: branch with `select`.
    """

    pairs: Tensor  # [N,2,H,C,d], keys and values; the first `length` places are filled
    length: int = 0
    forgotten: int = 0  # positions before these that nobody looks at any more

    @classmethod
    def empty(cls, rows: int, heads: int, width: int, like: Tensor) -> "Cache":
        """A cache of nothing, for heads of the given width."""
        return cls(like.new_zeros(rows, 2, heads, 0, width))

    def reserve(self, positions: int) -> "Cache":
        """The cache with room for so many positions more."""
        total = self.length + positions
        if total <= self.pairs.size(3):
            return self
        *rows, _, width = self.pairs.shape
        pairs = self.pairs.new_zeros(*rows, max(total, 2 * self.length, 16), width)
        pairs[:, :, :, : self.length] = self.pairs[:, :, :, : self.length]
        return Cache(pairs, self.length, self.forgotten)

    def append(self, pairs: Tensor) -> "Cache":
        """The cache with T more positions [N,2,H,T,d]."""
        room, total = self.reserve(pairs.size(3)), self.length + pairs.size(3)
        room.pairs[:, :, :, self.length : total] = pairs
        return Cache(room.pairs, total, self.forgotten)

    def select(self, rows: Tensor) -> "Cache":
        """The named rows, with their room."""
        return Cache(self.pairs.index_select(0, rows), self.length, self.forgotten)

    def filled(self) -> tuple[Tensor, Tensor]:
        """Keys and values of the filled positions."""
        keys, values = self.pairs[:, :, :, : self.length].unbind(1)
        return keys, values

    def keep(self, last: int) -> "Cache":
        """Without all but the last positions, once that is worth a copy."""
        if self.length <= 2 * max(last, 16):
            return self
        gone = self.length - last
        return Cache(self.pairs[:, :, :, gone : self.length].clone(), last, self.forgotten + gone)


class SelfAttention(MultiHead):
    """Multi-head attention of a sequence to itself."""

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        *,
        causal: bool = False,
        radius: int = 0,  # 0: no limit
        itself: bool = True,  # False: a position looks at all others
        relation: Relation | None = None,
    ) -> None:
        super().__init__(width, heads, dropout)
        if not itself and (causal or radius):
            raise ValueError("a position that does not look at itself looks at all others")
        self.causal = causal
        self.radius = radius
        self.itself = itself
        self.relation = relation
        self.fused = relation is None or isinstance(relation, Rotary)

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"] | None = None, cache: Cache | None = None
    ) -> tuple[Float[Tensor, "N T D"], Cache | None]:
        """Every position's context; with a cache after the positions in it, and the cache to go on with."""
        query = self.split(self.query(x))
        keys, values = (self.split(part) for part in self.memory(x).chunk(2, -1))
        if self.relation is not None:
            query, keys = self.relation.place(query, keys, cache.forgotten + cache.length if cache else 0)
        if cache is not None:
            cache = cache.append(torch.stack([keys, values], 1))
            keys, values = cache.filled()
            cache = cache.keep(self.radius) if self.radius else cache
        context = self.attend(query, keys, values, mask)
        return self.out(context.transpose(1, 2).flatten(2)), cache

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, pattern: Tensor | None = None
    ) -> Tensor:
        queries = query.size(2)
        if self.radius and self.causal:
            reached = min(keys.size(2), self.radius + queries)
            keys, values = keys[:, :, -reached:], values[:, :, -reached:]
        if self.radius and self.tap is None and queries > self.block:
            return self.attend_in_blocks(query, keys, values, mask)
        return super().attend(query, keys, values, mask, self.pattern(queries, keys.size(2), query.device))

    def attend_in_blocks(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """The same with a band of scores instead of a square."""
        rows, _, queries, _ = query.shape
        number = -(-queries // self.block)
        behind = number * self.block - queries
        before, after = self.radius, 0 if self.causal else self.radius
        reach = (before - self.first(queries, keys.size(2)), behind + after)  # what the blocks see beyond the keys

        def windows(vectors: Tensor) -> Tensor:
            seen = F.pad(vectors, (0, 0, *reach)).unfold(2, before + self.block + after, self.block)  # [B,H,N,d,w]
            return seen.permute(0, 2, 1, 4, 3).flatten(0, 1)

        real = query.new_ones(1, keys.size(2), dtype=torch.bool) if mask is None else mask
        near = F.pad(real, reach).unfold(1, before + self.block + after, self.block).expand(rows, -1, -1).flatten(0, 1)
        blocks = F.pad(query, (0, 0, 0, behind)).unflatten(2, (number, -1)).transpose(1, 2).flatten(0, 1)
        pattern = self.pattern(self.block, near.size(1), query.device)
        context = super().attend(blocks, windows(keys), windows(values), near, pattern)  # [B·N,H,block,d]
        return context.unflatten(0, (rows, number)).transpose(1, 2).flatten(2, 3)[:, :, :queries]

    @property
    def block(self) -> int:
        """Queries of a block: as many as the keys they reach beyond themselves, so at most half is computed in vain."""
        return max(self.radius if self.causal else 2 * self.radius, BLOCK)

    def first(self, queries: int, keys: int) -> int:
        """The key beside which query 0 stands: the last ones stand together, or the queries are in the middle."""
        return keys - queries if self.causal else (keys - queries) // 2

    def pattern(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """Which query may look at which key; None: each at all."""
        if not self.itself:
            return ~torch.eye(queries, keys, dtype=torch.bool, device=device)
        if (queries == 1 and self.causal) or not (self.causal or self.radius):
            return None
        before = self.radius or keys
        after = 0 if self.causal else before
        return band(queries, keys, self.first(queries, keys), before, after, device)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        first = self.first(query.size(-2), keys.size(-2))
        bias = None if self.relation is None else self.relation.bias(query, keys, first)
        if bias is None:
            return super().scores(query, keys)
        return (query @ keys.mT + bias) * query.size(-1) ** -0.5

    def weigh(self, weights: Tensor, values: Tensor) -> Tensor:
        context = super().weigh(weights, values)
        if self.relation is None:
            return context
        more = self.relation.context(weights, self.first(*weights.shape[-2:]))
        return context if more is None else context + more


class PositionalAttention(MultiHead):
    """Gu et al. 2018, section 3.2: positions look at positions, and find the vectors that stand there."""

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "N T D"], positions: Float[Tensor, "T D"], mask: Bool[Tensor, "N T"]
    ) -> Float[Tensor, "N T D"]:
        (to_keys, to_values), (key_bias, value_bias) = self.memory.weight.chunk(2), self.memory.bias.chunk(2)
        places = positions[None]  # the same in all rows
        query, keys = (
            self.split(each).expand(len(x), -1, -1, -1)
            for each in (self.query(places), linear(places, to_keys, key_bias))
        )
        context = self.attend(query, keys, self.split(linear(x, to_values, value_bias)), mask)
        return self.out(context.transpose(1, 2).flatten(2))
