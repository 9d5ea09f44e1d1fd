"""The table t(target word | source word) of word alignment, sparse: only pairs that occur together have a place.

Brown et al. 1993: from expected counts c(f, e) of a link, t(f|e) = c(f, e) / Σ_f' c(f', e). With so few counts a
rare source word takes whatever stands around it ("garbage collection"). A Dirichlet prior α over the translations
of each word, and the mean field instead of the maximum, cures it (Riley & Gildea 2012):

    t(f|e) = exp ψ(c(f, e) + α) / exp ψ(Σ_f' c(f', e) + α F)        ψ: digamma; F: target words

so that a count far below one is worth much less than its share. Such a row sums to less than one.
"""

import numpy as np

from regard.align.bitext import Bitext, Chunk

FLOOR = 1e-30  # no pair of words that occurs together is impossible
MERGE = 1 << 24  # keys that are gathered before doubles are dropped


def digamma(x: np.ndarray) -> np.ndarray:
    """ψ(x) for x > 0: moved up to x ≥ 6 by ψ(x) = ψ(x + 1) - 1/x, then the asymptotic series."""
    moved, result = np.array(x, dtype=np.float64), np.zeros(np.shape(x))
    for _ in range(6):
        result -= 1 / moved
        moved += 1
    square = 1 / moved**2
    return result + np.log(moved) - 0.5 / moved - square * (1 / 12 - square * (1 / 120 - square / 252))


class Lexicon:
    """Probabilities of target words given source words, in one array sorted by (source, target)."""

    def __init__(self, bitext: Bitext) -> None:
        self.width = bitext.target.size
        self.keys = self._gather(bitext)
        self.starts = np.flatnonzero(np.diff(self.keys // self.width, prepend=-1))  # where a source word begins
        self.sizes = np.diff(self.starts, append=len(self.keys))
        self.probabilities = np.zeros(len(self.keys) + 1)  # the last place, that of padding, stays 0
        self.counts = np.zeros(len(self.keys) + 1)
        self.counts[:-1] = 1
        self.update()

    def _gather(self, bitext: Bitext) -> np.ndarray:
        found, waiting = np.zeros(0, dtype=np.int64), list[np.ndarray]()
        for chunk in bitext.chunks():
            keys = np.unique(self._keys(chunk))
            waiting.append(keys[keys >= 0])
            if sum(map(len, waiting)) > MERGE:
                found, waiting = np.unique(np.concatenate([found, *waiting])), []
        return np.unique(np.concatenate([found, *waiting]))

    def _keys(self, chunk: Chunk) -> np.ndarray:
        """[T,B,S+1] one number for each pair of words; -1 for padding."""
        target = chunk.target[:, :, None]
        return np.where(target > 0, chunk.source[None] * self.width + target, -1)

    def slots(self, chunk: Chunk) -> np.ndarray:
        """[T,B,S+1] places in the table of every pair of words of a chunk."""
        keys = self._keys(chunk)
        # each key is searched once, and in order: ten times as fast as a search for all
        different, inverse = np.unique(keys, return_inverse=True)
        places = np.where(different < 0, len(self.keys), np.searchsorted(self.keys, different))
        return places[inverse.reshape(keys.shape)].astype(np.int32)

    def add(self, slots: np.ndarray, posterior: np.ndarray) -> None:
        """Count links by how probable they are."""
        np.add.at(self.counts, slots.ravel(), posterior.ravel())

    def update(self, prior: float = 0.0) -> None:
        """New probabilities from the counts, which start again at zero; `prior` is α."""
        counts = self.counts[:-1]
        totals = np.add.reduceat(counts, self.starts) if len(counts) else counts
        if prior:
            over = np.repeat(digamma(totals + prior * (self.width - 1)), self.sizes)
            fresh = np.exp(digamma(counts + prior) - over)
        else:
            fresh = counts / np.repeat(np.maximum(totals, FLOOR), self.sizes)
        self.probabilities[:-1] = np.maximum(fresh, FLOOR)
        self.counts[:] = 0
