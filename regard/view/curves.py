"""Curves as inline SVG, drawn here so that a run report needs no script: grid, ticks, and a `<title>` per point."""

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 30
MOST_POINTS = 300  # a longer line is averaged in equal stretches
TOUCH = 5  # radius in which the pointer finds a point
LETTER = 6  # width of a letter of a label
MOST_MARKS = 8  # values of an axis that are all named
COLOURS = 9  # of the lines of several models, in page.css


@dataclass(frozen=True)
class Line:
    """A named line of (x, y) points; `first` is the colour of training, `second` that of validation.

    The lines of several models have the styles of `series`.
    """

    name: str
    points: Points
    style: str = "first"


def series(number: int) -> str:
    """The style of the line of one model among several: colours, and dashes when those are used up."""
    return f"series-{number % COLOURS + 1}" + (" dashed" if number // COLOURS % 2 else "")


def draw_chart(title: str, lines: Sequence[Line], x_name: str = "step", logarithmic: bool = False) -> str:
    """A figure with its lines; nothing to draw gives an empty string, and so does what has no logarithm."""
    drawn = [Line(line.name, thin(_finite(line.points, logarithmic)), line.style) for line in lines]
    drawn = [line for line in drawn if line.points]
    if not drawn:
        return ""
    x, y = ([point[axis] for line in drawn for point in line.points] for axis in (0, 1))
    if logarithmic:
        frame = _Frame(own_marks(x) or powers(*_span(x), 2), powers(*_span(y), 10), math.log)
    else:
        frame = _Frame(ticks(*_span(x), whole=True), ticks(*_span(y)), float)
    key = "".join(f'<span><i class="{line.style}"></i>{html.escape(line.name)}</span>' for line in drawn)
    label = html.escape(f"{title}: {', '.join(line.name for line in drawn)}")
    return (
        f'<figure class="chart"><h3>{html.escape(title)}</h3>'
        + (f'<p class="key">{key}</p>' if len(lines) > 1 else "")
        + f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{frame.grid(x_name)}'
        + "".join(_draw_line(frame, line, x_name) for line in drawn)
        + "</svg></figure>"
    )


class _Frame:
    """From values to places in the drawing."""

    def __init__(self, x_ticks: Sequence[float], y_ticks: Sequence[float], scale: Callable[[float], float]) -> None:
        self.x_ticks, self.y_ticks, self._scale = x_ticks, y_ticks, scale

    def x(self, value: float) -> float:
        return round(LEFT + self._share(value, self.x_ticks) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - self._share(value, self.y_ticks) * (HEIGHT - TOP - BOTTOM), 1)

    def _share(self, value: float, marks: Sequence[float]) -> float:
        first, last = self._scale(marks[0]), self._scale(marks[-1])
        return (self._scale(value) - first) / (last - first)

    def grid(self, x_name: str) -> str:
        parts = []
        for value in self.y_ticks:
            y = self.y(value)
            parts.append(f'<line class="grid-line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
            parts.append(f'<text x="{LEFT - 7}" y="{y + 4}" text-anchor="end">{number(value)}</text>')
        free = self.x(self.x_ticks[-1]) - LETTER * len(
            f"{x_name} {number(self.x_ticks[-1])} "
        )  # left of the last label
        for place, value in enumerate(self.x_ticks):
            last = place == len(self.x_ticks) - 1
            name = f"{html.escape(x_name)} {number(value)}" if last else number(value)
            anchor = "end" if last else "start" if place == 0 else "middle"
            if not last and self.x(value) + LETTER * len(name) / 2 > free:
                continue
            parts.append(f'<text x="{self.x(value)}" y="{HEIGHT - 9}" text-anchor="{anchor}">{name}</text>')
        return "".join(parts)


def _draw_line(frame: _Frame, line: Line, x_name: str) -> str:
    places = [(frame.x(x), frame.y(y)) for x, y in line.points]
    path = " ".join(f"{x},{y}" for x, y in places)
    few = len(places) <= 40
    dots = []
    for (x, y), (left, top) in zip(line.points, places, strict=True):
        text = html.escape(f"{line.name}: {number(y)} at {x_name} {number(x)}")
        if few:
            dots.append(f'<circle class="dot {line.style}" cx="{left}" cy="{top}" r="3.2"/>')
        dots.append(f'<circle class="touch" cx="{left}" cy="{top}" r="{TOUCH}"><title>{text}</title></circle>')
    return f'<polyline class="line {line.style}" points="{path}"/>{"".join(dots)}'


def _finite(points: Points, positive: bool = False) -> list[tuple[float, float]]:
    finite = [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    return [(x, y) for x, y in finite if min(x, y) > 0] if positive else finite


def thin(points: Points, most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points, each the mean of an equal stretch of the line."""
    if len(points) <= most:
        return list(points)
    edges = [place * len(points) // most for place in range(most + 1)]
    stretches = [points[start:end] for start, end in pairwise(edges)]
    return [(stretch[-1][0], sum(y for _, y in stretch) / len(stretch)) for stretch in stretches]


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high > low:
        return low, high
    return (low - abs(low) * 0.1, high + abs(high) * 0.1) if low else (0.0, 1.0)


def ticks(low: float, high: float, count: int = 5, whole: bool = False) -> list[float]:
    """Round numbers that enclose an interval."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    step = max(1.0, math.ceil(step)) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [place * step for place in range(first, max(last, first + 1) + 1)]


def own_marks(values: Sequence[float]) -> list[float]:
    """The values themselves, where they are few: sizes that were measured; else none."""
    found = sorted(set(values))
    return found if 2 <= len(found) <= MOST_MARKS else []


def powers(low: float, high: float, base: int) -> list[float]:
    """Powers of a base that enclose an interval."""
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    return [float(base) ** place for place in range(first, max(last, first + 1) + 1)]


def number(value: float) -> str:
    """A number as short as it can be read: 12,000; 0.35; 1.5e-5."""
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e9):
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}".replace("-", "−")
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"
    return text.replace("-", "−")
