"""Alignments whose links do not depend on each other: IBM model 1, and model 2 along the diagonal.

Brown et al. 1993: every target token t is made by one source token s, or by NULL (s = 0):

    p(target | source) = Π_t Σ_s p(s | t) t(target_t | source_s)

Model 1 has p(s | t) = 1 / (S + 1): word order is nothing. The model 2 of Dyer, Chahuneau & Smith 2013 has one
number λ, the tension, for the whole corpus:

    p(0 | t) = p0,    p(s | t) = (1 - p0) exp(-λ h) / Z,    h = |s/S - t/T|

They share `expect` and `decode`. A posterior is `[T,B,S+1]`, as the emissions t(target_t | source_s) are.
"""

from typing import Protocol

import numpy as np


class Placement(Protocol):
    """Where links lie: what the training of an aligner asks of a model beside its lexicon."""

    def expect(self, emission: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, float]:
        """Posterior of every link [T,B,S+1] and log-likelihood of a chunk; counts for `update` are kept."""
        ...

    def decode(self, emission: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """[T,B] the source token of each target token on the best path, from 1; 0 is NULL."""
        ...

    def update(self) -> None:
        """New parameters from the counts, which start again at zero."""
        ...


class Uniform:
    """IBM model 1: any source token is as good as another."""

    def prior(self, emission: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """p(s | t), in a shape that goes with the emissions."""
        return np.full((1, 1, emission.shape[2]), 1 / emission.shape[2])

    def expect(self, emission: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, float]:
        prior = self.prior(emission, lengths)
        joint = emission * prior
        total = joint.sum(2, keepdims=True)
        inside = np.arange(len(emission))[:, None, None] < lengths[:, None]
        posterior = np.divide(joint, total, out=joint, where=inside)
        self.count(posterior, prior, lengths)
        return posterior, float(np.log(total[inside]).sum())

    def count(self, posterior: np.ndarray, prior: np.ndarray, lengths: np.ndarray) -> None:
        """There is nothing to learn."""

    def decode(self, emission: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return (emission * self.prior(emission, lengths)).argmax(2)

    def update(self) -> None:
        """There is nothing to learn."""


class Diagonal(Uniform):
    """IBM model 2 with one number: links lie near the diagonal."""

    LOWEST, HIGHEST = 0.1, 50.0  # of the tension

    def __init__(self, null: float, tension: float = 4.0) -> None:
        self.null, self.tension = null, tension
        self.slope = self.curvature = 0.0  # of the expected log-likelihood, by the tension

    def distance(self, emission: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """[T,B,S] how far every place is from the diagonal."""
        steps, _, width = emission.shape
        source = np.arange(1, width) / (width - 1)
        target = np.arange(1, steps + 1)[:, None] / lengths
        return np.abs(source - target[:, :, None])

    def prior(self, emission: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        weights = np.exp(-self.tension * self.distance(emission, lengths))
        weights *= (1 - self.null) / weights.sum(2, keepdims=True)
        null = np.full((*weights.shape[:2], 1), self.null)
        return np.concatenate([null, weights], axis=2)

    def count(self, posterior: np.ndarray, prior: np.ndarray, lengths: np.ndarray) -> None:
        """d/dλ of Σ posterior log p(s | t) is what the model expects of h less what is found; then its variance."""
        distance, found = self.distance(posterior, lengths), posterior[:, :, 1:]
        shares, mass = prior[:, :, 1:] / (1 - self.null), found.sum(2)
        mean = (shares * distance).sum(2)
        self.slope += float((mass * mean).sum() - (found * distance).sum())
        self.curvature += float((mass * ((shares * distance**2).sum(2) - mean**2)).sum())

    def update(self) -> None:
        """One step of Newton's method, at most to the half or the double."""
        if self.curvature > 0:
            fresh = self.tension + self.slope / self.curvature
            self.tension = min(max(fresh, self.tension / 2), self.tension * 2)
            self.tension = min(max(self.tension, self.LOWEST), self.HIGHEST)
        self.slope = self.curvature = 0.0
