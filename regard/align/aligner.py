"""The word aligner: EM over a corpus in one direction or both, from rows of ids to links.

Model 1 gives the lexicon a start from nothing (its likelihood has one maximum); the model that knows word order goes
on from there (Och & Ney 2003). Forward, every target token has one source token; backward, every source token one
target token; the two are put together by `symmetrise`. The same rows and options always give the same links.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from regard.align.bitext import Bitext, Chunk, Row
from regard.align.hmm import Jumps
from regard.align.lexicon import Lexicon
from regard.align.links import Alignment
from regard.align.positions import Diagonal, Placement, Uniform
from regard.align.symmetrise import SYMMETRISE, Symmetrisation
from regard.config import Count, Fraction, Options, Positive

Say = Callable[[str], None]
Kind = Literal["hmm", "ibm1", "ibm2"]
NAMES = {"hmm": "HMM", "ibm1": "model 1", "ibm2": "model 2"}
KEPT = 1 << 27  # places of words in the lexicon that are kept (512 MB), not looked up again in each iteration


class AlignerOptions(Options):
    """How links are found."""

    kind: Kind = "hmm"  # ibm1: word order is nothing; ibm2: near the diagonal; hmm: near the link before
    iterations: tuple[Count, Count] = (5, 5)  # of model 1, then of the kind asked for
    direction: Literal["forward", "backward", "both"] = "both"  # forward: one source token for each target token
    symmetrise: Symmetrisation = "grow-diag-final-and"  # how both directions are put together
    threshold: Fraction = 0.0  # links as probable as this; 0: those of the best path
    null: Annotated[float, Field(gt=0, lt=1)] = 0.05  # p0, of a token with no translation
    smoothing: Annotated[float, Field(gt=0, lt=1)] = 0.1  # α, of jumps to any place
    prior: Annotated[float, Field(ge=0)] = 0.01  # Dirichlet prior of the lexicon; 0: plain maximum likelihood
    longest: Positive = 1000  # tokens: a pair with a longer side gets no links


class Direction:
    """One direction of a corpus: a lexicon, and a model of where links lie."""

    def __init__(self, bitext: Bitext, options: AlignerOptions) -> None:
        self.bitext, self.options = bitext, options
        self.lexicon = Lexicon(bitext)
        self.placement: Placement = Uniform()
        self._slots: list[np.ndarray] | None = None
        if bitext.cells <= KEPT:
            self._slots = [self.lexicon.slots(chunk) for chunk in bitext.chunks()]

    def _chunks(self) -> Iterator[tuple[Chunk, np.ndarray, np.ndarray]]:
        """Every chunk with the places of its words in the lexicon, and their probabilities [T,B,S+1]."""
        for number, chunk in enumerate(self.bitext.chunks()):
            slots = self._slots[number] if self._slots is not None else self.lexicon.slots(chunk)
            yield chunk, slots, self.lexicon.probabilities[slots]

    def train(self, say: Say) -> None:
        """All iterations, first of model 1 and then of the model asked for."""
        first, second = self.options.iterations
        for number in range(first):
            say(f"model 1, {number + 1} of {first}: {self.iterate():.4f}")
        if self.options.kind == "ibm1":
            second = 0
        elif self.options.kind == "ibm2":
            self.placement = Diagonal(self.options.null)
        else:
            longest = int(self.bitext.source.lengths[self.bitext.usable].max(initial=1))
            self.placement = Jumps(longest, self.options.null, self.options.smoothing)
        for number in range(second):
            say(f"{NAMES[self.options.kind]}, {number + 1} of {second}: {self.iterate():.4f}")

    def iterate(self) -> float:
        """One iteration of EM; the log-likelihood per target token before it."""
        total = 0.0
        for chunk, slots, emission in self._chunks():
            posterior, likelihood = self.placement.expect(emission, chunk.lengths)
            self.lexicon.add(slots, posterior)
            total += likelihood
        self.lexicon.update(self.options.prior)
        self.placement.update()
        return total / max(1, self.bitext.tokens)

    def links(self) -> Alignment:
        """(source, target) links of every pair, from 0; none of a pair that is empty or too long."""
        found = [np.zeros((3, 0), dtype=np.int64)]
        for chunk, _, emission in self._chunks():
            if self.options.threshold:
                posterior, _ = self.placement.expect(emission, chunk.lengths)
                target, pair, source = np.nonzero(posterior[:, :, 1:] >= self.options.threshold)
            else:
                path = self.placement.decode(emission, chunk.lengths)
                target, pair = np.nonzero((path > 0) & (chunk.target > 0))
                source = path[target, pair] - 1
            found.append(np.stack([chunk.rows[pair], source, target]))
        return Alignment(len(self.bitext), *np.concatenate(found, axis=1))


def align(rows: Iterable[Row], options: AlignerOptions | None = None, say: Say = lambda text: None) -> Alignment:
    """Rows of (source ids, target ids) → the links of each; `say` is told how far it is."""
    return align_bitext(Bitext.read(rows, (options or AlignerOptions()).longest), options, say)


def align_bitext(bitext: Bitext, options: AlignerOptions | None = None, say: Say = lambda text: None) -> Alignment:
    """The same of rows that are already read."""
    options = options or AlignerOptions()

    def one(name: str, pairs: Bitext) -> Alignment:
        direction = Direction(pairs, options)
        direction.train(lambda text: say(f"{name}: {text}"))
        return direction.links()

    if options.direction == "forward":
        return one("forward", bitext)
    if options.direction == "backward":
        return one("backward", bitext.swapped()).turned()
    forward, backward = one("forward", bitext), one("backward", bitext.swapped()).turned()
    combine = SYMMETRISE[options.symmetrise]
    return Alignment.pack(combine(forward[number], backward[number]) for number in range(len(bitext)))
