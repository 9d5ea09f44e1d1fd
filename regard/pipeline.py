"""A training run from options to a finished model: the place where the text column and the tensor column meet.

run.toml            the resolved options
data/               the prepared corpus
checkpoints/ …      the state of training (regard.train)
metrics.jsonl       what was measured on the way
model/              the finished model directory
report.html         curves, samples, settings
result.json         how it ended
"""

import difflib
import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from regard import __version__
from regard.config import Run, Search, apply_overrides, dump_toml, read_toml
from regard.data.batch import Batch
from regard.data.loader import Loader, sequential
from regard.directory import read_directory, write_directory, write_json
from regard.engine.native import NativeEngine, check_shapes, expected_shapes, find_device, load_model
from regard.errors import ConfigError, ModelError
from regard.metrics import find_metric
from regard.models.base import Model, build_model, model_options
from regard.predict import Predictor
from regard.prepare import Prepared, Say, open_prepared, prepare
from regard.tasks.translation import Translation
from regard.train.loop import Trainer
from regard.train.progress import Progress
from regard.train.state import Cancelled, Goal, Result, Validation
from regard.view.run import write_run_report


@dataclass(frozen=True)
class LikelihoodObjective:
    """Maximum likelihood with label smoothing: what most models are trained for."""

    model: Model
    smoothing: float

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Summed loss and number of target tokens."""
        return self.model.loss(batch, self.smoothing)


class Evaluator:
    """Looks at the validation data: the loss of all, and really decoded outputs of some, with their scores."""

    def __init__(self, run: Run, prepared: Prepared) -> None:
        self.run = run
        self.prepared = prepared
        self.metric = prepared.task.metric(run.train.metric)
        self.pairs = spread(prepared.valid_pairs, run.train.decode_limit)

    @property
    def goal(self) -> Goal:
        """What "better" means."""
        if self.metric in ("loss", "perplexity") or not self.pairs:
            return Goal("loss", higher=False)
        return Goal(self.metric, higher=find_metric(self.metric).higher_is_better)

    def __call__(self, model: nn.Module, stop: Callable[[], bool]) -> Validation:
        assert isinstance(model, Model)
        training = model.training
        model.eval()
        try:
            loss = self._loss(model, stop)
            metrics, samples = self._decode(model, stop) if self.pairs else ({}, [])
        finally:
            model.train(training)
        return Validation(loss, math.exp(min(loss, 700)), metrics, samples)

    @torch.no_grad()
    def _loss(self, model: Model, stop: Callable[[], bool]) -> float:
        total, tokens = 0.0, 0
        for batch in sequential(self.prepared.valid, self.run.data.batch_tokens, self.run.data.batch_rows):
            loss, count = model.loss(batch)
            total, tokens = total + float(loss), tokens + count
            if stop():
                raise Cancelled
        return total / tokens

    def _decode(self, model: Model, stop: Callable[[], bool]) -> tuple[dict[str, float], list[dict[str, str]]]:
        search = Search(method="greedy", growth=self.run.search.growth, batch_tokens=self.run.search.batch_tokens)
        task = self.prepared.task
        predictor = Predictor(task, NativeEngine([model]), search, self.run.data.max_length, {})
        outputs: list[str] = []
        for start in range(0, len(self.pairs), 256):
            sources = [pair.source for pair in self.pairs[start : start + 256]]
            outputs += [hypothesis.text for hypothesis in predictor.translate(sources)]
            if stop():
                raise Cancelled
        names = ({"loss", "perplexity"}.isdisjoint({self.metric}) and [self.metric]) or ["bleu"]
        scores = task.score(names, outputs, [pair.target for pair in self.pairs])
        samples = [
            {"source": pair.source, "reference": pair.target, "output": output}
            for pair, output in spread(list(zip(self.pairs, outputs, strict=True)), self.run.train.samples)
        ]
        return {name: score.value for name, score in scores.items()}, samples


def spread(items: Sequence[Any], number: int) -> list[Any]:
    """At most `number` items, evenly over the whole."""
    if len(items) <= number:
        return list(items)
    return [items[place * len(items) // number] for place in range(number)]


def train(
    run: Run,
    output: str | Path,
    *,
    start_from: str | Path | None = None,
    device: str = "auto",
    allow: Sequence[str] = (),
    quiet: bool = False,
    command: str = "",
) -> Predictor:
    """Train by the options of `run` in the directory `output`, going on from where an earlier call was stopped."""
    directory = Path(output)
    progress = Progress(quiet=quiet)
    run = check_options(run)
    run = settle(run, directory, allow, start_from)
    if (directory / "model" / "MANIFEST.json").exists():
        progress.say(f"{directory}: this run has finished; nothing to train (remove the directory to train anew)")
        return load_finished(directory, device)
    if run.threads:
        torch.set_num_threads(run.threads)
    prepared = make_corpus(run, directory, start_from, progress.say)
    model = make_model(run, prepared.task, start_from).to(find_device(device))
    describe(run, prepared, model, progress.say)
    evaluator = Evaluator(run, prepared)
    loader = Loader(prepared.train, run.data.batch_tokens, run.data.batch_rows, run.seed, run.data.workers)
    trainer = Trainer(
        LikelihoodObjective(model, run.train.label_smoothing),
        loader,
        evaluator,
        evaluator.goal,
        run.train,
        directory,
        seed=run.seed,
        width=getattr(model.options, "width", 512),
        progress=progress,
        resume_hint=f"go on with: {command}" if command else "the same call goes on from there",
    )
    result = trainer.run()
    finish(run, directory, prepared, model, result, command)
    progress.say(f"finished: model in {directory / 'model'}, report in {directory / 'report.html'}")
    return load_finished(directory, device)


def load_finished(directory: Path, device: str) -> Predictor:
    """The finished model of a run."""
    from regard.predict import load

    return load(directory, device=device)


def check_options(run: Run) -> Run:
    """Check the model's own options and write them out in full."""
    kind = run.model.get("kind", "transformer")
    _, options = model_options(run.model)
    return run.model_copy(update={"model": {"kind": kind, **options.model_dump(mode="json")}})


def settle(run: Run, directory: Path, allow: Sequence[str], start_from: str | Path | None) -> Run:
    """Write run.toml, or compare with the one that is there: a changed option must be allowed by name."""
    path = directory / "run.toml"
    if not path.exists():
        if directory.exists() and any(directory.iterdir()):
            raise ConfigError(f"{directory}: exists and is not a run directory; choose another -o")
        directory.mkdir(parents=True, exist_ok=True)
        note = f"# started from {start_from}\n" if start_from else ""
        path.write_text(note + dump_toml(run), encoding="utf-8")
        return run
    before, now = dump_toml(Run.model_validate(read_toml(path))), dump_toml(run)
    changed = sorted(differing(read_toml(path), json.loads(run.model_dump_json(exclude_none=True))))
    refused = [key for key in changed if key not in allow]
    if refused:
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), str(path), "now", n=0, lineterm="")
        flags = " ".join(f"--allow-change {key}" for key in refused)
        raise ConfigError(
            f"{path}: this run was started with other options:\n"
            + "\n".join(lines)
            + f"\nto go on all the same: {flags}"
        )
    if changed:
        path.write_text(now, encoding="utf-8")
    return run


def differing(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> set[str]:
    """Dotted names of the values that differ."""
    found: set[str] = set()
    for key in before.keys() | now.keys():
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found |= differing(old, new, f"{prefix}{key}.")
        elif old != new:
            found.add(prefix + key)
    return found


def make_corpus(run: Run, directory: Path, start_from: str | Path | None, say: Say) -> Prepared:
    """The prepared corpus of a run; a run that goes on from a model uses that model's tokenizers."""
    if run.data.prepared:
        return open_prepared(Path(run.data.prepared))
    if start_from is None:
        return prepare(run, directory / "data", say)
    source, config = read_directory(start_from)
    task = Translation.load(source, run.text)
    return prepare(run, directory / "data", say, task)


def make_model(run: Run, task: Translation, start_from: str | Path | None) -> Model:
    """A fresh model by the seed, or the weights of an existing one."""
    sizes = task.source.tokenizer.size, task.target.tokenizer.size
    torch.manual_seed(run.seed)
    model = build_model(run.model, *sizes)
    if start_from is not None:
        directory, config = read_directory(start_from)
        found = load_model(directory, config)
        check_shapes(directory / "model.safetensors", expected_shapes(model), expected_shapes(found))
        model.load_state_dict(found.state_dict())
    return model


def describe(run: Run, prepared: Prepared, model: Model, say: Say) -> None:
    """Tell what will be trained on what."""
    facts = prepared.facts
    say(
        f"{facts['train']['pairs']:,} training and {facts['valid']['pairs']:,} validation pairs, "
        f"{facts['train']['source_tokens']:,} + {facts['train']['target_tokens']:,} tokens"
    )
    for name in ("empty", "too_long"):
        if facts["train"][name]:
            say(f"left out: {facts['train'][name]:,} pairs ({name.replace('_', ' ')})")
    say(f"model: {run.model['kind']}, {count_parameters(model):,} parameters")


def count_parameters(model: nn.Module) -> int:
    """Trained numbers, shared ones counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def finish(run: Run, directory: Path, prepared: Prepared, model: Model, result: Result, command: str) -> None:
    """Write the finished model, the result and the report."""
    chosen = result.validations[result.candidate] if result.candidate in result.validations else None
    summary = {
        "command": command,
        "seed": run.seed,
        "regard": __version__,
        "torch": torch.__version__,
        "machine": machine_kind(),
        "threads": torch.get_num_threads(),
        "data_sha256": prepared.facts.get("data_sha256"),
        "candidate": result.candidate,
        "stopped_by": result.reason,
        "steps": result.steps,
        "epochs": result.epochs,
        "skipped_steps": result.skipped,
        "training_seconds": round(result.seconds, 1),
        "validation": {} if chosen is None else {"loss": chosen.loss, **chosen.metrics},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    save_model(directory / "model", run, prepared.task, model, summary)
    write_json(directory / "result.json", summary)
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    shown = {"model": run.model["kind"], "parameters": count_parameters(model), **summary}
    write_run_report(
        directory / "report.html",
        {
            "title": str(directory),
            "metrics": records,
            "settings": (directory / "run.toml").read_text(encoding="utf-8"),
            "summary": shown,
        },
    )


def machine_kind() -> str:
    """The kind of machine, without its name."""
    return f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads, {platform.python_version()}"


def save_model(path: Path, run: Run, task: Translation, model: Model, training: dict[str, Any]) -> None:
    """A model directory that loads by its path alone."""
    config = {
        "regard": __version__,
        "task": run.task,
        "model": run.model,
        "text": task.options.model_dump(mode="json"),
        "search": run.search.model_dump(mode="json"),
        "vocabulary": {"source": task.source.tokenizer.size, "target": task.target.tokenizer.size},
        "longest": run.data.max_length,
        "parameters": count_parameters(model),
        "training": training,
    }

    def fill(directory: Path) -> None:
        task.save(directory)
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.named_parameters()}
        save_file(weights, directory / "model.safetensors")

    write_directory(path, config, fill)


def average_models(paths: Sequence[str | Path], output: str | Path) -> None:
    """The mean of the weights of several models of one shape, as a new model directory."""
    found = [read_directory(path) for path in paths]
    first_directory, first = found[0]
    for directory, config in found[1:]:
        if differing(first["model"], config["model"]) or config["vocabulary"] != first["vocabulary"]:
            raise ModelError(f"{directory}: cannot be averaged with {first_directory}: another model or vocabulary")
    models = [load_model(directory, config) for directory, config in found]
    with torch.no_grad():
        for name, parameter in models[0].named_parameters():
            same = [dict(model.named_parameters())[name].double() for model in models]
            parameter.copy_(torch.stack(same).mean(0))
    run = Run.model_validate(
        {"model": first["model"], "search": first["search"], "data": {"max_length": first["longest"]}}
    )
    from regard.predict import load

    save_model(Path(output), run, load(first_directory).task, models[0], {"averaged": [str(path) for path in paths]})


def overridden(run: Run, overrides: list[str]) -> Run:
    """A run with `section.key=value` overrides."""
    return Run.model_validate(apply_overrides(run.model_dump(mode="json"), overrides))
