"""A comparison written down: JSON, Markdown, one HTML page, and pictures where matplotlib is there to draw them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.directory import write_json
from regard.errors import ConfigError
from regard.study.history import is_rate
from regard.study.table import (
    fairness_lines,
    length_table,
    main_table,
    measure_name,
    notes,
    settings_table,
    sound_rows,
    to_markdown,
    verdict,
)
from regard.view.comparison import Chart, Look, Page, write_comparison

UNITS = (("hours", 3600, 10_800), ("minutes", 60, 600), ("seconds", 1, 0))  # name, seconds, from so many seconds on
Figures = Mapping[str, Any]


def write_all(directory: Path, comparison: Figures, say: Callable[[str], None]) -> list[Path]:
    """Write every form of a comparison; the files, the page first."""
    names = [row["name"] for row in comparison["rows"]]
    lengths, learning, looks = length_chart(comparison), learning_charts(comparison), attention(comparison)
    pictures = draw_all(directory, names, lengths, learning, looks, say)
    write_json(directory / "comparison.json", comparison)
    shown = [(path.stem, path.name) for path in pictures if path.suffix == ".png"]
    (directory / "comparison.md").write_text(to_markdown(comparison, shown), encoding="utf-8", newline="\n")
    page = Page(
        title="Comparison of " + (", ".join(names) if len(names) < 4 else f"{len(names)} models"),
        table=main_table(comparison),
        notes=notes(comparison),
        verdict=verdict(comparison),
        fairness=fairness_lines(comparison),
        settings=settings_table(comparison),
        charts=[*lengths, *learning],
        names=names,
        lengths=length_table(comparison),
        sentence=comparison["sentence"],
        looks=looks,
    )
    write_comparison(directory / "comparison.html", page)
    return [directory / f"comparison.{ending}" for ending in ("html", "md", "json")] + pictures


def draw_all(
    directory: Path,
    names: Sequence[str],
    lengths: Sequence[Chart],
    learning: Sequence[Chart],
    looks: Sequence[Look],
    say: Callable[[str], None],
) -> list[Path]:
    """The pictures as PNG and SVG; without matplotlib none, which is told."""
    from regard.view import plots

    drawings: dict[str, Callable[[Path], None]] = {}
    if lengths:
        drawings["length"] = lambda path: plots.plot_charts(path, lengths, names)
    if learning:
        drawings["learning"] = lambda path: plots.plot_charts(path, learning, names)
    if any(look.weights for look in looks):
        drawings["attention"] = lambda path: plots.plot_looks(path, looks)
    written = []
    try:
        for name, draw in drawings.items():
            for ending in (".png", ".svg"):
                draw(directory / f"{name}{ending}")
                written.append(directory / f"{name}{ending}")
    except ConfigError as error:
        say(f"no PNG or SVG is written: {error}")
    return written


def length_chart(comparison: Figures) -> list[Chart]:
    """The main score against the middle of each range of source lengths."""
    rows = sound_rows(comparison)
    if not rows or len(rows[0]["by_length"]) < 2:
        return []
    main = comparison["metrics"][0]
    scale = 100 if "%" in rows[0]["scores"][main]["text"] else 1
    lines = {
        row["name"]: [((each["first"] + each["last"]) / 2, scale * each["value"]) for each in row["by_length"]]
        for row in rows
    }
    unit = " in %" if scale == 100 else ""
    return [Chart("by source length", f"source {comparison['length_unit']}", measure_name(main) + unit, lines)]


def learning_charts(comparison: Figures) -> list[Chart]:
    """Validation loss and the measure of `reach` against training time and against updates."""
    curves = {row["name"]: row["training"]["curve"] for row in sound_rows(comparison) if "curve" in row["training"]}
    ends = [curve["seconds"][-1] for curve in curves.values() if curve["seconds"]]
    if not ends:
        return []
    unit, seconds, _ = next(each for each in UNITS if max(ends) >= each[2])
    reach = comparison["reach"]
    measures: list[str] = ["loss", reach["measure"]] if reach and reach["measure"] != "loss" else ["loss"]
    return [
        Chart(
            f"by {title}",
            x_name,
            f"validation {measure_name(name)}{' in %' if is_rate(name) else ''}",
            {row: _points(curve, along, each, name) for row, curve in curves.items()},
        )
        for name in measures
        for title, x_name, along, each in (
            ("training time", unit, "seconds", seconds),
            ("updates", "updates", "steps", 1),
        )
    ]


def _points(curve: Figures, along: str, each: float, name: str) -> list[tuple[float, float]]:
    scale = 100 if is_rate(name) else 1
    pairs = zip(curve[along], curve["values"].get(name, ()), strict=False)
    return [(x / each, scale * y) for x, y in pairs if y is not None]


def attention(comparison: Figures) -> list[Look]:
    """What each row looks at in the chosen sentence."""
    looks = []
    for row in sound_rows(comparison):
        found = row["attention"]
        if "missing" in found:
            looks.append(Look(row["name"], found["text"], found["missing"]))
            continue
        head = f", head {found['head']} of {found['heads']}" if found["heads"] > 1 else ""
        caption = f"{found['map']}{head}"
        looks.append(Look(row["name"], found["text"], caption, found["rows"], found["columns"], found["weights"]))
    return looks
