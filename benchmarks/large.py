"""A corpus larger than memory should hold: does it prepare and train in little memory?

    python -m benchmarks.large --gigabytes 2        makes the file, prepares it, trains on it; takes an hour or so

Each command is a process of its own; the peak is the largest resident size it reached (Linux only). The record is
`benchmarks/large.json`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import memory
from benchmarks.process import ROOT, regard
from regard.origin import origin

WORDS, MEAN, LONGEST = 50_000, 12, 60  # kinds of words; words of a sentence
BLOCK = 100_000  # pairs made at a time


def words(generator: np.random.Generator) -> np.ndarray:
    """Made words of one to five syllables."""
    syllables = np.array([a + b for a in "bdfghjklmnprstvwz" for b in "aeiou"])
    counts = generator.integers(1, 6, WORDS)
    return np.array(["".join(generator.choice(syllables, count)) for count in counts])


def lines(generator: np.random.Generator) -> Iterator[str]:
    """Blocks of pairs without end, words as frequent as 1 / rank."""
    sides = words(generator), words(generator)
    while True:
        lengths = np.clip(generator.poisson(MEAN, BLOCK), 1, LONGEST)
        ranks = (WORDS ** generator.random(lengths.sum())).astype(int) - 1
        cuts = np.cumsum(lengths)[:-1]
        source, target = (np.split(side[ranks], cuts) for side in sides)
        yield "".join(f"{' '.join(a)}\t{' '.join(b)}\n" for a, b in zip(source, target, strict=True))


def write_corpus(path: Path, size: float, seed: int) -> int:
    """A file of pairs of at least so many bytes; how many pairs."""
    pairs, blocks = 0, lines(np.random.default_rng(seed))
    with path.open("w", encoding="utf-8", newline="\n") as file:
        while file.tell() < size:
            file.write(next(blocks))
            pairs += BLOCK
    return pairs


def measure(command: tuple[str, ...]) -> dict[str, Any]:
    """Seconds and peak memory of a command; its output goes to ours."""
    began, peak = time.monotonic(), 0
    about = {key: value for key, value in origin("", 0, 0.0, None).items() if key in ("commit", "threads")}
    process = subprocess.Popen(command)  # noqa: S603
    while process.poll() is None:  # what the system tells at the end counts the memory of this process too
        peak = max(peak, memory("VmHWM", str(process.pid)))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return {"seconds": time.monotonic() - began, "peak_bytes": peak, **about}


def main(arguments: list[str]) -> None:
    """Make, prepare, train, record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description="Memory with a large corpus.")
    parser.add_argument("--gigabytes", type=float, default=2.0, metavar="N")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="updates of the training")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--work", metavar="FOLDER", help="where the corpus is made and left (default: a temporary one)")
    parser.add_argument(
        "--train-only", action="store_true", help="what an earlier call left in --work and in the record is kept"
    )
    parser.add_argument("--result", default=str(ROOT / "benchmarks" / "large.json"), metavar="FILE")
    options = parser.parse_args(arguments)
    result = Path(options.result)
    if options.train_only and not (options.work and (Path(options.work) / "prepared").is_dir() and result.is_file()):
        parser.error("--train-only needs a --work folder and a record of an earlier call")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(options.work or temporary).resolve()
        work.mkdir(parents=True, exist_ok=True)
        corpus, prepared = work / "train.tsv", work / "prepared"
        record: dict[str, Any] = {}
        if options.train_only:
            shutil.rmtree(work / "run", ignore_errors=True)
            before = json.loads(result.read_bytes())
            record = {name: before[name] for name in ("pairs", "bytes", "prepare")}
        else:
            record["pairs"] = write_corpus(corpus, options.gigabytes * 1e9, options.seed)
            record["bytes"] = corpus.stat().st_size
            record["prepare"] = measure(regard("prepare", str(corpus), "-o", str(prepared)))
        steps = (f"train.{key}={options.steps}" for key in ("max_steps", "validate_every"))
        record["train"] = measure(regard("train", "--prepared", str(prepared), "-o", str(work / "run"), *steps))
    command = f"python -m benchmarks.large --gigabytes {options.gigabytes:g} --steps {options.steps}"
    command += " --train-only" if options.train_only else ""
    record |= origin(command, options.seed, time.monotonic() - began, None)
    result.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name in ("prepare", "train"):
        print(f"{name}: peak {record[name]['peak_bytes'] / 1e6:,.0f} MB, {record[name]['seconds']:,.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
