"""A comparison from rows to figures: what is trained, scored, timed and looked at, gathered as plain values.

Everything that takes long is kept in the folder of the comparison and passed over by the next call:

NAME/               the run directory of a recipe
NAME.result/        outputs and scores of a row, as `regard evaluate --save` writes them
speed.json          latency, throughput and memory, round by round
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.config import Text
from regard.errors import ConfigError, DataError
from regard.metrics import find_metric
from regard.predict import load, read_section
from regard.study.fairness import Check, Facts, check_fairness, far_sizes, read_facts, settings
from regard.study.history import History, Reach, choose_reach, describe_history, read_history
from regard.study.quality import Judge, Quality, choose_metrics
from regard.study.row import HeldOut, Row
from regard.study.speed import Circumstances, measure_speed
from regard.study.training import Failures, check_rows, noted, train_rows


@dataclass(frozen=True)
class Question:
    """What is asked of the rows beside the rows themselves."""

    held_out: HeldOut
    metrics: Sequence[str] = ()  # none: by the first row's tokenizer
    samples: int = 1000  # of the bootstrap
    search: Mapping[str, Any] = field(default_factory=dict)  # what differs from a model's own
    reach: tuple[str, float] | None = None  # validation measure and value; none: chosen
    sentence: str = ""  # whose attention is shown
    rounds: int = 3  # of the speed; 0: only what is there
    sentences: int = 50  # decoded one by one, for the latency
    batch: int = 0  # sentences decoded together, for the throughput; 0: as many as have many tokens
    only_trained: bool = False
    device: str = "auto"
    quiet: bool = False
    command: str = ""

    def say(self, text: str) -> None:
        """A line for the user."""
        if not self.quiet:
            print(text, file=sys.stderr)


@dataclass
class Findings:
    """What has been found of each row; a row that failed on the way is in no later table."""

    facts: dict[str, Facts] = field(default_factory=dict)
    qualities: dict[str, Quality] = field(default_factory=dict)
    speed: dict[str, dict[str, Any]] = field(default_factory=dict)
    attention: dict[str, dict[str, Any]] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)


def compare(rows: Sequence[Row], output: Path, question: Question) -> tuple[dict[str, Any], Failures]:
    """Train what is not trained, measure what is not measured; all figures, and the rows that failed."""
    import torch

    from regard.origin import machine, origin

    begun = time.monotonic()
    check_rows(rows)
    failures = train_rows(
        rows,
        device=question.device,
        quiet=question.quiet,
        command=question.command,
        only_trained=question.only_trained,
    )
    output.mkdir(parents=True, exist_ok=True)
    found = Findings()
    for row in rows:
        if row.name not in failures:
            with noted(failures, row.name):
                found.facts[row.name] = read_facts(row, question.search)
    judge = score_rows(rows, output, question, found, failures)
    sound = [row for row in rows if row.name not in failures]
    if sound:
        searches = {row.name: found.facts[row.name].search for row in sound}
        texts = [pair.source for pair in question.held_out.pairs]
        versions = torch.get_num_threads(), machine(), torch.__version__
        load = question.sentences, question.batch
        where = Circumstances(texts, question.held_out.data_sha256, question.device, *versions, *load)
        found.speed = measure_speed(output / "speed.json", sound, searches, where, question.rounds, question.say)
    about = origin(question.command, 1, time.monotonic() - begun, question.held_out.data_sha256)
    del about["seed"]  # each row has its own
    return {"format": 1, **about, **gather(rows, question, judge, found, failures)}, failures


def score_rows(
    rows: Sequence[Row], output: Path, question: Question, found: Findings, failures: Failures
) -> Judge | None:
    """Scores, learning curves and attention of every row that is there; how they were scored."""
    first = next(iter(found.facts.values()), None)
    if first is None:
        return None
    text = read_section(Text, first.directory, dict(first.config), "text")
    metrics = question.metrics or choose_metrics(text)
    for name in metrics:
        find_metric(name)
    judge = Judge(question.held_out, metrics, question.samples, question.search, question.device, question.command)
    for name, facts in found.facts.items():
        with noted(failures, name):
            question.say(f"scores of {name}")
            found.qualities[name] = judge.score(facts.row, output / f"{name}.result")
            found.attention[name] = look(facts, question)
            if not facts.row.is_variant and (history := read_history(facts.row.directory)):
                found.histories[name] = history
    return judge


def look(facts: Facts, question: Question) -> dict[str, Any]:
    """The most telling head of a row over its own output for the chosen sentence."""
    predictor = load(facts.row.directory, device=question.device, rescore=facts.row.rescore)
    try:
        view = predictor.attend(question.sentence, **facts.search.model_dump()).views[0]
    except DataError as error:  # too long for this model, or nothing in it
        return {"text": "", "missing": str(error)}
    best = view.most_telling("cross")
    if best is None:
        return {"text": view.text, "missing": "this model has no attention between input and output"}
    layer, head = best
    rows, columns = view.labels(layer)
    return {
        "text": view.text,
        "map": layer.name,
        "head": head + 1,
        "heads": len(layer.weights),
        "rows": rows,
        "columns": columns,
        "weights": [[float(weight) for weight in line] for line in layer.weights[head]],
    }


def gather(
    rows: Sequence[Row], question: Question, judge: Judge | None, found: Findings, failures: Failures
) -> dict[str, Any]:
    """All findings as plain values."""
    metrics = list(judge.metrics) if judge else list(question.metrics)
    sound = [name for name in found.facts if name not in failures]
    first = sound[0] if sound else None
    kept = [found.facts[name] for name in sound]
    checks = check_fairness(kept)
    histories = {name: found.histories[name] for name in sound if name in found.histories}
    reach = None
    try:
        reach = choose_reach(histories, metrics, question.reach, has_one_loss(checks, found.facts, sound))
    except ConfigError as error:  # the table holds without that column
        question.say(str(error))
    tokenizer = found.facts[first].config["text"]["source"] if first else ""
    parameters = {facts.row.name: facts.config["parameters"] for facts in kept}
    return {
        "test": {"files": list(question.held_out.names), "lines": len(question.held_out.pairs)},
        "metrics": metrics,
        "first": first,
        "reach": None if reach is None else asdict(reach),
        "length_unit": "characters" if tokenizer in ("characters", "bytes") else "words",
        "sentence": question.sentence,
        "fairness": {
            "checks": [{"what": check.what, "same": check.is_same, "values": dict(check.values)} for check in checks],
            "sizes": far_sizes(parameters),
        },
        "rows": [
            {"name": row.name, "failure": str(failures[row.name])}
            if row.name in failures
            else gather_row(row.name, str(first), tokenizer, judge, found, reach)
            for row in rows
        ],
    }


def has_one_loss(checks: Sequence[Check], facts: Mapping[str, Facts], names: Sequence[str]) -> bool:
    """Whether losses can be compared: of the same tokens, by models of one kind or that write word after word."""
    from regard.pipeline import writes_in_order

    kinds = {facts[name].config["model"].get("kind", "transformer") for name in names}
    alike = len(kinds) < 2 or all(map(writes_in_order, kinds))
    return alike and next((check.is_same for check in checks if check.what == "tokenizers"), True)


def gather_row(
    name: str, first: str, tokenizer: str, judge: Judge | None, found: Findings, reach: Reach | None
) -> dict[str, Any]:
    """The figures of one row."""
    assert judge is not None
    facts, quality, history = found.facts[name], found.qualities[name], found.histories.get(name)
    training = facts.config.get("training") or {}
    arrived = history.reached(reach.measure, reach.value) if history and reach else None
    told = ("seconds", "steps", "epochs", "stopped_by", "candidate", "machine", "threads", "seed", "commit")
    return {
        "name": name,
        "failure": None,
        "kind": facts.config["model"].get("kind", "transformer"),
        "parameters": facts.config["parameters"],
        "settings": settings(facts),
        "training": {key: training.get(key) for key in told} | (describe_history(history) if history else {}),
        "reached": None if arrived is None else {"seconds": arrived.seconds, "step": arrived.step},
        "scores": quality.result["scores"],
        "notes": quality.result["notes"],
        "against_first": {} if name == first else judge.against(found.qualities[first], quality),
        "by_length": judge.by_length(quality, tokenizer),
        "speed": found.speed.get(name),
        "attention": found.attention[name],
    }


def choose_sentence(held_out: HeldOut, line: int | None) -> str:
    """A source of the test pairs: the one of that number, or the first one of middling length."""
    sources = [pair.source for pair in held_out.pairs]
    if line is not None:
        if not 1 <= line <= len(sources):
            raise ConfigError(f"--line {line}: the test has {len(sources)} lines")
        return sources[line - 1]
    filled = [source for source in sources if source.strip()]
    if not filled:
        raise DataError(f"{held_out.names[0]}: every source is blank")
    middle = sorted(map(len, filled))[len(filled) // 2]
    return next(source for source in filled if len(source) == middle)
