"""Alignments from the attention of a model: each target token is linked to the source token it looks at most.

The pairs are given, so one teacher-forced pass over each suffices (Bahdanau et al. 2015 read alignments so). The
model is only a function here, from ids that end in EOS to mean weights `[B,T,S]`; the EOS of neither side gets links.
"""

from collections.abc import Callable, Sequence

import numpy as np

from regard.align.bitext import Bitext
from regard.align.links import Alignment
from regard.data.batch import EOS
from regard.errors import ModelError

Look = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], np.ndarray | None]
ROWS = 64  # pairs that are looked at together, at most
TOKENS = 4096  # rows × longest row of either side


def attention_links(look: Look, bitext: Bitext, tell: Callable[[int], None] = lambda done: None) -> Alignment:
    """The links of every pair; `tell` hears how many are done."""
    found = [np.zeros((3, 0), dtype=np.int64)]
    done = 0
    for rows in _batches(bitext):
        sources, targets = ([side.row(row) for row in rows] for side in (bitext.source, bitext.target))
        weights = look([[*source, EOS] for source in sources], [[*target, EOS] for target in targets])
        if weights is None:
            raise ModelError("this model has no attention from target to source, so nothing can be aligned by it")
        for row, map_, source, target in zip(rows, weights, sources, targets, strict=True):
            best = map_[: len(target), : len(source)].argmax(1)
            found.append(np.stack([np.full(len(best), row), best, np.arange(len(best))]))
        done += len(rows)
        tell(done)
    return Alignment(len(bitext), *np.concatenate(found, axis=1))


def _batches(bitext: Bitext) -> list[list[int]]:
    """The usable pairs, longest first, in batches of similar length."""
    lengths = np.maximum(bitext.source.lengths, bitext.target.lengths) + 1
    numbers = np.flatnonzero(bitext.usable)
    order = numbers[np.lexsort((numbers, -lengths[numbers]))].tolist()
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        count = max(1, min(ROWS, TOKENS // int(lengths[order[start]])))
        batches.append(order[start : start + count])
        start += count
    return batches
