"""Validation: how good the weights are, what that means for stopping, and which weights are kept at the end.

With a moving average on, the averaged weights are the ones looked at. Candidates for the finished model:
`best` (the weights of the best validation), `last`, `average` (the mean of the weights of the last n
validations) and `ema` (the moving average at the end).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.config import Train
from regard.training.checkpoint import Snapshots
from regard.training.state import Goal, State, Validation, number
from regard.training.update import VALIDATION, seed_generators
from regard.training.weights import MovingAverage, copied, lent, mean, model_tensors

Evaluate = Callable[[nn.Module, Callable[[], bool]], Validation]
Weights = dict[str, Tensor]


class Validator:
    """Looks at weights without touching the training, and keeps what is worth keeping."""

    def __init__(
        self,
        model: nn.Module,
        average: MovingAverage | None,
        evaluate: Evaluate,
        goal: Goal,
        options: Train,
        snapshots: Snapshots,
        seed: int,
    ) -> None:
        self._model = model
        self._average = average
        self._evaluate = evaluate
        self._goal = goal
        self._options = options
        self._snapshots = snapshots
        self._seed = seed

    def due(self, state: State) -> bool:
        """Is it time to validate?"""
        if state.step == 0 or state.validated_at == state.step:
            return False
        every = self._options.validate_every
        return state.batch == 0 if every == "epoch" else state.step % every == 0

    def validate(self, state: State, stop: Callable[[], bool]) -> tuple[Validation, bool]:
        """Look at the present weights and note the result in the state; True: better than all before."""
        weights = self._present()
        validation = self._look(weights, state.step, stop)
        value = self._goal.value(validation)
        improved = self._goal.better(value, state.best_value)
        if self._options.average:
            name = f"step-{state.step:08d}"
            self._snapshots.add(name, model_tensors(self._model))
            state.window = [*state.window, name][-self._options.average :]
        state.last = validation.record()
        state.validated_at = state.step
        tied = state.best is not None and value == state.best_value and validation.loss < number(state.best["loss"])
        if improved or tied:  # of equally good weights the more certain ones
            state.best, state.best_value, state.best_step = state.last, float(value), state.step
            state.best_weights = f"best-step-{state.step:08d}"
            self._snapshots.add(state.best_weights, weights)
        self._note_progress(state, improved)
        return validation, improved

    def candidates(self, state: State, stop: Callable[[], bool]) -> dict[str, Validation]:
        """The candidates for the finished model, each with its validation."""
        return {name: self._validation(name, state, stop) for name in self._names(state)}

    def weights(self, name: str, state: State) -> Weights:
        """The weights of a candidate, with memory of their own."""
        if name == "best":
            return self._snapshots.load(state.best_weights)
        if name == "average":
            return mean(self._snapshots.load(snapshot) for snapshot in state.window)
        return copied(self._present() if name == "ema" else model_tensors(self._model))

    def _names(self, state: State) -> list[str]:
        best = ["best"] if state.best else ["last"]  # no validation was finite
        if self._options.keep == "auto":
            average = ["average"] if len(state.window) > 1 else []
            return best + average + (["ema"] if self._average else [])
        return best if self._options.keep == "best" else [self._options.keep]

    def _validation(self, name: str, state: State, stop: Callable[[], bool]) -> Validation:
        if name == "best" and state.best:
            return Validation.from_record(state.best)
        if name == ("ema" if self._average else "last") and state.last:
            return Validation.from_record(state.last)
        return self._look(self.weights(name, state), state.step, stop)

    def _present(self) -> Weights:
        averages = self._average.tensors if self._average else {}
        return {**model_tensors(self._model), **averages}

    def _look(self, weights: Weights, step: int, stop: Callable[[], bool]) -> Validation:
        seed_generators(self._seed, step, next(self._model.parameters()).device, VALIDATION)
        self._model.eval()
        try:
            with torch.no_grad(), lent(self._model, weights):
                return self._evaluate(self._model, stop)
        finally:
            self._model.train()

    def _note_progress(self, state: State, improved: bool) -> None:
        """Count for early stopping, once the warm-up is over, and for the plateau schedule."""
        warming = state.step <= self._options.warmup
        state.without_progress = 0 if improved or warming else state.without_progress + 1
        state.plateau_wait = 0 if improved else state.plateau_wait + 1
        if self._options.schedule == "plateau" and state.plateau_wait >= max(1, self._options.plateau_patience):
            state.plateau_scale *= self._options.plateau_factor
            state.plateau_wait = 0
