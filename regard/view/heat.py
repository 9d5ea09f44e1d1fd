"""A heat map as inline SVG, for pages without any script: darker where more was looked at, a `<title>` per cell."""

import html
from collections.abc import Sequence

from regard.view.tokens import shown

CELL = 18
LETTER = 7.2  # mean width of a letter of a label
LONGEST = 14  # letters of a label; the rest is cut
FAINT = 0.01  # a weaker weight is not drawn
SLANT = 0.77  # sine of the 50 degrees column labels are turned by


def draw_heat(
    weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], label: str, strongest: float = 0.0
) -> str:
    """One map `[T,S]` with its words; full colour is `strongest`, or its own strongest weight."""
    row_names, column_names = [_cut(name) for name in rows], [_cut(name) for name in columns]
    left = 8 + LETTER * max(map(len, row_names), default=1)
    top = 10 + LETTER * SLANT * max(map(len, column_names), default=1)
    right = LETTER * 0.64 * max((len(name) - place for place, name in enumerate(reversed(column_names))), default=1)
    width, height = left + CELL * len(columns) + max(right + 10, 4), top + CELL * len(rows) + 4
    strongest = strongest or max((weight for line in weights for weight in line), default=0.0) or 1.0
    parts = [
        f'<rect class="ground" x="{left:.1f}" y="{top:.1f}" width="{CELL * len(columns)}" height="{CELL * len(rows)}"/>'
    ]
    for place, name in enumerate(column_names):
        x, y = left + CELL * (place + 0.62), top - 5
        parts.append(
            f'<text font-size="13" transform="translate({x:.1f} {y:.1f}) rotate(-50)">{html.escape(name)}</text>'
        )
    for place, name in enumerate(row_names):
        y = top + CELL * (place + 0.72)
        parts.append(
            f'<text font-size="13" x="{left - 5:.1f}" y="{y:.1f}" text-anchor="end">{html.escape(name)}</text>'
        )
    for row, line in enumerate(weights):
        for column, weight in enumerate(line):
            if weight >= FAINT:
                parts.append(
                    f'<rect x="{left + CELL * column:.1f}" y="{top + CELL * row:.1f}" width="{CELL}" height="{CELL}" '
                    f'fill-opacity="{weight / strongest:.3f}"><title>{_title(rows[row], columns[column], weight)}'
                    "</title></rect>"
                )
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" role="img" '
        f'aria-label="{html.escape(label)}">{"".join(parts)}</svg>'
    )


def _title(row: str, column: str, weight: float) -> str:
    return html.escape(f"{shown(row)} looks at {shown(column)}: {weight:.3f}")


def _cut(name: str) -> str:
    name = shown(name)
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
