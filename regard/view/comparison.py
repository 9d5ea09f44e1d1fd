"""The page of a comparison: one HTML file without any script, in the style of the other pages. All text is escaped.

It is given text and figures and knows nothing of where they come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.view.curves import Line, Points, draw_chart, series
from regard.view.heat import draw_heat
from regard.view.run import render_document, render_list
from regard.view.tables import Table
from regard.view.tokens import escaped, shown_text


@dataclass(frozen=True)
class Chart:
    """Lines of several models; a model always has the colour of its place among all."""

    title: str
    x_name: str
    y_name: str
    lines: Mapping[str, Points]
    logarithmic: bool = False  # both axes: a power is a straight line


@dataclass(frozen=True)
class Look:
    """What one model looks at in the chosen sentence, or why there is nothing to see."""

    name: str
    text: str  # its output
    caption: str  # which head; or why there is none
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    weights: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class Page:
    """Everything on the page."""

    title: str
    table: Table
    notes: Sequence[str]
    verdict: str
    fairness: Sequence[tuple[str, str, bool]]  # what was asked, the answer, whether it is a difference
    settings: Table | None
    charts: Sequence[Chart]
    names: Sequence[str]  # of all rows, in their order: it settles the colours
    lengths: Table | None
    sentence: str
    looks: Sequence[Look]


def write_comparison(path: Path, page: Page) -> None:
    """Write the page."""
    path.write_text(render_comparison(page), encoding="utf-8", errors="replace", newline="\n")


def render_comparison(page: Page) -> str:
    """The page as text."""
    charts = "".join(_draw(chart, page.names) for chart in page.charts)
    strongest = strongest_weight(page.looks)
    looks = "".join(_look(look, strongest) for look in page.looks)
    sentence = f'<p class="source" dir="auto">{escaped(page.sentence)}</p>'
    parts = [
        f"<h1>{escaped(page.title)}</h1>",
        _section("All models", page.table.to_html() + render_list(page.notes)),
        _section("Fair?", f'<p class="verdict">{escaped(page.verdict)}</p>{_fairness(page.fairness)}'),
        _section("Each model's own settings", page.settings.to_html() if page.settings else ""),
        _section("Curves", f'<div class="charts">{charts}</div>' if charts else ""),
        _section("By source length", page.lengths.to_html() if page.lengths else ""),
        _section("Attention", f'{sentence}<div class="maps">{looks}</div>' if looks else ""),
    ]
    return render_document(escaped(page.title), "run comparison", "comparison", parts)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>" if content else ""


def _fairness(lines: Sequence[tuple[str, str, bool]]) -> str:
    style = {True: ' class="differs"', False: ""}
    rows = [
        f'<tr{style[differs]}><th scope="row">{escaped(what)}</th><td class="words">{escaped(answer)}</td></tr>'
        for what, answer, differs in lines
    ]
    return f'<div class="wide"><table class="figures"><tbody>{"".join(rows)}</tbody></table></div>'


def _draw(chart: Chart, names: Sequence[str]) -> str:
    lines = [Line(shown_text(name), points, series(names.index(name))) for name, points in chart.lines.items()]
    return draw_chart(f"{chart.y_name} {chart.title}", lines, chart.x_name)


def strongest_weight(looks: Sequence[Look]) -> float:
    """The largest weight of all maps: the full colour of each, so that they can be compared."""
    return max((weight for look in looks for line in look.weights for weight in line), default=0.0)


def _look(look: Look, strongest: float) -> str:
    drawn = (
        draw_heat(look.weights, look.rows, look.columns, f"attention of {shown_text(look.name)}", strongest)
        if look.weights
        else ""
    )
    caption = f'<p class="none">{escaped(look.caption)}</p>'
    said = f'<p class="said" dir="auto">{escaped(look.text) or "–"}</p>'
    return f'<figure class="map"><h3>{escaped(look.name)}</h3>{said}{drawn}{caption}</figure>'
