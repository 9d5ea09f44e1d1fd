"""Which target tokens a source token may become, for an engine that computes the output layer over those alone.

For each source token the target tokens it is linked to most often in a corpus, and for all of them the most frequent
target tokens, which any sentence may need (Jean et al. 2015, "On Using Very Large Target Vocabulary", section 3.3).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regard.align.bitext import Bitext
from regard.align.links import Alignment


@dataclass(frozen=True)
class Shortlist:
    """Target tokens for any source, and for each source token, the most frequent ones first."""

    common: list[int]
    of: dict[int, list[int]]

    def lines(self) -> Iterator[str]:
        """As CTranslate2 reads it: a source token, a TAB, target tokens; the line without a source is for all."""
        for source, targets in (("", self.common), *self.of.items()):
            yield f"{source}\t{' '.join(map(str, targets))}"


def make_shortlist(bitext: Bitext, links: Alignment, each: int, common: int) -> Shortlist:
    """At most `each` target tokens for every source token of the corpus, and the `common` most frequent ones of all."""
    rows = np.repeat(np.arange(len(links)), np.diff(links.starts))
    sources = bitext.source.ids[bitext.source.starts[rows] + links.sources]
    targets = bitext.target.ids[bitext.target.starts[rows] + links.targets]
    size = int(bitext.target.ids.max(initial=0)) + 1
    pairs, counts = np.unique(sources.astype(np.int64) * size + targets, return_counts=True)
    of: dict[int, list[int]] = {}
    for place in np.lexsort((pairs % size, -counts)).tolist():  # the most frequent pairs first
        found = of.setdefault(int(pairs[place] // size), [])
        if len(found) < each:
            found.append(int(pairs[place] % size))
    frequency = np.bincount(bitext.target.ids, minlength=1)
    often = np.argsort(-frequency, kind="stable")[:common]
    return Shortlist([int(token) for token in often if frequency[token]], of)
