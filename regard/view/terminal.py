"""A heat map for the terminal: colours where there are colours, shaded blocks where there are none.

Rows are output words, columns are input words whose labels stand upright. A sentence wider than the terminal
is cut into panels, one below the other. Token text is cleaned of control codes before it is printed.
"""

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from regard.view.record import AttentionView
from regard.view.tokens import shown, shown_text

RAMP = np.array(
    [[0x23, 0x21, 0x29], [0x45, 0x26, 0x4F], [0x7D, 0x31, 0x5F], [0xB6, 0x47, 0x58], [0xE0, 0x78, 0x4C],
     [0xF3, 0xB2, 0x5E], [0xFD, 0xF1, 0xC8]]
)  # fmt: skip # as in page.css, by dark
BLOCKS = " ░▒▓█"
LABEL = 18  # widest row label, in cells
HEIGHT = 12  # tallest column label, in lines
DOUBT = 0.5  # a word less certain than this is shown faintly


def print_attention(view: AttentionView, console: Console | None = None) -> None:
    """Print the most telling cross-attention head of a hypothesis."""
    console = console or Console()
    console.print(Text(shown_text(view.source), style="dim"))
    console.print(Text(shown_text(view.text)))
    if view.writing:
        for line in written_lines(view):
            console.print(line)
    best = view.most_telling()
    if best is None:
        console.print(Text("This model has no attention to show.", style="dim"))
        return
    layer, head = best
    rows, columns = view.labels(layer)
    console.print()
    for line in heat_map(layer.weights[head], rows, columns, console.width, has_colour(console)):
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    heads = len(layer.weights)
    name = f"{shown_text(layer.name)}{f', head {head + 1} of {heads}, the most telling' if heads > 1 else ''}"
    console.print(Text(f"\n{name} · score {view.score:.3f}", style="dim"))


def written_lines(view: AttentionView) -> Iterator[Text]:
    """How words were written all at once: fertilities, the places at first, and what each pass has filled."""
    writing = view.writing
    assert writing is not None
    yield Text()
    if writing.fertility is not None:
        pairs = zip(view.source_tokens, writing.fertility, strict=True)
        yield _line("fertilities", [f"{shown(token)}·{number}" for token, number in pairs])
    yield _line("places", [shown(token) for token in writing.start])
    for number, each in enumerate(writing.passes, 1):
        name = f"pass {number}" if len(writing.passes) > 1 else "filled"
        line = _line(name, [])
        for token, certain, fresh in zip(each.tokens, each.certain, each.fresh, strict=True):
            style = "bold" if fresh and number > 1 else ""
            line.append(shown(token) + " ", style=style or ("dim" if certain < DOUBT else ""))
        yield line


def _line(name: str, words: Sequence[str]) -> Text:
    return Text(f"{name:<12}", style="dim").append(" ".join(words), style="not dim")


def has_colour(console: Console) -> bool:
    """Whether a background colour would be seen."""
    return console.color_system is not None and not console.no_color


def heat_map(
    weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], width: int = 80, colour: bool = True
) -> Iterator[Text]:
    """The lines of a heat map `[T,S]`, no wider than `width` cells."""
    rows, columns = [shown(label) for label in rows], [shown(label) for label in columns]
    widest = max((cell_len(label) for label in rows), default=1)
    margin = max(1, min(widest, LABEL, width // 3))
    room = max(2, width - margin - 1)
    cell = 3 if len(columns) * 3 <= room else 2
    count = max(1, room // cell)
    ceiling = float(weights.max(initial=0.0)) or 1.0
    for start in range(0, len(columns), count):
        part = columns[start : start + count]
        if start:
            yield Text()
        for line in upright(part, cell):
            yield Text(" " * (margin + 1) + line)
        for number, label in enumerate(rows):
            line = Text(fit(label, margin) + " ")
            for weight in weights[number, start : start + count] / ceiling:
                line.append_text(_square(float(weight), cell, colour))
            yield line
    yield Text()
    yield _legend(margin, ceiling, colour)


def fit(label: str, width: int) -> str:
    """A label on exactly `width` cells: right-aligned, cut with … when too long."""
    if cell_len(label) > width:
        return set_cell_size(set_cell_size(label, width - 1).rstrip() + "…", width)
    return " " * (width - cell_len(label)) + label


def upright(labels: Sequence[str], cell: int) -> Iterator[str]:
    """Column labels written downwards, ending above their column."""
    stacks = [_letters(label) for label in labels]
    stacks = [stack if len(stack) <= HEIGHT else [*stack[: HEIGHT - 1], "…"] for stack in stacks]
    height = max((len(stack) for stack in stacks), default=0)
    for level in range(height):
        line = ""
        for stack in stacks:
            place = level - (height - len(stack))
            letter = stack[place] if place >= 0 else ""
            line += set_cell_size(" " * (cell - 2) + letter, cell)
        yield line.rstrip()


def _letters(label: str) -> list[str]:
    """Characters with the marks that sit on them."""
    letters: list[str] = []
    for character in label:
        if letters and (unicodedata.combining(character) or cell_len(character) == 0):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _square(share: float, cell: int, colour: bool) -> Text:
    if colour:
        return Text(" " * cell, style=Style(bgcolor=_colour(share)))
    return Text(BLOCKS[min(len(BLOCKS) - 1, int(share * len(BLOCKS)))] * cell)


def _colour(share: float) -> Color:
    place = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    left = min(int(place), len(RAMP) - 2)
    red, green, blue = RAMP[left] + (RAMP[left + 1] - RAMP[left]) * (place - left)
    return Color.from_rgb(red, green, blue)


def _legend(margin: int, ceiling: float, colour: bool) -> Text:
    line = Text(" " * max(0, margin - 1) + "0 ", style="dim")
    for share in np.linspace(0, 1, 12 if colour else len(BLOCKS)).tolist():
        line.append_text(_square(share, 1 if colour else 2, colour))
    line.append(f" {ceiling:.2f}")
    return line
