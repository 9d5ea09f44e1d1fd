"""From measurements to laws: exponents, crossings, and the law of the paper that a count follows.

A cost c · x^e is a straight line of slope e when both axes are logarithmic; the slope is found by least squares. A
count follows a law when their ratio is the same everywhere: of the laws that come into question the one whose ratios
differ least is taken.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Exponent:
    """How fast a cost grows."""

    exponent: float  # over all points
    last: float  # between the last two, where what is constant counts least


@dataclass(frozen=True)
class Law:
    """The law that a count follows, up to a constant."""

    name: str
    constant: float
    deviation: float  # the largest, as a share


def fit_exponent(points: Points) -> Exponent:
    """The slope of log y against log x."""
    if len({x for x, _ in points}) < 2:
        raise ValueError(f"an exponent needs two different sizes, found {len(points)} points")
    logarithms = [(math.log(x), math.log(y)) for x, y in sorted(points)]
    slope, _ = statistics.linear_regression(*zip(*logarithms, strict=True))
    (x, y), (last_x, last_y) = logarithms[-2:]
    return Exponent(slope, (last_y - y) / (last_x - x))


def crossings(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Where one cost overtakes the other: the sizes at which both are equal, between those measured."""
    common = sorted(set(first) & set(second))
    found = []
    for left, right in pairwise(common):
        before, after = (math.log(first[x] / second[x]) for x in (left, right))
        if before == 0 or before * after < 0:
            found.append(math.exp(math.log(left) + math.log(right / left) * before / (before - after)))
    return found


def laws(letter: str) -> dict[str, Callable[[float, float], float]]:
    """The laws of the paper's table in n, and in the parameter of that letter if there is one."""
    known: dict[str, Callable[[float, float], float]] = {"1": lambda n, p: 1.0, "n": lambda n, p: n}
    if letter:
        known[f"log_{letter} n"] = lambda n, p: math.log(n) / math.log(p)
        known[f"n/{letter}"] = lambda n, p: n / p
    else:
        known["log n"] = lambda n, p: math.log(n)
    return known


def find_law(counts: Sequence[tuple[int, int, int]], letter: str = "") -> Law:
    """The law behind (n, parameter, count)."""
    found = []
    for name, law in laws(letter).items():
        ratios = [count / law(n, parameter) for n, parameter, count in counts]
        constant = statistics.geometric_mean(ratios)
        found.append(Law(name, constant, max(abs(ratio / constant - 1) for ratio in ratios)))
    return min(found, key=lambda law: law.deviation)


def fit_line(counts: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Constant part and slope of a count against n."""
    slope, constant = statistics.linear_regression(*zip(*counts, strict=True))
    return constant, slope
