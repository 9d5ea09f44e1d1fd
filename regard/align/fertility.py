"""Fertilities: how many target tokens each source token makes (Gu et al. 2018, for the non-autoregressive Transformer).

There every target token belongs to exactly one source token, so that the fertilities of a pair sum to the target's
length. An alignment leaves tokens out and gives others several links; `assign` makes it a function: of several
source tokens the middle one, and for a token with none that of the nearest token which has one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from regard.align.aligner import AlignerOptions, Say, align_bitext
from regard.align.bitext import Bitext, Row
from regard.align.links import Links


def assign(links: Links, source: int, target: int) -> np.ndarray:
    """[target] the one source token of every target token; with no link at all they lie along the diagonal.

    Of two neighbours that are equally near the left one counts: what follows a word more often belongs to it.
    """
    if not source:
        raise ValueError("an empty source has no token to which a target token could belong")
    owners: list[list[int]] = [[] for _ in range(target)]
    for place, other in sorted(links):
        owners[other].append(place)
    known = np.array([place for place, owner in enumerate(owners) if owner], dtype=np.int64)
    if not len(known):
        return np.arange(target) * source // max(1, target)
    middle = np.array([owner[(len(owner) - 1) // 2] for owner in owners if owner], dtype=np.int64)
    nearest = np.abs(np.arange(target)[:, None] - known).argmin(1)  # the first of equals, which is the left one
    return middle[nearest]


def fertility(links: Links, source: int, target: int) -> np.ndarray:
    """[source] numbers that sum to `target`; all zero, and less than that, only where the source is empty."""
    return np.bincount(assign(links, source, target), minlength=source) if source else np.zeros(0, dtype=np.int64)


def corpus_fertilities(
    rows: Iterable[Row],
    options: AlignerOptions | None = None,
    say: Say = lambda text: None,
) -> list[np.ndarray]:
    """Rows of (source ids, target ids) → the fertilities of each source, aligned over the whole corpus."""
    options = options or AlignerOptions()
    bitext = Bitext.read(rows, options.longest)
    return list(make_fertilities(align_bitext(bitext, options, say), bitext))


def make_fertilities(links: Iterable[Links], bitext: Bitext) -> Iterator[np.ndarray]:
    """The fertilities of every pair of a corpus that has been aligned."""
    for each, (source, target) in zip(links, bitext.lengths, strict=True):
        yield fertility(each, source, target)


@dataclass(frozen=True)
class Histogram:
    """How often each fertility occurs."""

    counts: np.ndarray  # [most + 1] source tokens with fertility 0, 1, 2 …

    @classmethod
    def of(cls, fertilities: Iterable[np.ndarray]) -> "Histogram":
        """Over all source tokens of a corpus."""
        counts = np.zeros(1, dtype=np.int64)
        for each in fertilities:
            more = np.bincount(each, minlength=len(counts))
            more[: len(counts)] += counts
            counts = more
        return cls(counts)

    @property
    def mean(self) -> float:
        return float(self.counts @ np.arange(len(self.counts)) / max(1, self.counts.sum()))

    @property
    def zeros(self) -> float:
        """The share of source tokens that make nothing."""
        return float(self.counts[0] / max(1, self.counts.sum()))
