"""The small records of a run: what is aimed at, what a validation found, where a run stands, how it ended.

A `State` goes through JSON unchanged (Python floats are written with all their digits), so that a resumed run
continues with exactly the numbers it had.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from regard.errors import ConfigError


class Cancelled(Exception):
    """Raised by `evaluate` when its `stop()` said True: the validation is done again after the resume."""


@dataclass(frozen=True)
class Validation:
    """What one look at the validation data found."""

    loss: float  # mean over the target tokens
    perplexity: float
    metrics: dict[str, float] = field(default_factory=dict)  # of really decoded outputs
    samples: list[dict[str, str]] = field(default_factory=list)  # source, reference, output

    def record(self) -> dict[str, Any]:
        """As JSON values; a number that is not finite becomes null."""
        return {
            "loss": _finite(self.loss),
            "perplexity": _finite(self.perplexity),
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "samples": [dict(sample) for sample in self.samples],
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Validation":
        """The reverse of `record`; null becomes NaN."""
        metrics = {name: number(value) for name, value in record["metrics"].items()}
        return cls(number(record["loss"]), number(record["perplexity"]), metrics, record["samples"])


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def number(value: float | None) -> float:
    """A number of a record; null becomes NaN."""
    return math.nan if value is None else value


@dataclass(frozen=True)
class Goal:
    """What "better" means: the name of a metric ("loss", "perplexity" or one of `Validation.metrics`)."""

    name: str
    higher: bool

    def value(self, validation: Validation) -> float:
        """The number that is compared."""
        known = {"loss": validation.loss, "perplexity": validation.perplexity, **validation.metrics}
        if self.name not in known:
            raise ConfigError(f"train.metric: validation gives no '{self.name}'; known: {', '.join(known)}")
        return known[self.name]

    def better(self, value: float, than: float | None) -> bool:
        """Is `value` progress? A number that is not finite never is."""
        if not math.isfinite(value):
            return False
        if than is None or not math.isfinite(than):
            return True
        return value > than if self.higher else value < than

    def choose(self, validations: dict[str, Validation]) -> str:
        """The name that validates best; a tie goes to the lower loss, then to the earlier name."""
        names = list(validations)
        chosen = names[0]
        for name in names[1:]:
            value, present = self.value(validations[name]), self.value(validations[chosen])
            tie = value == present and validations[name].loss < validations[chosen].loss
            if tie or self.better(value, present):
                chosen = name
        return chosen


@dataclass
class State:
    """Where a run stands, beside its tensors: everything a resumed run needs to go on exactly."""

    step: int = 0  # updates tried, the skipped ones included
    epoch: int = 0  # whole passes over the data
    batch: int = 0  # batches taken of the present pass
    validated_at: int = -1  # step of the last validation
    last: dict[str, Any] | None = None  # record of the last validation
    best: dict[str, Any] | None = None  # record of the best validation ...
    best_value: float | None = None  # ... the number compared ...
    best_step: int = 0  # ... its step ...
    best_weights: str = ""  # ... and the snapshot that holds its weights
    without_progress: int = 0  # validations since the best one
    plateau_scale: float = 1.0  # factor of the plateau schedule ...
    plateau_wait: int = 0  # ... and validations without progress since it changed
    skipped: int = 0  # non-finite updates, and how many of them came last in a row
    skipped_in_row: int = 0
    window: list[str] = field(default_factory=list)  # snapshots to be averaged, oldest first
    loss_sum: float = 0.0  # since the last line of the log: loss, target tokens, ...
    tokens: int = 0
    norm_sum: float = 0.0  # ... gradient norms, applied updates, ...
    updates: int = 0
    logged_seconds: float = 0.0  # ... and the time of that line
    seconds: float = 0.0  # over all sittings
    metrics_bytes: int = 0  # length of metrics.jsonl

    @property
    def pass_number(self) -> int:
        """The pass over the data the last update belongs to, counted from 1."""
        return self.epoch + (1 if self.batch else 0)

    def clear_window(self) -> None:
        """Start a new line of the log."""
        self.loss_sum, self.tokens, self.norm_sum, self.updates = 0.0, 0, 0.0, 0
        self.logged_seconds = self.seconds

    def snapshots(self) -> Iterable[str]:
        """The snapshots this state needs."""
        return [*self.window, *([self.best_weights] if self.best_weights else [])]

    def record(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Result:
    """How a run ended. The model itself holds `weights` too."""

    weights: dict[str, Tensor]  # a tied tensor is there once
    candidate: str  # best, last, average or ema
    validations: dict[str, Validation]  # of each candidate that was looked at
    reason: str  # max_steps, max_epochs, max_minutes or patience
    steps: int
    epochs: int  # whole passes over the data
    seconds: float  # over all sittings
    skipped: int  # non-finite updates
    best_step: int
