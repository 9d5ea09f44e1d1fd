"""What a run wrote on its way (metrics.jsonl): its speed, its validations, and when a score was reached."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, ModelError
from regard.metrics import METRICS

LOSSES = ("loss", "perplexity")


@dataclass(frozen=True)
class Validation:
    """One look at the validation pairs on the way."""

    step: int
    seconds: float  # of training so far, without the time of validations
    values: Mapping[str, float]  # loss, perplexity, scores of decoded outputs


@dataclass(frozen=True)
class History:
    """The log of one run."""

    rates: Sequence[float]  # target tokens per second in each stretch of the log, without the time of validations
    validations: Sequence[Validation]

    @property
    def rate(self) -> float | None:
        """The median training rate."""
        return statistics.median(self.rates) if self.rates else None

    def best(self, measure: str) -> float | None:
        """The best value of a measure at any validation."""
        values = [each.values[measure] for each in self.validations if measure in each.values]
        return (max if is_higher_better(measure) else min)(values, default=None)

    def reached(self, measure: str, wanted: float) -> Validation | None:
        """The first validation that is at least as good as wanted."""
        for each in self.validations:
            value = each.values.get(measure)
            if value is not None and (value >= wanted if is_higher_better(measure) else value <= wanted):
                return each
        return None


@dataclass(frozen=True)
class Reach:
    """The validation score whose time is asked for."""

    measure: str
    value: float
    weakest: str = ""  # the row whose best it is; none: it was given


def is_rate(measure: str) -> bool:
    """Whether a measure is a share, which is told in per cent."""
    return measure in ("exact_match", "word_error", "wer", "cer")


def is_higher_better(measure: str) -> bool:
    """Whether more of a measure is better."""
    return measure not in LOSSES and METRICS[measure].higher_is_better


def read_history(directory: Path) -> History | None:
    """The log of the run in a directory; None where there is none."""
    path = directory / "metrics.jsonl"
    if not path.is_file():
        return None
    try:
        return _read([json.loads(line) for line in path.read_bytes().splitlines()])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: not the log of a run: {type(error).__name__}: {error}") from None


def _read(records: Sequence[dict[str, Any]]) -> History:
    rates, validations = [], []
    before = paused = validated = 0.0
    for record in records:
        if record["kind"] == "train":
            spent = record["seconds"] - before - paused
            before, paused = record["seconds"], 0.0
            if spent > 0:
                rates.append(record["tokens"] / spent)
        elif record["kind"] == "validation":
            paused += record["validation_seconds"]
            validated += record["validation_seconds"]
            values = {name: record[name] for name in LOSSES} | record["metrics"]
            finite = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
            validations.append(Validation(record["step"], record["seconds"] - validated, finite))
    return History(rates, validations)


def choose_reach(
    histories: Mapping[str, History],
    metrics: Sequence[str],
    given: tuple[str, float] | None,
    comparable: bool = True,
) -> Reach | None:
    """The score to be reached: the one given, or the best of the weakest row, so that every row has a time.

    Its measure is the first of the metrics that every run has validated by, or else the loss, where losses are
    comparable. A score of 0, which every row has at once, is none.
    """
    logs = {name: history for name, history in histories.items() if history.validations}
    if not logs:
        return None
    known = set[str].intersection(
        *({name for each in log.validations for name in each.values} for log in logs.values())
    )
    candidates = [*metrics, *sorted(known - set(LOSSES)), *(["loss"] if comparable else [])]
    if given:
        measure, value = given
        if measure and measure not in known:
            raise ConfigError(f"--reach: not every row has validated by '{measure}'; known: {', '.join(sorted(known))}")
        measure = measure or next((name for name in candidates if name in known), "loss")
        return Reach(measure, value / 100 if is_rate(measure) else value)
    for measure in candidates:
        bests = {name: best for name, log in logs.items() if (best := log.best(measure)) is not None}
        if measure in known and (not is_higher_better(measure) or min(bests.values()) > 0):
            weakest = (min if is_higher_better(measure) else max)(bests, key=lambda name: bests[name])
            return Reach(measure, bests[weakest], weakest)
    return None


def parse_reach(text: str) -> tuple[str, float]:
    """`25` or `loss=2.1` → measure ("": to be chosen) and value; rates are in per cent."""
    measure, equals, value = text.removesuffix("%").rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (equals and measure not in (*METRICS, *LOSSES)):
        known = ", ".join((*LOSSES, *METRICS))
        raise ConfigError(f"--reach {text}: expected a number, or a measure and a number as loss=2.1; known: {known}")
    return measure, number


def describe_history(history: History) -> dict[str, Any]:
    """The learning curve and the rate as plain values."""
    names = dict.fromkeys(name for each in history.validations for name in each.values)
    return {
        "target_tokens_per_second": history.rate,
        "curve": {
            "steps": [each.step for each in history.validations],
            "seconds": [each.seconds for each in history.validations],
            "values": {name: [each.values.get(name) for each in history.validations] for name in names},
        },
    }
