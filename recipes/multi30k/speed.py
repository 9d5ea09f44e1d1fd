"""How much faster another model is than a first one in the compiled engine, and what it costs in BLEU.

    python -m recipes.multi30k.speed FIRST OTHER SOURCES REFERENCES -o RECORD      (exported models of the same text)

Both search the same lines, greedily and with five beams, in turn and with a worker on every core; reading and writing
text is not counted. `student.result/speed.json` is a student beside its teacher, `fast.result/int8.json` a model beside
itself with int8 weights. With --times N speed is measured on the file N times over.
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
from regard.evaluation import hash_lines, scores
from regard.origin import origin
from regard.predict import Predictor, in_parallel, length_batches, load

SEARCHES = {"greedy": Search(method="greedy"), "beam 5": Search(beam=5, stop="count", alpha=1.0)}
ROUNDS = 5


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


def measure(sides: dict[str, Predictor], sources: list[str], references: list[str], times: int) -> dict[str, Any]:
    """Of each search: sentences per second of both, how many times faster the other one is, BLEU of both."""
    read = {name: times * [list(part.ids) for part in predictor.read(sources)] for name, predictor in sides.items()}
    found: dict[str, Any] = {}
    for name, options in SEARCHES.items():
        rounds: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(ROUNDS + 1):  # the first one warms up
            for side, predictor in sides.items():
                taken = seconds(predictor, read[side], options)
                if number:
                    rounds[side].append(taken)
        first, other = rounds.values()
        quality = {side: score(predictor, sources, references, options) for side, predictor in sides.items()}
        found[name] = {
            "seconds": rounds,
            "sentences_per_second": {side: len(read[side]) / statistics.median(rounds[side]) for side in sides},
            "ratio": statistics.median(one / two for one, two in zip(first, other, strict=True)),
            "scores": quality,
        }
        shown = {side: round(each["lower_bleu"]["value"], 2) for side, each in quality.items()}
        print(f"{name}: {found[name]['ratio']:.2f} times as fast, BLEU {shown}", file=sys.stderr, flush=True)
    return found


def score(predictor: Predictor, sources: list[str], references: list[str], options: Search) -> dict[str, Any]:
    """BLEU of the finished outputs, lower-case, with its interval."""
    outputs = [output.text for output in predictor.translate(sources, **options.model_dump())]
    return scores(["lower_bleu"], {"": (outputs, references)}, samples=1000)["scores"]


def main(arguments: list[str]) -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(prog="python -m recipes.multi30k.speed", description="Two models in the engine.")
    for name in ("FIRST", "OTHER", "SOURCES", "REFERENCES"):
        parser.add_argument(name.lower(), metavar=name)
    parser.add_argument("-o", "--output", metavar="RECORD", required=True)
    parser.add_argument("--times", type=int, default=4, metavar="N")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    sources, references = list(read_lines(options.sources)), list(read_lines(options.references))
    sides = {
        name: load(path, engine="ctranslate2", workers=os.cpu_count() or 1)
        for name, path in (("first", options.first), ("other", options.other))
    }
    record = measure(sides, sources, references, options.times)
    names = [Path(path).name for path in (options.first, options.other, options.sources, options.references)]
    command = (
        f"python -m recipes.multi30k.speed {' '.join(names)} -o {Path(options.output).name} --times {options.times}"
    )
    about = origin(command, 1, time.monotonic() - began, hash_lines(sources, references))
    about |= {"sides": {"first": names[0], "other": names[1]}, "lines": len(sources), "times": options.times}
    Path(options.output).parent.mkdir(exist_ok=True)
    Path(options.output).write_text(json.dumps({**about, **record}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
