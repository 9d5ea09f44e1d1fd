"""The tables of the study of layers: Table 1 of the paper beside what was measured, then every exponent and cost."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.view.curves import number
from regard.view.tables import Table

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Titled:
    """A table, what it is called and what must be known to read it."""

    title: str
    table: Table
    note: str = ""


def main_table(result: Result) -> Titled:
    """The paper's table with two columns for each of its own: what it says, and what was found."""
    rows = []
    for name, path in result["paths"].items():
        paper = result["layers"][name]
        at, parameter, count = max(path["counts"], key=lambda entry: (entry[0], -entry[1]))
        where = f"n = {at}" + (f", {path['letter']} = {parameter}" if path["letter"] else "")
        rows.append(
            [paper["title"], paper["cost"], _measured_cost(result, name), paper["steps"], _tell_steps(result, name),
             paper["path"], _tell_law(path["law"]), f"{count} ({where})"]
        )  # fmt: skip
    heads = [
        "layer", "operations, by the paper", "time with gradient, measured", "sequential operations, by the paper",
        "measured", "maximum path length, by the paper", "measured", "layers or steps counted",
    ]  # fmt: skip
    return Titled("Table 1, measured", Table(heads, rows, frozenset(range(1, 8))), _notes(result))


def _measured_cost(result: Result, name: str) -> str:
    """`n^1.98 · d^0.90`: of attention alone where the layer has projections, which the paper does not count."""
    sweeps = result["sweeps"]
    alone = f"{name} alone"
    has_alone = alone in sweeps["operator"]["layers"]
    subject = alone if has_alone else name
    growth = {
        "n": sweeps["operator" if has_alone else "length"]["layers"][subject],
        "d": sweeps["width"]["layers"][subject],
        "k": sweeps["kernel"]["layers"].get(subject),
        "r": sweeps["neighbourhood"]["layers"].get(subject),
    }
    return " · ".join(
        f"{letter}^{found['gradient']['time']['exponent']:.2f}" for letter, found in growth.items() if found
    )


def _tell_steps(result: Result, name: str) -> str:
    found = result["steps"][name]
    constant, slope = (round(found[key], 2) for key in ("constant", "slope"))
    return f"{constant:g}" if found["law"] == "1" else f"{slope:g} n {'+' if constant >= 0 else '−'} {abs(constant):g}"


def _tell_law(law: Mapping[str, Any]) -> str:
    return f"{law['constant']:.2g}" if law["name"] == "1" else f"{law['constant']:.2g} · {law['name']}"


def _notes(result: Result) -> str:
    worst = max(path["law"]["deviation"] for path in result["paths"].values())
    return (
        "Exponents are fitted over whole sweeps; those of attention are of the operator alone. Path lengths follow the "
        "law that fits best among 1, log n, n and, for kernel and neighbourhood, log_k n, n/k and n/r; no count is "
        f"farther from it than {worst:.0%}."
    )


def growth_tables(result: Result) -> Iterator[Titled]:
    """Exponents of every sweep."""
    settings = result["settings"]
    fixed = {
        "operator": f"n, attention alone (d_k = {settings['key_width']}, one head, r = {settings['neighbourhood']})",
        "length": f"n, whole layers (d = {settings['width']}, {settings['heads']} heads)",
        "width": f"d (n = {settings['length']})",
        "kernel": f"k (n = {settings['length']}, d = {settings['width']})",
        "neighbourhood": f"r (n = {4 * settings['length']}, d = {settings['width']})",
    }
    for name, sweep in result["sweeps"].items():
        yield Titled(f"Growth with {fixed[name]}", _growth_table(result, sweep))


def _growth_table(result: Result, sweep: Mapping[str, Any]) -> Table:
    heads = ["layer", "exponent, by the paper", "time, forward", "time, with gradient", "memory, forward",
             "memory, with gradient"]  # fmt: skip
    rows = []
    for name, modes in sweep["layers"].items():
        paper = result["layers"][name]
        found = [_exponent(modes[mode][what]) for what in ("time", "memory") for mode in ("forward", "gradient")]
        rows.append([paper["title"], f"{paper['law'].get(sweep['by'], 0):g}", *found])
    return Table(heads, rows)


def _exponent(found: Mapping[str, float] | None) -> str:
    return "–" if found is None else f"{found['exponent']:.2f} ({found['last']:.2f})"


def cost_tables(result: Result) -> Iterator[Titled]:
    """Milliseconds and megabytes of every case of the sweeps over n."""
    for name, about in (("length", "whole layers"), ("operator", "attention alone")):
        sweep = result["sweeps"][name]
        for mode, told in (("forward", "forward"), ("gradient", "with gradient")):
            for what, unit, factor in (("seconds", "ms", 1e3), ("bytes", "MB", 1e-6)):
                table = _cost_table(result, sweep, mode, what, factor)
                yield Titled(f"{unit}, {told}, {about}", table)


def _cost_table(result: Result, sweep: Mapping[str, Any], mode: str, what: str, factor: float) -> Table:
    points = {name: {p["at"]: p[what] for p in modes[mode]["points"]} for name, modes in sweep["layers"].items()}
    sizes = sorted({size for found in points.values() for size in found})
    rows = [
        [result["layers"][name]["title"], *(number(found[size] * factor) if size in found else "–" for size in sizes)]
        for name, found in points.items()
    ]
    return Table(["layer", *(f"{sweep['by']} = {size:,}" for size in sizes)], rows)


def remarks(result: Result) -> list[str]:
    """What else a reader must know."""
    spreads = [
        point["spread"]
        for sweep in result["sweeps"].values()
        for modes in sweep["layers"].values()
        for found in modes.values()
        for point in found["points"]
    ]
    difference = result["difference"]
    told = [
        "In brackets: the exponent between the last two sizes, where what is constant counts least.",
        f"The rounds of a case differ by {statistics.median(spreads):.0%} of its time (median), "
        f"{max(spreads):.0%} at most.",
        f"Restricted attention equals full attention behind a mask: outputs and gradients differ by "
        f"{difference['largest']:.1e} at most, n = {_listed(difference['lengths'])}.",
    ]
    if result["skipped"]:
        cases = ", ".join(f"{result['layers'][c['layer']]['title']} at n = {c['length']:,}" for c in result["skipped"])
        told.append(f"Left out, since half of the memory would not hold it: {cases}.")
    return told


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes) or "none"
