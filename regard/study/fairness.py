"""What must be the same for a comparison to be fair, what may differ and is told, and whether it is so.

The same for all: tokenizers, training and validation pairs, order of the data, token budget of an update, starting
weights, objective and precision, stopping rule, which weights are kept, search, machine. Each model has its own paper's
optimiser settings, which are told. The number of parameters should lie within 20 % of the first row's; where it does
not, the difference is told.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Run, Search, Train
from regard.directory import hash_file, identify, read_directory
from regard.errors import ModelError
from regard.evaluation import default_metrics
from regard.study.quality import row_search
from regard.study.row import Row

TOLERANCE = 0.2  # of the number of parameters
TOKENIZERS = ("tokenizer.json", "source.json", "target.json")


@dataclass(frozen=True)
class Facts:
    """What is known about how a row came about."""

    row: Row
    directory: Path  # of the finished model
    config: Mapping[str, Any]  # its config.json
    search: Search  # what it is tested with


@dataclass(frozen=True)
class Check:
    """One thing that must be the same: its value in each row, None where nobody knows."""

    what: str
    values: Mapping[str, str | None]

    @property
    def is_same(self) -> bool:
        """Whether all known values are one."""
        return len(set(self.values.values()) - {None}) < 2

    @property
    def unknown(self) -> list[str]:
        """The rows nothing is known of."""
        return [name for name, value in self.values.items() if value is None]


def read_facts(row: Row, search: Mapping[str, Any]) -> Facts:
    """A trained row with its configuration; every file is checked."""
    directory, config = read_directory(row.directory)
    return Facts(row, directory, config, row_search(row, search))


def check_fairness(rows: Sequence[Facts]) -> list[Check]:
    """Everything that must be the same, with its values."""
    asked = {
        "tokenizers": _tokenizers,
        "training pairs": _training_pairs,
        "validation pairs": _validation_pairs,
        "order of the data": _order,
        "token budget of an update": lambda facts: _of_run(facts, budget),
        "pairs left out": lambda facts: _of_run(facts, _left_out),
        "starting weights": lambda facts: _of_run(facts, _start),
        "objective and precision": lambda facts: _of_run(facts, _objective),
        "stopping rule": lambda facts: _of_run(facts, stopping_rule),
        "weights kept": lambda facts: _of_run(facts, _kept),
        "search": _search,
        "machine and threads of training": _machine,
    }
    return [Check(what, {facts.row.name: ask(facts) for facts in rows}) for what, ask in asked.items()]


def far_sizes(parameters: Mapping[str, int]) -> dict[str, float]:
    """Rows whose number of parameters is not within 20 % of the first row's → the difference as a share of it."""
    first = next(iter(parameters.values()), 0)
    shares = {name: number / first - 1 for name, number in parameters.items() if first}
    return {name: share for name, share in shares.items() if abs(share) > TOLERANCE}


def settings(facts: Facts) -> dict[str, str | None]:
    """What a model has of its own: its kind and size, and its paper's optimiser settings."""
    model = facts.config["model"]
    own = {"model": describe_model(model), "dropout": _dropout(model)}
    run = facts.row.run
    if run is None:
        return own | dict.fromkeys(("optimiser", "rate", "clip", "smoothing", "batch"))
    train = run.train
    warmup = f", {train.warmup:,} updates of warm-up" if train.warmup else ""
    return own | {
        "optimiser": describe_optimiser(train),
        "rate": f"{_power(train.rate)} {train.schedule.replace('_', ' ')}{warmup}",
        "clip": f"{train.clip:g}" if train.clip else "none",
        "smoothing": f"{train.label_smoothing:g}",
        "batch": budget(run),
    }


def describe_optimiser(train: Train) -> str:
    """An optimiser with the numbers it goes by."""
    small = f"ε {_power(train.epsilon)}"
    own = {
        "adadelta": f" ρ {train.decay:g} {small}",
        "sgd": f" momentum {train.momentum:g}" if train.momentum else "",
        "nesterov": f" momentum {train.momentum:g}",
    }
    numbers = own.get(train.optimiser, f" β {train.betas[0]:g}, {train.betas[1]:g} {small}")
    decay = f", weight decay {train.weight_decay:g}" if train.weight_decay else ""
    return f"{train.optimiser}{numbers}{decay}"


def budget(run: Run) -> str:
    """How much an update is made from."""
    tokens = f"{run.data.batch_tokens * run.train.accumulate:,} tokens"
    several = f" in {run.train.accumulate} batches" if run.train.accumulate > 1 else ""
    rows = f", at most {run.data.batch_rows:,} rows a batch"
    return tokens + several + rows


def stopping_rule(run: Run) -> str:
    """When training ends."""
    train = run.train
    limits = {"updates": train.max_steps, "passes": train.max_epochs, "minutes": train.max_minutes}
    parts = [f"{limit:,g} {what}" for what, limit in limits.items() if limit]
    if train.patience:
        parts.append(f"{train.patience} validations without better {aim(run)}")
    return " or ".join(parts)


def aim(run: Run) -> str:
    """What "better" means in training: the loss where nothing is decoded, else the metric."""
    metric = run.train.metric
    if metric == "auto":
        metric = default_metrics(run.text)[0]
    return "loss" if metric == "perplexity" or not run.train.decode_limit else metric.replace("_", " ")


def describe_search(search: Search) -> str:
    """A search in a few words; all that can change an output is among them."""
    parts = [search.method]
    if search.method == "beam":
        finished = f" until {search.beam} are finished" if search.stop == "count" else ""
        parts = [f"beam {search.beam}{finished}", f"{search.penalty} penalty {search.alpha:g}"]
    if search.method == "sample":
        parts.append(f"seed {search.seed}")
        changes = {"temperature": search.temperature, "top k": search.top_k, "top p": search.top_p}
        parts += [f"{name} {value:g}" for name, value in changes.items() if value not in (0, 1)]
    parts += [f"{search.passes} passes"] if search.passes > 1 else []
    parts += [f"at least {search.minimum_length} tokens"] if search.minimum_length else []
    longest = f"{search.maximum_length:,}" if search.maximum_length else f"{search.growth or 2:g} × source + 10"
    parts.append(f"at most {longest} tokens")
    parts += [f"no {search.no_repeat}-gram twice"] if search.no_repeat else []
    return ", ".join(parts)


def describe_model(model: Mapping[str, Any]) -> str:
    """A model's kind, its sizes and what is switched on; dropout is told elsewhere."""
    parts = [str(model.get("kind", "transformer"))]
    for name, value in model.items():
        plain = name.replace("_", " ")
        if value is True:
            parts.append(plain)
        elif name != "kind" and isinstance(value, int | str) and value:
            parts.append(f"{plain} {value}")
    return ", ".join(parts)


def _power(value: float) -> str:
    return f"{value:g}".replace("e-0", "e-")


def _of_run(facts: Facts, tell: Any) -> str | None:
    return None if facts.row.run is None else tell(facts.row.run)


def _tokenizers(facts: Facts) -> str:
    digest = hashlib.sha256()
    for name in TOKENIZERS:
        if (path := facts.directory / name).exists():
            digest.update(f"{name} {hash_file(path)}\n".encode())
    text, sizes = facts.config["text"], facts.config["vocabulary"]
    kinds = text["source"] if text["source"] == text["target"] else f"{text['source']} to {text['target']}"
    number = f"{sizes['source']:,}" if text["joint"] else f"{sizes['source']:,} and {sizes['target']:,}"
    # the text options belong to it: they say what is done to a line before its tokenizer sees it
    digest.update(repr(sorted(text.items())).encode())
    return f"{kinds}, {number} pieces ({digest.hexdigest()[:8]})"


def _order(facts: Facts) -> str | None:
    """Batches are made of lengths, so their order depends on tokenizers, pairs and budget too."""
    run = facts.row.run
    if run is None:
        return None
    ruled = (_tokenizers(facts), _training_pairs(facts), budget(run), _left_out(run))
    return f"seed {run.seed} ({hashlib.sha256(repr(ruled).encode()).hexdigest()[:8]})"


def _start(run: Run) -> str:
    if not (start := run.start or run.start_encoder):
        return "none"
    try:
        told = f"{Path(start).name} ({identify(start)[:8]})"
    except ModelError:  # it is gone, but not what came of it
        told = Path(start).name
    return told if run.start else f"encoder{' and decoder' if run.start_decoder else ''} of {told}"


def _objective(run: Run) -> str:
    reverse = run.reverse and f" and {run.reverse.weight:g} × what {Path(run.reverse.teacher).name} holds against it"
    return f"likelihood{reverse or ''}, {run.train.precision}"


def _search(facts: Facts) -> str:
    row = facts.row
    engine = "" if row.engine == "torch" else f", by {row.engine}"
    judge = f", the choice of {Path(row.rescore).name}" if row.rescore else ""
    return describe_search(facts.search) + engine + judge


def _training_pairs(facts: Facts) -> str | None:
    training = facts.config.get("training") or {}
    found, taught = training.get("data_sha256"), training.get("distilled")
    if not found or not isinstance(taught, dict):
        return found and found[:8]
    mixed = " and as they are" if taught.get("mix") else ""
    return f"{found[:8]} in a teacher's words ({str(taught.get('sha256'))[:8]}){mixed}"


def _validation_pairs(facts: Facts) -> str | None:
    run = facts.row.run
    if run is None:
        return None
    path = (Path(run.data.prepared) if run.data.prepared else facts.row.directory / "data") / "valid.jsonl"
    return hash_file(path)[:8] if path.is_file() else None


def _left_out(run: Run) -> str:
    first = f", after the first {run.data.max_pairs:,}" if run.data.max_pairs else ""
    return f"longer than {run.data.max_length:,} tokens{first}"


def _kept(run: Run) -> str:
    train = run.train
    best = f"best {aim(run)}"
    average = f"the mean of the last {train.average}" if train.average else ""
    moving = f"a moving average of {train.ema:g}" if train.ema else ""
    kept = {"best": best, "last": "the last", "average": average, "ema": moving}
    kept["auto"] = " or ".join(part for part in (best, average, moving) if part)
    every = "pass" if train.validate_every == "epoch" else f"{train.validate_every:,} updates"
    decoded = f", {train.decode_limit:,} pairs decoded" if train.decode_limit else ""
    return f"{kept[train.keep]}; a validation every {every}{decoded}"


def _machine(facts: Facts) -> str | None:
    training = facts.config.get("training") or {}
    if "machine" not in training:
        return None
    return f"{training['machine']}, threads: {training.get('threads')}"


def _dropout(model: Mapping[str, Any]) -> str | None:
    values = {name.replace("_", " "): value for name, value in model.items() if "dropout" in name and value}
    if not values:
        return "none"
    return ", ".join(f"{value:g}" if name == "dropout" else f"{name} {value:g}" for name, value in values.items())
