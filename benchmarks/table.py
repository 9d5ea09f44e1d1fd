"""The README's table of ratios, made from the recorded rounds.

python -m benchmarks.table            write it into README.md
python -m benchmarks.table --check    fail if README.md and the records disagree
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT

BEGIN, END = "<!-- benchmarks: written by `make bench-table` -->", "<!-- end of benchmarks -->"
OURS = "regard"
ORDER = ["train", "decode", "limit", "file", "engine", "latency", "size"]  # how the names of experiments begin
NONE = "No figures are recorded yet: `make bench` measures them and writes them here."
Record = dict[str, Any]


def read(folder: Path) -> list[Record]:
    """The records there are, in the order of the table; those of another kind of machine lie in a folder of it."""
    paths = [*sorted(folder.glob("*.json")), *sorted(folder.glob("*/*.json"))]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return sorted(found, key=lambda record: (ORDER.index(record["name"].split("-")[0]), record["name"]))


def render(records: list[Record]) -> str:
    """The whole section in Markdown."""
    if not records:
        return NONE
    parts = [introduction(records), comparison(records), limits(records), sizes(records), notes(records)]
    return "\n\n".join(part for part in parts if part)


def introduction(records: list[Record]) -> str:
    """On what, with what, and how to read and repeat it."""

    def all_of(key: str) -> str:
        return " / ".join(sorted({str(record[key]) for record in records}))

    peers = sorted({f"{name} {version}" for record in records for name, version in record["peers"].items()})
    figures = [figure for record in records for figure in record["summary"].values()]
    rounds = min((each["rounds"] for figure in figures for each in figure["sides"].values()), default=0)
    commits = " / ".join(sorted({str(record["commit"])[:12] for record in records}))
    machines = " / ".join(mark + machine for machine, mark in marks(records).items())
    lines = [
        f"Machine: {machines}; {all_of('threads')} threads, fp32, torch {all_of('torch')}, commit {commits}.",
        f"Peers: {', '.join(peers) or 'none installed'}.",
        f"Medians of at least {rounds} interleaved rounds; spread is (largest − smallest) / median. A ratio says how",
        "many times faster, or for memory smaller, `regard` is: above 1 it is ahead.",
        "To repeat it: `REGARD_PEERS=FOLDER make bench`, see [docs/benchmarks.md](docs/benchmarks.md).",
    ]
    return "\n".join(lines)


def marks(records: list[Record]) -> dict[str, str]:
    """What marks a record by its machine: nothing for the one most were made on."""
    machines = [machine for machine, _ in Counter(record["machine"] for record in records).most_common()]
    return {machine: "" if place == 0 else f"({place}) " for place, machine in enumerate(machines)}


def comparison(records: list[Record]) -> str:
    """One row for each figure we share with peers."""
    rows, marked = [], marks(records)
    for record in (each for each in records if not each["name"].startswith("limit-")):
        for figure in record["figures"]:
            found = record["summary"][figure["name"]]
            title = marked[record["machine"]] + record["title"] + case(figure["name"])
            for side in found["sides"]:  # several of ours where an engine can be chosen
                if side.startswith(OURS):
                    rows.append([title + side.removeprefix(OURS), *cells(figure, found, side)])
    if not rows:
        return ""
    head = ["what", "regard", "spread", "best peer", "spread", "ratio", "other peers, ratio"]
    return markdown(head, rows)


def cells(figure: dict[str, Any], found: dict[str, Any], side: str) -> list[str]:
    """Ours, the best peer's, and the ratios."""
    ours = found["sides"][side]
    shown = [number(ours["median"], figure["unit"]), f"{ours['spread']:.0%}"]
    if side != OURS or "best_peer" not in found:
        return [*shown, "–", "–", "–", "–"]
    peer = found["best_peer"]
    theirs = found["sides"][peer]
    others = [f"{name} {ratio:.2f}" for name, ratio in sorted(found["over"].items()) if name != peer]
    named = f"{peer}: {number(theirs['median'], figure['unit'])}"
    return [*shown, named, f"{theirs['spread']:.0%}", f"**{found['over'][peer]:.2f}**", ", ".join(others) or "–"]


def case(name: str) -> str:
    """`32x4` → batch 32, beam 4; memory is said, the rest goes without saying."""
    if found := re.fullmatch(r"(\d+)x(\d+)", name):
        return f": batch {found[1]}, {'greedy' if found[2] == '1' else f'beam {found[2]}'}"
    return ": peak memory above the built model" if name == "memory" else ""


def limits(records: list[Record]) -> str:
    """How far a search is from its own products of activations and weights: no exact search needs less time."""
    rows = []
    for record in (each for each in records if each["name"].startswith("limit-")):
        for figure in record["figures"]:
            sides = record["summary"][figure["name"]]["sides"]
            ours, limit = (sides[name]["median"] for name in sides)
            shown = [number(value, figure["unit"]) for value in (ours, limit)]
            rows.append([record["title"] + case(figure["name"]), *shown, f"{ours / limit:.0%}"])
    return markdown(["what", "regard", "its matrix products alone", "share"], rows) if rows else ""


def sizes(records: list[Record]) -> str:
    """How cost grows: each size against the smallest."""
    parts = []
    for record in records:
        if not record["name"].startswith("size-"):
            continue
        rows = []
        for figure in record["figures"]:
            sides = list(record["summary"][figure["name"]]["sides"].items())
            for name, found in sides:
                share = found["median"] / sides[0][1]["median"]
                shown = number(found["median"], figure["unit"])
                rows.append([label(figure["name"]), name, shown, f"{found['spread']:.0%}", f"{share:.2f}"])
        parts.append(f"{record['title']}:\n\n" + markdown(["figure", "size", "median", "spread", "to the first"], rows))
        if growth := bytes_a_pair(record):
            parts[-1] += f"\n\nPeak memory grows by {growth:.1f} bytes a pair from the smallest corpus to the largest."
    return "\n\n".join(parts)


def bytes_a_pair(record: Record) -> float | None:
    """Growth of the peak from the smallest corpus to the largest."""
    sides = list(record["summary"].get("peak", {}).get("sides", {}).values())
    pairs = record["facts"].get("pairs")
    if len(sides) < 2 or len(sides) != len(pairs):
        return None
    return (sides[-1]["median"] - sides[0]["median"]) / (pairs[-1] - pairs[0])


def label(name: str) -> str:
    """A figure as one says it."""
    known = {
        "tokens_per_second": "training",
        "first_update_seconds": "process start to first update",
        "ready_seconds": "process start to model built",
        "peak": "peak memory",
    }
    return known.get(name, "decoding" + case(name))


def notes(records: list[Record]) -> str:
    """What was not measured, and why."""
    found = [f"- {record['name']}: {note}" for record in records for note in record["notes"]]
    return "Not measured:\n\n" + "\n".join(found) if found else ""


def number(value: float, unit: str) -> str:
    """A figure with its unit, to three digits or so."""
    if unit == "MB":
        value /= 1e6
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def keep(path: Path, section: str, marks: tuple[str, str], check: bool) -> None:
    """Write a section of a page between its two marks, or only see whether it stands there."""
    text = path.read_text(encoding="utf-8")
    wanted = insert(text, section, *marks)
    if check and wanted != text:
        sys.exit(f"{path.name} and the records disagree after the line {marks[0]}")
    if not check:
        path.write_text(wanted, encoding="utf-8")


def insert(text: str, section: str, first: str, last: str) -> str:
    """The text with the section between the two marks."""
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"expected the lines {first} and {last}")
    return f"{before}{begin}\n\n{section}\n\n{end}{after}"


def main(words: list[str]) -> None:
    """Write the table into README.md, or check it."""
    keep(ROOT / "README.md", render(read(ROOT / "benchmarks" / "results")), (BEGIN, END), "--check" in words)


if __name__ == "__main__":
    main(sys.argv[1:])
