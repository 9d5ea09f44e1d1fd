"""The page of the study of layers: one HTML file without any script, in the style of the other pages.

It is given text, tables and lines, and knows nothing of where they come from. All text is escaped.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from regard.view.comparison import Chart
from regard.view.curves import Line, draw_chart, series
from regard.view.run import render_document
from regard.view.tables import Table
from regard.view.tokens import shown_text


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
    facts = "".join(f"<div><dt>{_escape(name)}</dt><dd>{_escape(value)}</dd></div>" for name, value in page.facts)
    parts = [
        f'<h1>{_escape(page.title)}</h1>\n<dl class="facts">{facts}</dl>',
        f"<section><h2>When which layer is the cheapest</h2>{_list(page.advice, 'advice')}</section>",
        first,
        f'<section><h2>Curves</h2><div class="charts">{charts}</div></section>',
        *others,
        _list(page.remarks),
        *(_table(titled) for titled in page.costs),
    ]
    return render_document(_escape(page.title), "run comparison", "layers", parts)


def _escape(text: str) -> str:
    return html.escape(shown_text(text))


def _list(lines: Sequence[str], style: str = "notes") -> str:
    return f'<ul class="{style}">{"".join(f"<li>{_escape(line)}</li>" for line in lines)}</ul>'


def _table(titled: Titled) -> str:
    note = _list([titled.note]) if titled.note else ""
    return f"<section><h2>{_escape(titled.title)}</h2>{titled.table.to_html()}{note}</section>"


def _draw(chart: Chart, names: Sequence[str]) -> str:
    lines = [Line(shown_text(name), points, series(names.index(name))) for name, points in chart.lines.items()]
    return draw_chart(f"{chart.title}, {chart.y_name}", lines, chart.x_name, chart.logarithmic)
