"""What a person sees of a training run, on stderr: a bar on a terminal, else a plain line now and then."""

import sys
import time
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from regard.training.state import Goal, Validation


class Progress:
    """Shows rate, loss, learning rate and time left; validations with samples; the estimate before it starts."""

    def __init__(self, quiet: bool = False, every: float = 15.0, stream: TextIO | None = None) -> None:
        self.quiet = quiet
        self.every = every  # seconds between two plain lines
        self._console = Console(file=stream or sys.stderr, highlight=False, markup=False, soft_wrap=True)
        self._bar: Bar | None = None
        self._task: Any = None
        self._steps: int | None = None
        self._what = "step"
        self._shown = self._since = time.monotonic()
        self._loss, self._tokens, self._first = 0.0, 0, 0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None

    def begin(self, step: int, steps: int | None, what: str = "step") -> None:
        """Training starts at `step` and ends at `steps` (None: nobody knows); other work has another `what`."""
        self._steps = steps
        self._what = what
        self._loss, self._tokens = 0.0, 0
        self._first = step
        self._shown = self._since = time.monotonic()
        if self._console.is_terminal and not self.quiet:
            columns = (SpinnerColumn(), TextColumn(what), MofNCompleteColumn(), BarColumn(30), TimeRemainingColumn())
            self._bar = Bar(
                *columns, TextColumn("{task.fields[note]}"), console=self._console, transient=True, refresh_per_second=4
            )
            self._task = self._bar.add_task("", total=steps, completed=step, note="")
            self._bar.start()

    def estimate(self, steps: int | None, seconds: float) -> None:
        """Tell how long the whole may take: `seconds` per update, `steps` updates at most."""
        if steps is None:
            self.say(f"about {seconds:.2g} s per update; no limit of updates is set")
        else:
            self.say(
                f"at most {steps} updates of about {seconds:.2g} s: {_duration(steps * seconds)} without validation"
            )

        self._restart(time.monotonic())

    def update(self, step: int, loss: float, tokens: int, rate: float) -> None:
        """One update is done; `loss` is the sum over its tokens."""
        self._loss += loss
        self._tokens += tokens
        now = time.monotonic()
        if self._due(now):
            speed = self._speed(now)
            note = f"loss {self._loss / max(1, self._tokens):.3f}  rate {rate:.2e}  {speed:,.0f} tokens/s"
            self._show(step, note, now)

    def advance(self, step: int, number: int) -> None:
        """So many more lines, or whatever is counted, are done."""
        self._tokens += number
        now = time.monotonic()
        if self._due(now):
            self._show(step, f"{self._speed(now):,.0f} {self._what}s/s", now)

    def _due(self, now: float) -> bool:
        return not self.quiet and now - self._shown >= (0.2 if self._bar else self.every)

    def _speed(self, now: float) -> float:
        return self._tokens / max(1e-9, now - self._since)

    def _show(self, step: int, note: str, now: float) -> None:
        if self._bar:
            self._bar.update(self._task, completed=step, note=note)
            self._shown = now
            if now - self._since > 10:
                self._restart(now)
        else:
            self._print(f"{self._what} {self._of(step)}  {note}{self._left(step, now)}")
            self._first = step
            self._restart(now)

    def validation(self, step: int, validation: Validation, goal: Goal, improved: bool) -> None:
        """Show what a validation found, with its samples."""
        numbers = {"loss": validation.loss, "perplexity": validation.perplexity, **validation.metrics}
        text = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        self.say(f"validation at step {self._of(step)}: {text}{f'  (best {goal.name} so far)' if improved else ''}")
        for sample in validation.samples:
            for name in ("source", "reference", "output"):
                self.say(f"    {name:>9}  {_printable(sample.get(name, ''))}")
        self._first = step
        self._restart(time.monotonic())  # the time of a validation is not that of updates

    def say(self, text: str) -> None:
        """A line for the user."""
        if not self.quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        """A warning; also shown when quiet."""
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        self._console.print(text)

    def _restart(self, now: float) -> None:
        self._shown = self._since = now
        self._loss, self._tokens = 0.0, 0

    def _of(self, step: int) -> str:
        return f"{step}/{self._steps}" if self._steps else str(step)

    def _left(self, step: int, now: float) -> str:
        if not self._steps or step <= self._first:
            return ""
        return f"  {_duration((self._steps - step) * (now - self._since) / (step - self._first))} left"


def _duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _printable(text: str) -> str:
    """Text that cannot move a terminal's cursor or change its colours."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
