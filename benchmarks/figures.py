"""Figures of several rounds: their median and spread, and ratios between sides."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """Something that is measured."""

    name: str
    unit: str
    higher: bool  # is more better?


@dataclass(frozen=True)
class Summary:
    """What the rounds of one side say."""

    median: float
    spread: float  # (largest − smallest) / median
    rounds: int


def summarise(values: Sequence[float]) -> Summary:
    """Median and spread."""
    median = statistics.median(values)
    return Summary(median, (max(values) - min(values)) / median if median else 0.0, len(values))


def advantage(ours: float, theirs: float, higher: bool) -> float:
    """How many times better ours is: above 1 where it is faster or smaller."""
    above, below = (ours, theirs) if higher else (theirs, ours)
    return above / below if below else float("inf")


def best(medians: dict[str, float], higher: bool) -> str:
    """The side that does best."""
    return (max if higher else min)(medians, key=lambda name: medians[name])
