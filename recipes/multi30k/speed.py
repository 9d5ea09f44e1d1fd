"""How much faster a student is than its teacher in the compiled engine; `student.result/speed.json` is the record.

    python -m recipes.multi30k.speed TEACHER STUDENT FILE      (exported models of the same text; source lines)

Both search the same lines, in turn and with a worker on every core; reading and writing text is not counted.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from regard.config import Search
from regard.data.text import read_lines
from regard.evaluation import hash_lines
from regard.origin import origin
from regard.predict import Predictor, in_parallel, length_batches, load

RECORD = Path(__file__).parent / "student.result" / "speed.json"
ROUNDS = 3


def seconds(predictor: Predictor, sources: list[list[int]], options: Search) -> float:
    """The time the engine needs for all sources."""
    batches = length_batches([len(source) for source in sources], max(1, options.batch_tokens // options.candidates))
    start = time.perf_counter()
    in_parallel(
        lambda rows: predictor.engine.search([sources[row] for row in rows], options),
        batches,
        predictor.engine.workers,
    )
    return time.perf_counter() - start


def measure(teacher: str, student: str, lines: list[str]) -> dict[str, Any]:
    """Sentences per second of both, and their ratio in each round."""
    sides = {
        name: load(path, engine="ctranslate2", workers=os.cpu_count() or 1)
        for name, path in (("teacher", teacher), ("student", student))
    }
    read = {name: [list(part.ids) for part in predictor.read(lines)] for name, predictor in sides.items()}
    found: dict[str, Any] = {}
    for name, options in (("greedy", Search(method="greedy")), ("beam 5", Search(beam=5, stop="count", alpha=1.0))):
        rounds: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(ROUNDS + 1):  # the first one warms up
            for side, predictor in sides.items():
                taken = seconds(predictor, read[side], options)
                if number:
                    rounds[side].append(taken)
        ratios = [one / other for one, other in zip(rounds["teacher"], rounds["student"], strict=True)]
        rates = {side: len(lines) / statistics.median(times) for side, times in rounds.items()}
        found[name] = {"seconds": rounds, "sentences_per_second": rates, "ratio": statistics.median(ratios)}
        print(f"{name}: {rates}, {found[name]['ratio']:.2f} ×", file=sys.stderr, flush=True)
    return found


def main(arguments: list[str]) -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(prog="python -m recipes.multi30k.speed", description="Student against teacher.")
    parser.add_argument("teacher", metavar="TEACHER")
    parser.add_argument("student", metavar="STUDENT")
    parser.add_argument("file", metavar="FILE")
    options = parser.parse_args(arguments)
    began, lines = time.monotonic(), list(read_lines(options.file))
    record = measure(options.teacher, options.student, lines)
    names = [Path(name).name for name in (options.teacher, options.student, options.file)]
    about = origin(
        f"python -m recipes.multi30k.speed {' '.join(names)}", 1, time.monotonic() - began, hash_lines(lines)
    )
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps({**about, "lines": len(lines), **record}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
