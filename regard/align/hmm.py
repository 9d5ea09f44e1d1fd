"""The HMM of word alignment: the source token of a target token depends on that of the one before.

Vogel, Ney & Tillmann 1996. The path s_1 … s_T through the source has

    p(target, path | source) = Π_t p(s_t | s_{t-1}) t(target_t | source_{s_t})  ·  p(S + 1 | s_T)
    p(s | s') = (1 - p0) ((1 - α) c(s - s') / Σ_{s''=1..S+1} c(s'' - s')  +  α / (S + 1))

with one weight c(d) for each width of a jump, whatever the length of the sentence, and a share α for any place at
all (Och & Ney 2003). A path begins before the first token, at 0, and ends behind the last one, at S + 1. With
probability p0 a target token comes from NULL and the path stays where it is: Och & Ney's second set of states, one
NULL for each place, folded into the first:

    forward_t(s) = Σ_s' forward_{t-1}(s') p(s | s') t(f_t | e_s)  +  p0 t(f_t | NULL) forward_{t-1}(s)

Since c is divided by another sum at every place, counting jumps would not be the best new c; the M-step is that of
Hunter 2004 for such ratios, c(d) ← N(d) / Σ_{s',S: d possible} M(s', S) / Z(s', S), which never lowers the likelihood.
"""

import numpy as np

STEPS = 20  # of the M-step's own iteration
SMALLEST = 1e-12  # of a weight: no jump is impossible


class Jumps:
    """Weights of jumps, and the sums over paths that they are learned from."""

    def __init__(self, longest: int, null: float, smoothing: float) -> None:
        self.reach, self.null, self.smoothing = longest + 1, null, smoothing
        self.weights = np.full(2 * self.reach + 1, 1 / (2 * self.reach + 1))  # c(d), d = -reach … reach
        self._clear()

    def _clear(self) -> None:
        self.jumps = np.zeros(2 * self.reach + 1)  # N(d): expected jumps of each width
        self.leaving = np.zeros((self.reach, self.reach))  # M(S, s'): expected jumps from each place

    def _table(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For S tokens, all [S+1,S+2] from place to place: p(s | s'), the part of it that c has, and where in c."""
        where = np.arange(size + 2) - np.arange(size + 1)[:, None] + self.reach
        learned = self.weights[where]
        learned[:, 0] = 0  # nobody goes back to before the beginning
        learned *= (1 - self.smoothing) / learned.sum(1, keepdims=True)
        uniform = np.full_like(learned, self.smoothing / (size + 1))
        uniform[:, 0] = 0
        total = learned + uniform
        share = np.divide(learned, total, out=np.zeros_like(total), where=total > 0)
        return (1 - self.null) * total, share, where

    def expect(self, emission: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, float]:
        """Forward–backward, scaled at each step so that no sentence is too long."""
        steps, rows, width = emission.shape
        table, share, where = self._table(width - 1)
        move, leave = table[:, :-1], table[:, -1]
        active = (lengths > np.arange(steps)[:, None]).sum(1)
        before = np.zeros((steps + 1, rows, width))  # forward, scaled
        before[0, :, 0] = 1
        posterior, norm = np.zeros_like(emission), np.ones((steps, rows, 1))
        for step, count in enumerate(active):
            here, came = emission[step, :count], before[step, :count]
            posterior[step, :count] = came @ move
            reached = posterior[step, :count] * here + self.null * here[:, :1] * came
            norm[step, :count] = reached.sum(1, keepdims=True)
            before[step + 1, :count] = reached / norm[step, :count]
        ends = before[lengths, np.arange(rows)] * leave
        total = ends.sum(1, keepdims=True)
        after, taken = leave / total, np.zeros((width, width + 1))
        taken[:, -1] = (ends / total).sum(0)
        for step, count in reversed(list(enumerate(active))):
            here, came, ahead = emission[step, :count], before[step, :count], after[:count]
            none = self.null * here[:, :1] / norm[step, :count]
            onward = here * ahead / norm[step, :count]
            taken[:, :-1] += came.T @ onward * move
            posterior[step, :count] *= onward
            posterior[step, :count, 0] = none[:, 0] * (came * ahead).sum(1)
            after[:count] = onward @ move.T + none * ahead
        taken *= share
        np.add.at(self.jumps, where, taken)
        self.leaving[width - 1, :width] += taken.sum(1)
        return posterior, float(np.log(norm).sum() + np.log(total).sum())

    def decode(self, emission: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The best path (Viterbi)."""
        steps, rows, width = emission.shape
        with np.errstate(divide="ignore"):  # the logarithm of 0 is as small as it should be
            table, emission, null = np.log(self._table(width - 1)[0]), np.log(emission), np.log(self.null)
        move, leave = table[:, :-1], table[:, -1]
        active = (lengths > np.arange(steps)[:, None]).sum(1)
        best, back = np.full((rows, width), -np.inf), np.zeros((steps, rows, width), dtype=np.int32)
        best[:, 0] = 0
        for step, count in enumerate(active):
            here, came = emission[step, :count], best[:count]
            ways = came[:, :, None] + move
            origin = ways.argmax(1)
            moved = np.take_along_axis(ways, origin[:, None], 1)[:, 0] + here
            stayed = came + null + here[:, :1]
            back[step, :count] = np.where(moved >= stayed, origin, -1)
            best[:count] = np.maximum(moved, stayed)
        path, place = np.zeros((steps, rows), dtype=np.int64), (best + leave).argmax(1)
        for step, count in reversed(list(enumerate(active))):
            origin = back[step, np.arange(count), place[:count]]
            path[step, :count] = np.where(origin < 0, 0, place[:count])
            place[:count] = np.where(origin < 0, place[:count], origin)
        return path

    def update(self) -> None:
        """New weights from the expected jumps."""
        size, origin = np.nonzero(self.leaving)
        mass = self.leaving[size, origin]
        first, last = self.reach + 1 - origin, self.reach + size + 1 - origin  # the widths possible from there
        for _ in range(STEPS if len(mass) else 0):
            sums = np.concatenate([[0.0], np.cumsum(self.weights)])
            ratio = mass / np.maximum(sums[last + 1] - sums[first], SMALLEST)
            change = np.zeros(len(self.weights) + 1)
            np.add.at(change, first, ratio)
            np.add.at(change, last + 1, -ratio)
            below = np.cumsum(change[:-1])
            fresh = np.divide(self.jumps, below, out=np.zeros_like(below), where=self.jumps > 0)
            self.weights = np.maximum(fresh / fresh.sum(), SMALLEST)
        self._clear()
