"""Measure: every side in its own process, in interleaved rounds, with medians, spread and ratios.

    python -m benchmarks.run                     everything, against the peers in $REGARD_PEERS
    python -m benchmarks.run train-a decode-a    some of it
    python -m benchmarks.run --tiny              does it all run? (small models; nothing is recorded)

The record of each experiment is one JSON file, with every round in it.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.experiments import EXPERIMENTS, Experiment
from benchmarks.figures import advantage, best, summarise
from benchmarks.inputs import FULL, OURS, TINY, Bench
from benchmarks.installed import PACKAGES, find_peers
from benchmarks.process import ROOT, Side, limit_processors, raise_priority, start
from benchmarks.sizes import SIZES
from regard.origin import origin
from regard.study.speed import interleaved

ALL = EXPERIMENTS | SIZES


def measure(experiment: Experiment, rounds: int, threads: int, timeout: float = 3600) -> dict[str, Any]:
    """All rounds of an experiment, as they are recorded."""
    taken: list[dict[str, Any]] = []
    for number, side in interleaved(experiment.sides, rounds):
        outcome = start(side, threads, timeout)
        taken.append({"side": side.name, "round": number, **vars(outcome)})
        shown = {figure.name: outcome.figures.get(figure.name) for figure in experiment.figures}
        shown = {name: float(f"{value:.4g}") for name, value in shown.items() if value is not None}
        print(f"  round {number + 1}  {side.name}: {outcome.error or shown}", file=sys.stderr, flush=True)
    return {
        "name": experiment.name,
        "title": experiment.title,
        "figures": [vars(figure) for figure in experiment.figures],
        "summary": summary(experiment, taken),
        "notes": experiment.notes + failures(taken),
        "facts": experiment.facts,
        "commands": {side.name: shown_command(side) for side in experiment.sides},
        "rounds": taken,
    }


def summary(experiment: Experiment, taken: list[dict[str, Any]]) -> dict[str, Any]:
    """For each figure: median and spread of each side, and how many times better we are than each."""
    found: dict[str, Any] = {}
    for figure in experiment.figures:
        values: dict[str, list[float]] = {}
        for each in taken:
            if not each["error"] and figure.name in each["figures"]:
                values.setdefault(each["side"], []).append(each["figures"][figure.name])
        sides = {side: vars(summarise(numbers)) for side, numbers in values.items()}
        found[figure.name] = {"sides": sides}
        theirs = {side: each["median"] for side, each in sides.items() if not side.startswith(OURS)}
        if OURS in sides and theirs:
            ours = sides[OURS]["median"]
            over = {side: advantage(ours, median, figure.higher) for side, median in theirs.items()}
            found[figure.name] |= {"over": over, "best_peer": best(theirs, figure.higher)}
    return found


def failures(taken: list[dict[str, Any]]) -> list[str]:
    """A note for each side that failed."""
    return sorted({f"{each['side']} failed: {each['error']}" for each in taken if each["error"]})


def shown_command(side: Side) -> list[Any]:
    """A command without the interpreter's place on this machine, and its job."""
    return ["python", *side.command[1:], *([side.job] if side.job else [])]


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure regard and its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments (default: all)")
    parser.add_argument("--list", action="store_true", help="names of the experiments, and the peers that are found")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--peers", default=os.environ.get("REGARD_PEERS"), metavar="FOLDER", help="their environments")
    parser.add_argument("--results", default=str(ROOT / "benchmarks" / "results"), metavar="FOLDER")
    parser.add_argument("--work", metavar="FOLDER", help="where inputs are made and kept (default: a temporary one)")
    parser.add_argument("--tiny", action="store_true", help="small models and data: shows only that all runs")
    parser.add_argument("--normal-priority", action="store_true", help="do not ask for real-time priority")
    arguments = parser.parse_args(words)
    if unknown := [name for name in arguments.names if name not in ALL]:
        parser.error(f"unknown experiment '{unknown[0]}'; known: {', '.join(ALL)}")
    if arguments.rounds < 1 or arguments.threads < 1:
        parser.error("--rounds and --threads must be above 0")
    return arguments


def main(words: list[str]) -> None:
    """Measure what the command line names, and write the records."""
    arguments = parse(words)
    peers = find_peers(Path(arguments.peers) if arguments.peers else None)
    for name in PACKAGES:
        print(f"{name}: {peers[name].version if name in peers else 'not installed'}", file=sys.stderr)
    if arguments.list:
        print("\n".join(ALL))
        return
    limit_processors(arguments.threads)
    raised = not arguments.normal_priority and raise_priority()
    print(f"priority: {'real-time' if raised else 'normal'}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(arguments.work or temporary).resolve()
        bench = Bench(work, TINY if arguments.tiny else FULL, peers, arguments.seed, arguments.threads)
        for name in arguments.names or ALL:
            print(name, file=sys.stderr, flush=True)
            began = time.monotonic()
            record = measure(ALL[name](bench), arguments.rounds, arguments.threads)
            command = " ".join(["python -m benchmarks.run", name, f"--rounds {arguments.rounds}"])
            record |= origin(command, arguments.seed, time.monotonic() - began, None)
            record |= {"threads": arguments.threads, "real_time_priority": raised}
            record |= {"peers": {name: peer.version for name, peer in peers.items()}}
            for note in record["notes"]:
                print(f"  note: {note}", file=sys.stderr)
            if not arguments.tiny:
                save(record, Path(arguments.results), work)


def save(record: dict[str, Any], folder: Path, work: Path) -> None:
    """One file for each experiment; the places of this machine are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False).replace(str(work), "WORK").replace(str(ROOT), "ROOT")
    (folder / f"{record['name']}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
