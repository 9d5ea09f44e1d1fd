"""A table of text in three forms: aligned for the terminal, Markdown, HTML."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from regard.view.tokens import escaped, shown_text

NARROW = 11  # cells a head may take in any case


@dataclass(frozen=True)
class Table:
    """Heads and rows of cells; the first cell of a row is its name."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: frozenset[int] = frozenset()  # columns of words, which begin at the left; figures end at the right

    def to_text(self) -> str:
        """Columns aligned by spaces."""
        cells = [[shown_text(cell) for cell in row] for row in self.rows]
        lines = [*_wrapped(self.heads, cells), *cells]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(self._fill(place, *pair) for place, pair in enumerate(zip(line, widths, strict=True))).rstrip()
            for line in lines
        )

    def _fill(self, place: int, cell: str, width: int) -> str:
        space = " " * (width - cell_len(cell))
        return cell + space if place in self.words or place == 0 else space + cell

    def to_markdown(self) -> str:
        """A table as GitHub reads it."""
        marks = ["---" if place in self.words or place == 0 else "--:" for place in range(len(self.heads))]
        lines = [[_escape_markdown(cell) for cell in line] for line in (self.heads, *self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], marks, *lines[1:]))

    def to_html(self) -> str:
        """A table element; all text is escaped."""
        heads = "".join(
            f'<th scope="col"{self._style(place)}>{escaped(head)}</th>' for place, head in enumerate(self.heads)
        )
        rows = []
        for name, *cells in self.rows:
            others = "".join(f"<td{self._style(place)}>{escaped(cell)}</td>" for place, cell in enumerate(cells, 1))
            rows.append(f'<tr><th scope="row">{escaped(name)}</th>{others}</tr>')
        inner = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
        return f'<div class="wide"><table class="figures">{inner}</table></div>'

    def _style(self, place: int) -> str:
        return ' class="words"' if place in self.words or place == 0 else ""


def _wrapped(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Heads on as many lines as it takes to be hardly wider than their columns, ending on the last."""
    columns = list(zip(*rows, strict=True)) or [()] * len(heads)
    parts = []
    for head, column in zip(heads, columns, strict=True):
        width = max([NARROW, *map(cell_len, column)])
        parts.append(textwrap.wrap(shown_text(head), width, break_long_words=False) or [""])
    height = max(map(len, parts))
    for level in range(height):
        yield [part[level - height] if height - level <= len(part) else "" for part in parts]


def _escape_markdown(cell: str) -> str:
    text = shown_text(cell).replace("\\", "\\\\")
    for mark in "|<>`*_[]":
        text = text.replace(mark, f"\\{mark}")
    return text
