"""The study of layers written down: JSON, Markdown, one HTML page, and pictures if there is matplotlib to draw them."""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.directory import write_json
from regard.errors import ConfigError
from regard.study.layer_tables import Titled, cost_tables, growth_tables, main_table, remarks
from regard.view.comparison import Chart
from regard.view.layers import Page, write_page

MODES = {"forward": "forward", "gradient": "with gradient"}
ABOUT = {
    "operator": "attention alone, by length",
    "length": "whole layers, by length",
    "width": "by width",
    "kernel": "by kernel",
    "neighbourhood": "by neighbourhood",
}
COLUMNS = 118  # of a line of text in the terminal
TITLE = "What layers cost"


def write_all(directory: Path, result: Mapping[str, Any], say: Callable[[str], None]) -> list[Path]:
    """Write every form; the files, the page first."""
    names = [layer["title"] for layer in result["layers"].values()]
    charts = [*cost_charts(result, "gradient"), path_chart(result)]
    pictures = draw_all(directory, charts, names, say)
    write_json(directory / "layers.json", result)
    (directory / "layers.md").write_text(to_markdown(result, bool(pictures)), encoding="utf-8", newline="\n")
    page = Page(
        title=TITLE,
        facts=list(facts(result).items()),
        advice=result["advice"],
        tables=[main_table(result), *growth_tables(result)],
        costs=list(cost_tables(result)),
        remarks=remarks(result),
        charts=[*charts, *cost_charts(result, "forward")],
        names=names,
    )
    write_page(directory / "layers.html", page)
    return [directory / f"layers.{ending}" for ending in ("html", "md", "json")] + pictures


def facts(result: Mapping[str, Any]) -> dict[str, str]:
    """Where and with what it was measured."""
    origin, settings = result["origin"], result["settings"]
    return {
        "machine": origin["machine"],
        "threads": str(origin["threads"]),
        "torch": origin["torch"],
        "commit": (origin["commit"] or "unknown")[:12],
        "rounds": str(settings["repeat"]),
        "batch": str(settings["batch"]),
        "width": str(settings["width"]),
        "heads": str(settings["heads"]),
        "kernel": str(settings["kernel"]),
        "neighbourhood": str(settings["neighbourhood"]),
        "cell": settings["cell"],
        "finished": origin["finished"],
    }


def cost_charts(result: Mapping[str, Any], mode: str) -> Iterator[Chart]:
    """Time and memory of every sweep."""
    for name, sweep in result["sweeps"].items():
        about = f"{MODES[mode]}, {ABOUT[name]}"
        yield _cost_chart(result, sweep, mode, f"Time {about}", "seconds", "ms", 1e3)
        yield _cost_chart(result, sweep, mode, f"Memory {about}", "bytes", "MB", 1e-6)


def path_chart(result: Mapping[str, Any]) -> Chart:
    """Path lengths at the smallest kernel and neighbourhood."""
    paths = {}
    for name, path in result["paths"].items():
        least = min(parameter for _, parameter, _ in path["counts"])
        paths[result["layers"][name]["title"]] = [(n, count) for n, p, count in path["counts"] if p == least]
    return Chart("Maximum path length, by length", "n", "layers or steps", paths, logarithmic=True)


def _cost_chart(
    result: Mapping[str, Any], sweep: Mapping[str, Any], mode: str, title: str, what: str, unit: str, factor: float
) -> Chart:
    lines = {
        result["layers"][name]["title"]: [(point["at"], point[what] * factor) for point in modes[mode]["points"]]
        for name, modes in sweep["layers"].items()
    }
    return Chart(title, sweep["by"], unit, lines, logarithmic=True)


def draw_all(directory: Path, charts: list[Chart], names: list[str], say: Callable[[str], None]) -> list[Path]:
    """PNG and SVG; without matplotlib none, which is told."""
    from regard.view import plots

    paths = [directory / "layers.png", directory / "layers.svg"]
    try:
        for path in paths:
            plots.plot_charts(path, charts, names)
    except ConfigError as error:
        say(f"no PNG and SVG: {error}")
        return []
    return paths


def to_text(result: Mapping[str, Any]) -> str:
    """What is shown in the terminal."""
    parts = [_block(titled) for titled in (main_table(result), *growth_tables(result))]
    advice = ["When which layer is the cheapest\n", *(_wrap(f"- {line}", "  ") for line in result["advice"])]
    return "\n\n".join([*parts, "\n".join(map(_wrap, remarks(result))), "\n".join(advice)])


def _block(titled: Titled) -> str:
    return "\n".join(filter(None, [titled.title + "\n", titled.table.to_text(), _wrap(titled.note)]))


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, COLUMNS, subsequent_indent=indent, break_on_hyphens=False)


def to_markdown(result: Mapping[str, Any], with_picture: bool) -> str:
    """The same and all costs as a Markdown page."""
    told = "; ".join(f"{name} {value}" for name, value in facts(result).items())
    parts = [f"# {TITLE}", f"`{result['origin']['command']}`", told + "."]
    parts += ["## When which layer is the cheapest", "\n".join(f"- {line}" for line in result["advice"])]
    for titled in (main_table(result), *growth_tables(result)):
        parts += [f"## {titled.title}", titled.table.to_markdown(), titled.note]
    parts += ["\n".join(f"- {line}" for line in remarks(result))]
    if with_picture:
        parts.append("![time, memory and path lengths](layers.svg)")
    for titled in cost_tables(result):
        parts += [f"## {titled.title}", titled.table.to_markdown()]
    return "\n\n".join(filter(None, parts)) + "\n"
