"""The page of the study of layers: one HTML file without any script, in the style of the other pages.

It is given text, tables and lines, and knows nothing of where they come from. All text is escaped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from regard.view.comparison import Chart
from regard.view.curves import Line, draw_chart, series
from regard.view.run import render_document, render_list
from regard.view.tables import Table
from regard.view.tokens import escaped, shown_text


class Titled(Protocol):
    """A table with its title and a note."""

    @property
    def title(self) -> str: ...
    @property
    def table(self) -> Table: ...
    @property
    def note(self) -> str: ...


@dataclass(frozen=True)
class Page:
    """Everything on the page."""

    title: str
    facts: Sequence[tuple[str, str]]
    advice: Sequence[str]
    tables: Sequence[Titled]
    costs: Sequence[Titled]
    remarks: Sequence[str]
    charts: Sequence[Chart]
    names: Sequence[str]  # of all layers: their order settles the colours


def write_page(path: Path, page: Page) -> None:
    """Write the page."""
    path.write_text(render_page(page), encoding="utf-8", errors="replace", newline="\n")


def render_page(page: Page) -> str:
    """The page as text."""
    first, *others = [_table(titled) for titled in page.tables]
    charts = "".join(_draw(chart, page.names) for chart in page.charts)
    facts = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in page.facts)
    parts = [
        f'<h1>{escaped(page.title)}</h1>\n<dl class="facts">{facts}</dl>',
        f"<section><h2>When which layer is the cheapest</h2>{render_list(page.advice, 'advice')}</section>",
        first,
        f'<section><h2>Curves</h2><div class="charts">{charts}</div></section>',
        *others,
        render_list(page.remarks),
        *(_table(titled) for titled in page.costs),
    ]
    return render_document(escaped(page.title), "run comparison", "layers", parts)


def _table(titled: Titled) -> str:
    note = render_list([titled.note]) if titled.note else ""
    return f"<section><h2>{escaped(titled.title)}</h2>{titled.table.to_html()}{note}</section>"


def _draw(chart: Chart, names: Sequence[str]) -> str:
    lines = [Line(shown_text(name), points, series(names.index(name))) for name, points in chart.lines.items()]
    return draw_chart(f"{chart.title}, {chart.y_name}", lines, chart.x_name, chart.logarithmic)
