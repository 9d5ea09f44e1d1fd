"""Pairs of id rows as the aligner reads them: kept flat, given out in chunks.

All pairs of a chunk have the same number S of source tokens, so that one matrix of jumps serves them all. Their
targets stand upright, `[T,B]`, longest first: at step t the rows that still have a token are the first ones,
and no masks are needed. NULL, the source token of target tokens that translate nothing, stands in column 0.

Letters: `B` pairs of a chunk, `S` source tokens, `T` target tokens; a cell is one (pair, source, target) place.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

NULL = 0  # number of the source token that stands for nothing; the ids of a row are moved up by one
CELLS = 1 << 18  # of one chunk, unless a single pair has more

Row = tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]  # source ids, target ids


class Side:
    """The rows of one language, one after the other."""

    def __init__(self, ids: array, ends: array) -> None:
        self.ids = np.frombuffer(ids, dtype=np.int32) if ids else np.zeros(0, dtype=np.int32)
        edges = np.frombuffer(ends, dtype=np.int64)
        self.starts, self.lengths = edges[:-1], np.diff(edges)
        self.size = int(self.ids.max(initial=-1)) + 2  # of the vocabulary, NULL included

    def row(self, number: int) -> list[int]:
        """The ids of one row, as they were given."""
        start = self.starts[number]
        return self.ids[start : start + self.lengths[number]].tolist()

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """[B,longest] ids of these rows, moved up by one; 0 behind the end of a row."""
        lengths = self.lengths[rows]
        steps = np.arange(int(lengths.max(initial=0)))
        inside = steps < lengths[:, None]
        places = np.where(inside, self.starts[rows][:, None] + steps, 0)
        return np.where(inside, self.ids[places].astype(np.int64) + 1, 0)


@dataclass(frozen=True)
class Chunk:
    """Pairs of one source length, those with the longest targets first."""

    rows: np.ndarray  # [B] their numbers in the corpus
    source: np.ndarray  # [B,S+1] ids, NULL in front
    target: np.ndarray  # [T,B] ids, 0 behind the end
    lengths: np.ndarray  # [B] of the targets, falling

    @property
    def active(self) -> np.ndarray:
        """[T] how many of the pairs, the first ones, have a token at each step."""
        return (self.lengths > np.arange(len(self.target))[:, None]).sum(1)


class Bitext:
    """A corpus of id rows; pairs with an empty side, or one longer than `longest`, are never given out."""

    def __init__(self, source: Side, target: Side, longest: int) -> None:
        self.source, self.target, self.longest = source, target, longest
        lengths = np.stack([source.lengths, target.lengths])
        self.usable = (lengths.min(0) > 0) & (lengths.max(0) <= longest)
        self.too_long = int((lengths.max(0) > longest).sum())
        self._plan = list(self._cut())

    @classmethod
    def read(cls, rows: Iterable[Row], longest: int) -> "Bitext":
        """Rows of (source ids, target ids)."""
        sides: list[tuple[array, array]] = [(array("i"), array("q", [0])) for _ in range(2)]
        for row in rows:
            for (ids, ends), side in zip(sides, row, strict=True):
                values: Any = side.tolist() if isinstance(side, np.ndarray) else side
                ids.extend(values)
                ends.append(len(ids))
        return cls(Side(*sides[0]), Side(*sides[1]), longest)

    def swapped(self) -> "Bitext":
        """The same pairs, read from target to source."""
        return Bitext(self.target, self.source, self.longest)

    def __len__(self) -> int:
        return len(self.usable)

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Source and target tokens of every pair."""
        return list(zip(self.source.lengths.tolist(), self.target.lengths.tolist(), strict=True))

    @property
    def tokens(self) -> int:
        """Target tokens of the usable pairs."""
        return int(self.target.lengths[self.usable].sum())

    @property
    def cells(self) -> int:
        """Places of the usable pairs, NULL's included: what a table over all of them would hold."""
        return int(((self.source.lengths + 1) * self.target.lengths)[self.usable].sum())

    def _cut(self) -> Iterator[np.ndarray]:
        """The rows of each chunk: as many as make up CELLS places, of S×T or, for the jumps, S×S."""
        numbers = np.flatnonzero(self.usable)
        order = numbers[np.lexsort((numbers, -self.target.lengths[numbers], self.source.lengths[numbers]))]
        sizes = self.source.lengths[order]
        edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(order)]
        for start, end in pairwise(edges):
            while start < end:
                width = int(sizes[start]) + 1
                count = max(1, CELLS // (width * max(width, int(self.target.lengths[order[start]]))))
                yield order[start : min(start + count, end)]
                start += count

    def chunks(self) -> Iterator[Chunk]:
        """All usable pairs, always in the same order."""
        for rows in self._plan:
            source = np.pad(self.source.gather(rows), ((0, 0), (1, 0)), constant_values=NULL)
            yield Chunk(rows, source, np.ascontiguousarray(self.target.gather(rows).T), self.target.lengths[rows])
