"""How fast the rows decode, from raw text to finished text: latency one by one, throughput in large batches, memory.

Rows are measured in turn, several rounds, each round beginning with another row: a disturbed minute of the machine
does not fall on one row alone. What was measured is kept at once, so that a stopped comparison goes on.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from regard.config import Search
from regard.directory import read_json, write_json
from regard.errors import ModelError, RegardError
from regard.evaluation import spread
from regard.predict import Predictor
from regard.study.memory import measure_memory
from regard.study.row import Row

WARM = 3  # sentences decoded before the clock is looked at
SOME = 50  # the same for large batches
LINES = 1000  # decoded in large batches
LARGE = 16_384  # source tokens × beam decoded together: more than any search takes by itself

Item = TypeVar("Item")


@dataclass(frozen=True)
class Circumstances:
    """What figures of speed depend on beside the models."""

    texts: Sequence[str]
    data_sha256: str
    device: str
    threads: int
    machine: str
    torch: str
    sentences: int = 50  # decoded one by one
    batch: int = 0  # sentences decoded together where the most is wanted; 0: as many as have LARGE tokens


def interleaved(items: Sequence[Item], rounds: int) -> Iterator[tuple[int, Item]]:
    """Every item once a round; each round begins with another one."""
    for number in range(rounds):
        first = number % len(items) if items else 0
        yield from ((number, item) for item in [*items[first:], *items[:first]])


def measure_speed(
    path: Path,
    rows: Sequence[Row],
    searches: Mapping[str, Search],
    where: Circumstances,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """The figures of each row, kept in the file `path`; with no rounds, what is there from an earlier call."""
    key = {
        "models": {row.name: row.identity() for row in rows},
        "search": {name: search.model_dump(mode="json") for name, search in searches.items()},
        **{name: value for name, value in vars(where).items() if name != "texts"},
        "lines": LINES,
        "batch_tokens": LARGE,
    }
    kept = read_kept(path, say)
    if kept.get("measured") != key:
        kept = {"measured": key, "rounds": {row.name: [] for row in rows}, "memory": {}}
    for number, row in interleaved(rows, rounds):
        if len(kept["rounds"][row.name]) <= number:
            say(f"speed of {row.name}, round {number + 1} of {rounds}")
            predictor = row.load(where.device, where.threads)
            kept["rounds"][row.name].append(measure_round(predictor, where, searches[row.name], bool(row.rescore)))
            write_json(path, kept)
    for row in rows if rounds else ():
        if row.name not in kept["memory"]:
            say(f"memory of {row.name}")
            search = large(searches[row.name])
            texts = spread(where.texts, LINES)
            try:
                kept["memory"][row.name] = measure_memory(row, texts, search, where.device, where.threads)
            except RegardError as error:  # the other figures of the row hold all the same
                say(f"memory of {row.name}: {error}")
                continue
            write_json(path, kept)
    return {
        row.name: {"rounds": kept["rounds"][row.name], **summarise(kept["rounds"][row.name])}
        | kept["memory"].get(row.name, {})
        for row in rows
        if kept["rounds"][row.name]
    }


def read_kept(path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """What an earlier call has left."""
    if not path.is_file():
        return {}
    try:
        kept = read_json(path)
    except ModelError as error:
        say(f"{error}; the speed is measured anew")
        return {}
    return kept if isinstance(kept, dict) and {"measured", "rounds", "memory"} <= kept.keys() else {}


def large(search: Search) -> Search:
    """The same search with more decoded together."""
    return search.model_copy(update={"batch_tokens": max(LARGE, search.batch_tokens)})


def measure_round(predictor: Predictor, where: Circumstances, search: Search, judged: bool) -> dict[str, float]:
    """One round of one row; where another model chooses among several outputs, there is no greedy search."""
    greedy = search.model_copy(update={"method": "greedy", "nbest": 1})
    few, many = spread(where.texts, where.sentences), spread(where.texts, LINES)
    predictor.search = large(search)
    predictor.nbest(few[:SOME])
    start = time.perf_counter()
    found = [output for batch in batches(many, where.batch) for output in predictor.nbest(batch)]
    seconds = time.perf_counter() - start
    figures = {
        "latency_seconds": latency(predictor, few, search),
        "sentences_per_second": len(many) / seconds,
        "tokens_per_second": sum(len(outputs[0].ids) for outputs in found) / seconds,
    }
    if not judged:
        same = search == greedy
        figures["greedy_latency_seconds"] = figures["latency_seconds"] if same else latency(predictor, few, greedy)
    return figures


def batches(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    """So many texts of about equal length together; 0: all, which the search divides by itself."""
    if not size:
        return [texts]
    ordered = sorted(texts, key=len, reverse=True)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def latency(predictor: Predictor, texts: Sequence[str], search: Search) -> float:
    """The median seconds of a sentence that is decoded alone."""
    predictor.search = search
    for text in texts[:WARM]:
        predictor.nbest([text])
    times = []
    for text in texts:
        start = time.perf_counter()
        predictor.nbest([text])
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def summarise(rounds: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Each figure's median over the rounds, and its spread: (largest − smallest) / median."""
    found = {}
    for name in rounds[0] if rounds else ():
        values = [figures[name] for figures in rounds]
        median = statistics.median(values)  # 0: of the tokens of a model that says nothing
        found[name] = {"median": median, "spread": (max(values) - min(values)) / median if median else 0.0}
    return found
