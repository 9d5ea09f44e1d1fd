"""The training loop of all models: updates, validation, early stopping, averaging, checkpoints, exact resume.

It knows no text, search, task or model: an objective gives losses, a loader gives batches as a pure function of
(seed, epoch), and `evaluate` says how good the weights are. What happens after an update depends on the `State`
alone, so that a run killed at any moment and started again ends with bit-identical weights (same machine, same
threads). Only `max_minutes` ends a run at a moment that cannot be repeated.
"""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from signal import SIGINT
from typing import Any, Protocol

from regard.config import Train
from regard.data.batch import Batch
from regard.errors import DataError, Diverged, Interrupted, Stopped
from regard.memory import give_back
from regard.training.archive import Archive
from regard.training.journal import Board, Journal
from regard.training.progress import Progress
from regard.training.signals import Signals
from regard.training.state import Cancelled, Goal, Result, State, Validation
from regard.training.storage import Lock
from regard.training.update import Objective, Outcome, Updater
from regard.training.validation import Evaluate, Validator
from regard.training.weights import MovingAverage, load_model

__all__ = ["Cancelled", "Evaluate", "Goal", "Loader", "Objective", "Progress", "Result", "Trainer", "Validation"]


class Loader(Protocol):
    """Where batches come from; their order is a pure function of (seed, epoch)."""

    def count(self, epoch: int) -> int:
        """Batches in a pass over the data."""
        ...

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of a pass, from number `start` on."""
        ...


class Trainer:
    """One run in one directory; if there is a checkpoint, `run` goes on from it."""

    def __init__(
        self,
        objective: Objective,
        loader: Loader,
        evaluate: Evaluate,
        goal: Goal,
        options: Train,
        directory: Path,
        *,
        seed: int,
        width: int,  # d_model, for the schedule of the paper
        progress: Progress | None = None,
        resume_hint: str = "the same command goes on from there",
    ) -> None:
        self.model = objective.model
        self.loader = loader
        self.goal = goal
        self.options = options
        self.directory = directory
        self.progress = progress or Progress(quiet=True)
        self.resume_hint = resume_hint
        self.state = State()
        self.signals = Signals()
        self.updater = Updater(objective, options, width, seed)
        self.average = MovingAverage(self.model, options.ema) if options.ema else None
        self.archive = Archive(directory, self.model, self.updater.optimiser, self.average, self.progress)
        snapshots = self.archive.checkpoints.snapshots
        self.validator = Validator(self.model, self.average, evaluate, goal, options, snapshots, seed)
        self._estimated = False
        self._unread: tuple[Outcome, int] | None = None  # the last update, and the pass it belongs to

    def run(self) -> Result:
        """Train to the end.

        Raises Stopped (SIGTERM) or Interrupted (Ctrl-C) after saving, Diverged, or RegardError when the end of
        the run cannot be saved.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.enter_context(Lock(self.directory))
            stack.enter_context(self.signals)
            stack.enter_context(self.progress)
            self._open(stack)
            self.model.train()
            self._attend()
            while not (reason := self._reason()):
                self._pass()
            return self._finish(reason)

    def _open(self, stack: ExitStack) -> None:
        """Restore the state and open the log where the state says."""
        self.state = self.archive.restore()
        self._began = time.monotonic() - self.state.seconds
        self.journal = Journal(self.directory / "metrics.jsonl", self.state.metrics_bytes, self.progress.warn)
        stack.callback(self.journal.close)
        self.board = Board(self.directory / "tensorboard", self.state.step) if self.options.tensorboard else None
        if self.board:
            stack.callback(self.board.close)
        self.progress.begin(self.state.step, self._steps())

    def _pass(self) -> None:
        """Train to the end of the present pass over the data, or until there is a reason to stop."""
        epoch = self.state.epoch
        count = self.loader.count(epoch)
        if count == 0:
            raise DataError("there is nothing to train on: no batch in the training data")
        if self.state.batch >= count:
            raise DataError(
                f"pass {epoch} has {count} batches, but {self.state.batch} were taken: other data than before"
            )
        batches = self.loader.batches(epoch, start=self.state.batch)
        try:
            stream = self._estimate(batches)
            while self.state.epoch == epoch and not self._reason():
                wanted = min(self.options.accumulate, count - self.state.batch)
                group = list(islice(stream, wanted))
                if len(group) < wanted:
                    raise DataError(f"the loader ended early: pass {epoch} has {count} batches by its own count")
                self._step(group, count)
                self._attend()
        finally:
            if close := getattr(batches, "close", None):
                close()

    def _step(self, group: list[Batch], count: int) -> None:
        """One update, and its place in the state and the log."""
        state = self.state
        state.step += 1
        outcome = self.updater.update(group, state.step, state.plateau_scale)
        self._note()
        self._unread = outcome, state.epoch + 1
        state.batch += len(group)
        if state.batch == count:
            state.epoch, state.batch = state.epoch + 1, 0
        if self.average:
            self.average.update(state.step)
        if state.step % self.options.log_every == 0:
            self._note()
            self._log_training(outcome.rate)

    def _note(self) -> None:
        """Read what the last update did, when the next one is under way or the state is needed: nobody waits for it."""
        if self._unread is None:
            return
        (outcome, epoch), self._unread = self._unread, None
        loss, norm = outcome.read()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._skip(outcome, epoch, f"loss {loss:.4g}, gradient norm {norm:.4g}")
            return
        state = self.state
        state.skipped_in_row = 0
        state.loss_sum += loss
        state.tokens += outcome.tokens
        state.norm_sum += norm
        state.updates += 1
        self.progress.update(outcome.step, loss, outcome.tokens, outcome.rate)

    def _skip(self, outcome: Outcome, epoch: int, found: str) -> None:
        """The loss or gradient was not finite: count it, tell it, give up after too many in a row."""
        state = self.state
        state.skipped += 1
        state.skipped_in_row += 1
        examples = [int(number) for batch in outcome.batches if batch.index is not None for number in batch.index]
        facts = {"found": found, "rate": outcome.rate, "in_row": state.skipped_in_row, "examples": examples}
        self._log("skipped", step=outcome.step, epoch=epoch, **facts)
        self.progress.warn(f"update {outcome.step} is skipped, it is not finite: {found}")
        if state.skipped_in_row > self.options.bad_steps:
            raise Diverged(
                f"training diverged: {state.skipped_in_row} updates in a row up to step {outcome.step} are not finite "
                f"({found}); a lower train.rate, a longer train.warmup or a smaller train.clip may help"
            )

    def _attend(self) -> None:
        """Between two updates: a signal, a validation, a checkpoint, memory that is not needed."""
        self._stop_if_wanted()
        give_back()
        if self.validator.due(self.state):
            self._validate()
            self._save()
        elif time.monotonic() - self.archive.saved_time >= self.options.checkpoint_minutes * 60:
            self._save()
        self._stop_if_wanted()

    def _validate(self) -> None:
        self._note()
        start = time.monotonic()
        try:
            validation, improved = self.validator.validate(self.state, self.signals.wanted)
        except Cancelled:
            self._stop_if_wanted()
            raise
        seconds = time.monotonic() - start
        self._log("validation", **validation.record(), best=improved, validation_seconds=seconds)
        self.progress.validation(self.state.step, validation, self.goal, improved)

    def _finish(self, reason: str) -> Result:
        """Save, choose the weights to keep, load them into the model."""
        state = self.state
        if state.validated_at != state.step:
            self._validate()
        self._save(final=True)
        try:
            validations = self.validator.candidates(state, self.signals.wanted)
        except Cancelled:
            self._stop_if_wanted()
            raise
        chosen = self.goal.choose(validations)
        weights = self.validator.weights(chosen, state)
        values = {name: self.goal.value(validation) for name, validation in validations.items()}
        self.progress.say(
            f"finished at step {state.step} ({reason}); kept: {chosen}; {self.goal.name}: "
            + ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        )
        records = {name: validation.record() for name, validation in validations.items()}
        for record in records.values():
            del record["samples"]
        self._log("end", reason=reason, candidate=chosen, validations=records, skipped=state.skipped)
        self._stop_if_wanted()
        load_model(self.model, weights)
        self.model.eval()
        counts = {"steps": state.step, "epochs": state.epoch, "skipped": state.skipped, "best_step": state.best_step}
        return Result(weights, chosen, validations, reason, seconds=self._seconds(), **counts)

    def _reason(self) -> str:
        """Why training is over, if it is."""
        options, state = self.options, self.state
        if options.max_steps and state.step >= options.max_steps:
            return "max_steps"
        if options.max_epochs and state.epoch >= options.max_epochs:
            return "max_epochs"
        if options.patience and state.without_progress >= options.patience:
            return "patience"
        if options.max_minutes and self._seconds() >= options.max_minutes * 60:
            return "max_minutes"
        return ""

    def _stop_if_wanted(self) -> None:
        if not self.signals.wanted():
            return
        self._save(final=True)
        kind = Interrupted if self.signals.received is SIGINT else Stopped
        raise kind(f"stopped and saved at step {self.state.step} in {self.directory}; {self.resume_hint}")

    def _save(self, final: bool = False) -> None:
        self._note()
        give_back()  # a checkpoint is put together in memory
        self._seconds()
        self.archive.save(self.state, self.journal, final)

    def _log_training(self, rate: float) -> None:
        state = self.state
        seconds = max(1e-9, self._seconds() - state.logged_seconds)
        if state.updates:
            numbers = {"loss": state.loss_sum / max(1, state.tokens), "gradient_norm": state.norm_sum / state.updates}
            speed = state.tokens / seconds
            self._log("train", **numbers, rate=rate, tokens=state.tokens, tokens_per_second=speed)
        state.clear_window()

    def _log(self, kind: str, **values: Any) -> None:
        place = {"kind": kind, "step": self.state.step, "epoch": self.state.pass_number}
        record = {**place, **values, "seconds": self._seconds()}
        self.journal.write(record)
        if self.board:
            self.board.write(record)

    def _seconds(self) -> float:
        """Time of this run over all sittings, validation included."""
        self.state.seconds = time.monotonic() - self._began
        return self.state.seconds

    def _steps(self) -> int | None:
        """The most updates this run can have in all, if there is a limit."""
        options = self.options
        limits = [options.max_steps] if options.max_steps else []
        if options.max_epochs:
            limits.append(options.max_epochs * -(-self.loader.count(0) // options.accumulate))
        return min(limits, default=None)

    def _estimate(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Before the first update, tell how long the run may take; the batches looked at come again."""
        if self._estimated:
            return batches
        self._estimated = True
        first = list(islice(batches, 2))
        if first:
            seconds = self.updater.time_update(first) * self.options.accumulate
            steps = self._steps()
            self.progress.estimate(None if steps is None else steps - self.state.step, seconds)
        return chain(first, batches)
