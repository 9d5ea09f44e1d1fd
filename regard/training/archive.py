"""From a run in memory to its checkpoint and back."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ModelError, RegardError
from regard.training.checkpoint import Checkpoints
from regard.training.journal import Journal
from regard.training.optim import load_optimiser, optimiser_tensors
from regard.training.progress import Progress
from regard.training.state import State
from regard.training.weights import MovingAverage, load_model, model_tensors


class Archive:
    """Saves and restores weights, optimiser, moving average and state of a run."""

    def __init__(
        self,
        directory: Path,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        average: MovingAverage | None,
        progress: Progress,
    ) -> None:
        self.checkpoints = Checkpoints(directory, progress.warn)
        self.saved_time = time.monotonic()
        self._model = model
        self._optimiser = optimiser
        self._average = average
        self._progress = progress
        self._saved: tuple[int, int] | None = None  # step and validation of the last checkpoint

    def restore(self) -> State:
        """Load the last checkpoint into model, optimiser and average; a new state if there is none."""
        self.saved_time = time.monotonic()
        found = self.checkpoints.latest()
        if found is None:
            return State()
        try:
            machine = found.state.pop("machine")
            state = State(**found.state)
        except (KeyError, TypeError) as error:
            raise ModelError(f"{found.path / 'state.json'}: written by another version: {error}") from None
        load_model(self._model, found.tensors["model"])
        load_optimiser(self._optimiser, self._model, found.tensors["optimiser"])
        if self._average:
            self._average.load(found.tensors.get("ema") or self._average.own)
        self._saved = (state.step, state.validated_at)
        self._progress.say(f"going on from step {state.step} ({found.path})")
        self._compare(machine)
        return state

    def save(self, state: State, journal: Journal, final: bool = False) -> None:
        """Write a checkpoint unless there is one of this moment. A full disk is a warning, or an error when `final`."""
        if self._saved == (state.step, state.validated_at):
            return
        snapshots = self.checkpoints.snapshots
        snapshots.keep_only(state.snapshots())
        tensors = self._tensors()
        needed = self.checkpoints.size(tensors)
        try:
            state.metrics_bytes = journal.sync()
            self.checkpoints.save(state.step, tensors, {**state.record(), "machine": _machine(self._model)})
            self._saved = (state.step, state.validated_at)
        except OSError as error:
            message = f"{self.checkpoints.directory}: the state at step {state.step} could not be saved: "
            message += f"{error.strerror or error} ({needed} bytes are needed)"
            if final:
                raise RegardError(message) from error
            self._progress.warn(f"{message}; training goes on, the checkpoint before stays valid")
        self.saved_time = time.monotonic()

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        tensors = {
            "model": model_tensors(self._model),
            "optimiser": optimiser_tensors(self._optimiser, self._model),
        }
        return {**tensors, "ema": self._average.tensors} if self._average else tensors

    def _compare(self, machine: dict[str, Any]) -> None:
        present = _machine(self._model)
        if changed := [
            f"{name}: {machine.get(name)}, now {present[name]}"
            for name in present
            if machine.get(name) != present[name]
        ]:
            self._progress.warn(f"results are only bit-identical on the same set-up, but {'; '.join(changed)}")


def _machine(model: nn.Module) -> dict[str, Any]:
    """What the last bits of a result depend on."""
    device = next(model.parameters()).device
    return {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": device.type}
