"""Pictures for papers: heat maps, curves and bars as PNG, SVG or PDF, drawn by matplotlib (extra `plot`).

Only `Figure` objects are made: no pyplot, no backend switch, no lasting change of matplotlib's settings, so that a
notebook's own plots stay as they are. Token text is never read as mathematics, and a letter that no
installed font has is drawn as a box, silently.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import ConfigError
from regard.view.comparison import Chart, Look, strongest_weight
from regard.view.curves import number, own_marks
from regard.view.record import AttentionView, Kind, Map
from regard.view.tokens import shown, shown_text

RAMP = ("#f4f0e7", "#f6dcb4", "#efb07a", "#db7855", "#b0424f", "#742251", "#3b0f3f")  # as in page.css, by light
INK, QUIET, HAIR = "#23201c", "#766f65", "#e2dcd0"
LINES = ("#31688e", "#a3384f", "#c98a1b", "#4c7f4f", "#6d5a94", "#6b6b6b", "#1f9c94", "#d3649f", "#7a4a21")  # as there
FONTS = ("DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Arial Unicode MS",
         "Microsoft YaHei", "PingFang SC", "Hiragino Sans", "Segoe UI")  # fmt: skip
ENDINGS = (".png", ".svg", ".pdf")


def plot_attention(path: str | Path, view: AttentionView, kind: Kind | None = None) -> None:
    """The most telling head of a kind (cross-attention when none is named) beside a grid of all layers and heads."""
    best = view.most_telling(kind)
    if best is None:
        raise ConfigError(f"{path}: this model has no {kind + ' ' if kind else ''}attention to draw")
    layer, head = best
    layers = [other for other in view.layers if other.kind == layer.kind]
    rows, columns = view.labels(layer)
    heads = max(len(other.weights) for other in layers)
    width, height = _main_size(rows, columns)
    if len(layers) * heads == 1:
        figure = _new_figure(width, height)
        _draw_main(figure, layer, head, rows, columns)
    else:
        width = max(width, 0.6 * heads)
        tile = width / heads * min(max(len(rows) / max(len(columns), 1), 0.5), 2) + 0.06
        figure = _new_figure(width, height + tile * len(layers) + 0.3)
        above, below = figure.subfigures(2, 1, height_ratios=(height, tile * len(layers) + 0.3))
        _draw_main(above, layer, head, rows, columns)
        _draw_grid(below, layers, heads, (layer, head))
    _save(figure, Path(path))


def plot_charts(path: str | Path, charts: Sequence[Chart], names: Sequence[str]) -> None:
    """Several charts of the same models side by side, two in a row, with one key for all."""
    across = min(2, len(charts))
    down = -(-len(charts) // across)
    figure = _new_figure(5.6 * across, 3.7 * down + 0.3)
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.flat[len(charts) :]:
        axes.set_visible(False)
    for axes, chart in zip(grid.flat, charts, strict=False):
        _draw_lines(axes, chart, names, key=False)
    handles = {handle.get_label(): handle for axes in grid.flat for handle in axes.get_lines()}
    entry = 0.55 + 0.09 * max(map(len, handles), default=0)  # inches of a line and its name
    columns = max(1, int(5.6 * across / entry))
    _name_lines(
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns, frameon=False)
    )
    _save(figure, Path(path))


def plot_looks(path: str | Path, looks: Sequence[Look]) -> None:
    """The attention of several models for one sentence side by side."""
    drawn = [look for look in looks if look.weights]
    if not drawn:
        raise ConfigError(f"{path}: no model has attention to draw")
    across = min(3, len(drawn))
    down = -(-len(drawn) // across)
    sizes = [_main_size(look.rows, look.columns) for look in drawn]
    width, height = (max(size) for size in zip(*sizes, strict=True))
    figure = _new_figure(across * width, down * height)
    parts = figure.subfigures(down, across, squeeze=False).flat
    for part, look in zip(parts, drawn, strict=False):
        axes = _draw_heat(part, np.asarray(look.weights), look.rows, look.columns, strongest_weight(looks))
        part.suptitle(shown_text(look.name), fontsize=10, color=INK, parse_math=False)
        axes.set_xlabel(shown_text(look.caption), fontsize=8, color=QUIET, parse_math=False)
    _save(figure, Path(path))


def _draw_lines(axes: Any, chart: Chart, names: Sequence[str], key: bool = True) -> None:
    """A chart; a name has the colour of its place among all names."""
    for name, points in chart.lines.items():
        number = names.index(name)
        x, y = np.array(list(points), dtype=float).reshape(-1, 2).T
        style = ("o" if len(x) <= 40 else "") + ("-" if number // len(LINES) % 2 == 0 else "--")
        label = shown_text(name).lstrip("_")  # matplotlib hides names that begin with one
        axes.plot(x, y, style, color=LINES[number % len(LINES)], label=label, linewidth=1.6, markersize=4)
    _label(axes, chart.title, chart.x_name, chart.y_name)
    if chart.logarithmic:
        _set_logarithmic(axes, [x for points in chart.lines.values() for x, _ in points])
    axes.grid(color=HAIR, linewidth=0.8)
    if key and len(chart.lines) > 1:
        _name_lines(axes.legend(frameon=False))


def _set_logarithmic(axes: Any, sizes: Sequence[float]) -> None:
    """Both axes logarithmic, with plain numbers at them."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    axes.set(xscale="log", yscale="log")
    axes.xaxis.set_major_locator(FixedLocator(own_marks(sizes)) if own_marks(sizes) else LogLocator(2))
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _name_lines(legend: Any) -> None:
    """Names in a key are never read as mathematics."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def bar_plot(
    path: str | Path, bars: Sequence[tuple[str, float]], title: str = "", x_label: str = "", y_label: str = ""
) -> None:
    """Named bars with their heights, shares of one: a histogram."""
    figure = _new_figure(max(3.2, 0.5 * len(bars) + 1.2), 3.6)
    axes = figure.add_subplot()
    drawn = axes.bar(range(len(bars)), [height for _, height in bars], color=LINES[0], width=0.8)
    axes.bar_label(drawn, [f"{100 * height:.1f} %" for _, height in bars], fontsize=7, color=QUIET, padding=2)
    axes.set_xticks(range(len(bars)), [shown_text(name) for name, _ in bars], parse_math=False)
    axes.yaxis.set_major_formatter(lambda value, place: f"{100 * value:.0f} %")
    axes.grid(axis="y", color=HAIR, linewidth=0.8)
    _label(axes, title, x_label, y_label)
    _save(figure, Path(path))


def check_picture(path: str | Path) -> None:
    """Refuse a picture that could not be drawn, before the work of which it is to be the result."""
    _check_ending(Path(path))
    _new_figure(1, 1)


def _label(axes: Any, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(shown_text(title), loc="left", color=INK, fontsize=11, parse_math=False)
    axes.set_xlabel(shown_text(x_label), color=QUIET, parse_math=False)
    axes.set_ylabel(shown_text(y_label), color=QUIET, parse_math=False)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _main_size(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float]:
    cell = 0.34 if max(len(rows), len(columns)) <= 30 else 0.2
    labels = [min(max(map(len, side), default=1), 24) * 0.085 for side in (rows, columns)]
    return max(2.6, len(columns) * cell + labels[0] + 1.1), max(2.2, len(rows) * cell + labels[1] + 0.7)


def _draw_main(figure: Any, layer: Map, head: int, rows: Sequence[str], columns: Sequence[str]) -> None:
    axes = _draw_heat(figure, layer.weights[head], rows, columns)
    _name_figure(axes, layer, head)


def _draw_heat(
    figure: Any, weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], strongest: float | None = None
) -> Any:
    axes = figure.add_subplot()
    picture = axes.imshow(weights, cmap=_colours(), vmin=0, vmax=strongest, interpolation="nearest")
    small = 9 if max(len(rows), len(columns)) <= 30 else 6.5
    fonts = _fonts()
    level = max(map(len, columns), default=1) <= 2
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    for axis, labels, turn in ((axes.xaxis, columns, 0 if level else 55), (axes.yaxis, rows, 0)):
        axis.set_ticks(range(len(labels)), [_cut(label) for label in labels])
        for text in axis.get_ticklabels():
            text.set(parse_math=False, fontfamily=fonts, fontsize=small, color=INK, rotation=turn)
            if turn:
                text.set(horizontalalignment="left", rotation_mode="anchor")
    axes.spines[:].set_visible(False)
    figure.colorbar(picture, ax=axes, shrink=0.6, aspect=24, pad=0.02).outline.set_visible(False)
    return axes


def _name_figure(axes: Any, layer: Map, head: int) -> None:
    heads = len(layer.weights)
    name = shown_text(layer.name) + (f", head {head + 1} of {heads}" if heads > 1 else "")
    axes.set_xlabel(name, fontsize=8, color=QUIET, parse_math=False)


def _draw_grid(figure: Any, layers: Sequence[Map], heads: int, chosen: tuple[Map, int]) -> None:
    grid = figure.subplots(len(layers), heads, squeeze=False)
    for row, layer in enumerate(layers):
        for head in range(heads):
            axes = grid[row, head]
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible((layer, head) == chosen)
            axes.spines[:].set(color=LINES[1], linewidth=1.5)
            if head < len(layer.weights):
                axes.imshow(layer.weights[head], cmap=_colours(), vmin=0, interpolation="nearest")
            if row == 0:
                axes.set_title(f"head {head + 1}", fontsize=7, color=QUIET)
            if head == 0:
                axes.set_ylabel(f"layer {row + 1}", fontsize=7, color=QUIET)


def _cut(label: str) -> str:
    label = shown(label)
    return label if len(label) <= 24 else label[:23] + "…"


def _new_figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError('drawing pictures needs matplotlib: pip install "regard[plot]"') from None
    return Figure(figsize=(min(width, 40), min(height, 40)), layout="constrained", facecolor="white")


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("regard", RAMP)


def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [name for name in FONTS if name in installed]


@contextmanager
def _quietly() -> Iterator[None]:
    """No warning for a glyph that no installed font has, nor for a label too long for the layout."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph .*")
        warnings.filterwarnings("ignore", message=".*constrained_layout not applied.*")
        yield


def _check_ending(path: Path) -> str:
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"{path}: unknown ending '{path.suffix}'; known endings: {', '.join(ENDINGS)}")
    return path.suffix.lower()


def _save(figure: Any, path: Path) -> None:
    ending = _check_ending(path)
    dated = {} if ending == ".png" else {"CreationDate" if ending == ".pdf" else "Date": None}  # same input, same file
    from matplotlib import rc_context

    with _quietly(), rc_context({"svg.hashsalt": "regard"}):  # else the names inside an SVG are drawn by lot
        figure.savefig(path, dpi=160, metadata=dated)
