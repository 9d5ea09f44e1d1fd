"""A training run from options to a finished model: the place where the text column and the tensor column meet.

run.toml            the resolved options
distilled.jsonl     what the teacher says, where there is one (regard.distill)
data/               the prepared corpus
checkpoints/ …      the state of training (regard.training)
metrics.jsonl       what was measured on the way
model/              the finished model directory
report.html         curves, samples, settings
result.json         how it ended
"""

import difflib
import json
import math
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from regard import __version__
from regard.columns import add_columns, check_aligner
from regard.config import Data, Run, Search, differing, dump_toml, read_toml, validate
from regard.data.loader import Loader, sequential
from regard.directory import MANIFEST, find_directory, has_begun, read_directory, write_directory, write_json
from regard.distill import distill, teacher_task
from regard.engine.native import NativeEngine, find_device, load_model
from regard.errors import ConfigError, ModelError
from regard.evaluation import spread
from regard.metrics import find_metric
from regard.models.base import Autoregressive, Model, build_model, model_class, model_options
from regard.models.nonautoregressive import NonAutoregressive
from regard.objective import LikelihoodObjective, ReverseObjective
from regard.origin import origin
from regard.predict import Predictor, load, load_task, read_section, same_tokenizers
from regard.prepare import Prepared, Say, open_prepared, prepare, require_same, start_task
from regard.start import make_model
from regard.tasks.translation import Translation
from regard.training.loop import Trainer
from regard.training.progress import Progress
from regard.training.state import Cancelled, Goal, Result, Validation
from regard.training.storage import Lock
from regard.training.update import Objective
from regard.training.weights import load_model as load_weights
from regard.training.weights import mean, model_tensors
from regard.view.run import write_run_report


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
        return total / tokens if tokens else math.inf  # no target can be written

    def _decode(self, model: Model, stop: Callable[[], bool]) -> tuple[dict[str, float], list[dict[str, str]]]:
        own = self.run.search.model_dump(include={"growth", "passes", "batch_tokens"})
        search = Search(method="greedy", **own)
        task = self.prepared.task
        predictor = Predictor(task, NativeEngine([model]), search, self.run.data.max_length, {})
        outputs: list[str] = []
        for start in range(0, len(self.pairs), 256):
            sources = [pair.source for pair in self.pairs[start : start + 256]]
            outputs += [hypothesis.text for hypothesis in predictor.translate(sources)]
            if stop():
                raise Cancelled
        name = task.metric("auto") if self.metric in ("loss", "perplexity") else self.metric
        scores = task.score([name], outputs, [pair.target for pair in self.pairs])
        samples = [
            {"source": pair.source, "reference": pair.target, "output": output}
            for pair, output in spread(list(zip(self.pairs, outputs, strict=True)), self.run.train.samples)
        ]
        return {name: score.value for name, score in scores.items()}, samples


def train(
    run: Run,
    output: str | Path,
    *,
    device: str = "auto",
    allow: Sequence[str] = (),
    quiet: bool = False,
    command: str = "",
) -> Predictor:
    """Train by the options of `run` in the directory `output`, going on from where an earlier call was stopped."""
    directory = Path(output)
    progress = Progress(quiet=quiet)
    run = check_options(run)
    where = find_device(device)
    if not (directory / "run.toml").exists() and directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory}: exists and is not a run directory; choose another -o")
    directory.mkdir(parents=True, exist_ok=True)
    with Lock(directory, "run.lock"):
        changed = settle(run, directory, allow)
        if changed or not (directory / "model" / MANIFEST).exists():
            carry_out(run, directory, where, progress, command)
            progress.say(f"finished: model in {directory / 'model'}, report in {directory / 'report.html'}")
        else:
            progress.say(f"{directory}: this run has finished; nothing to train (remove the directory to train anew)")
    return load(directory, device=device)


def carry_out(run: Run, directory: Path, device: torch.device, progress: Progress, command: str) -> None:
    """Prepare, train and write the finished model."""
    if run.threads:
        torch.set_num_threads(run.threads)
    prepared = make_corpus(run, directory, progress, str(device))
    run = set_growth(run, prepared)
    model = make_model(run, prepared.task).to(device)
    check_lengths(prepared, model.limit, "the model")
    prepared = add_columns(prepared, model.needs, progress.say, run.data.aligner)
    describe(run, prepared, model, progress.say)
    evaluator = Evaluator(run, prepared)
    loader = Loader(prepared.train, run.data.batch_tokens, run.data.batch_rows, run.seed, run.data.workers)
    trainer = Trainer(
        make_objective(run, model, prepared),
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
    finish(run, directory, prepared, model, trainer.run(), command)


def check_options(run: Run) -> Run:
    """Check the model's own options and write them out in full."""
    kind = run.model.get("kind", "transformer")
    _, options = model_options(run.model)
    section = {"kind": kind, **options.model_dump(mode="json")}
    if section.get("tie") in ("embeddings", "all") and not run.text.joint:
        raise ConfigError(f"model.tie = '{section['tie']}' needs one vocabulary for both sides: text.joint = true")
    if run.distill and run.data.prepared:
        raise ConfigError(f"data.prepared = '{run.data.prepared}': a run with a teacher makes its own corpus")
    if run.train.metric not in ("auto", "loss", "perplexity"):
        find_metric(run.train.metric)
    limit = build_model(section, 8, 8).limit
    if limit is not None and run.data.max_length > limit:
        raise ConfigError(
            f"data.max_length = {run.data.max_length} is beyond the {limit} positions the model can learn"
        )
    return run.model_copy(update={"model": section})


def settle(run: Run, directory: Path, allow: Sequence[str], advice: str = "") -> bool:
    """Write run.toml; once training has begun, an option may only change by name. True: one has changed."""
    path = directory / "run.toml"
    now = dump_toml(run)
    before = dump_toml(validate(Run, read_toml(path), str(path))) if path.exists() else ""
    if not has_begun(directory):
        path.write_text(now, encoding="utf-8")
        return now != before
    changed = sorted(differing(tomllib.loads(before), tomllib.loads(now)))
    refused = [key for key in changed if key not in allow]
    if refused:
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), str(path), "now", n=0, lineterm="")
        flags = " ".join(f"--allow-change {key}" for key in refused)
        advice = advice or f"to go on all the same: {flags}"
        raise ConfigError("\n".join([f"{path}: this run was started with other options:", *lines, advice]))
    if changed:
        path.write_text(now, encoding="utf-8")
    return bool(changed)


def make_corpus(run: Run, directory: Path, progress: Progress, device: str) -> Prepared:
    """The prepared corpus of a run; one that goes on from a model, or has a teacher, uses its tokenizers."""
    check_aligner(run.data.aligner)
    if run.data.prepared is None:
        begun, place = has_begun(directory), directory / "data"
        if run.distill is None:
            return prepare(run, place, progress.say, start_task(run), begun)
        pairs = distill(run, directory, progress, device, begun)
        task = start_task(run) or teacher_task(run, progress.say)
        return prepare(run, place, progress.say, task, begun, pairs)
    found = open_prepared(Path(run.data.prepared))
    require_same(found.task.options, run.text, f"{found.directory} was prepared")
    start = run.start or run.start_encoder
    if start and not same_tokenizers(find_directory(start), found.directory):
        raise ConfigError(f"{found.directory} was prepared with other tokenizers than those of {start}")
    return found


def check_lengths(prepared: Prepared, limit: int | None, whose: str, sides: Sequence[int] = (0, 1)) -> None:
    """A corpus that was prepared for another model may have rows that are too long for this one."""
    if limit is None:
        return
    lengths = [store.lengths() for store in (prepared.train, prepared.valid) if len(store)]
    longest = max((int(each[side].max()) for each in lengths for side in sides), default=0)
    if longest > limit:
        raise ConfigError(f"{prepared.directory}: has rows of {longest} tokens, {whose} has positions for {limit}")


def writes_in_order(kind: str) -> bool:
    """Whether a kind of model writes word after word."""
    return issubclass(model_class(kind), Autoregressive)


def make_objective(run: Run, model: Model, prepared: Prepared) -> Objective:
    """What training makes smaller."""
    if run.reverse is None:
        return LikelihoodObjective(model, run.train.label_smoothing)
    if not isinstance(model, NonAutoregressive):
        raise ConfigError(f"a [reverse] section needs model.kind = 'nonautoregressive', found '{run.model['kind']}'")
    directory, config = read_directory(run.reverse.teacher)
    if not same_tokenizers(directory, prepared.directory):
        raise ConfigError(f"reverse.teacher = '{run.reverse.teacher}': its tokenizers are not those of the corpus")
    teacher = load_model(directory, config).to(next(model.parameters()).device).eval().requires_grad_(False)
    if not isinstance(teacher, Autoregressive):
        raise ConfigError(f"reverse.teacher = '{run.reverse.teacher}': expected a model that writes word by word")
    check_lengths(prepared, teacher.limit, "reverse.teacher", sides=[0])
    return ReverseObjective(model, teacher, run.train.label_smoothing, run.reverse.weight)


def set_growth(run: Run, prepared: Prepared) -> Run:
    """How long an output may get, where nobody says: as long as nearly all of training, and a quarter more."""
    if run.search.growth:
        return run
    source, target = prepared.train.lengths()
    growth = max(1.5, 1.25 * float(np.quantile((target.astype(np.float32) - 10) / source, 0.999)))
    return run.model_copy(update={"search": run.search.model_copy(update={"growth": round(growth, 2)})})


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
    """Write the result, the report and, last, the finished model: where it is, all is."""
    chosen = result.validations.get(result.candidate)
    summary = {
        **origin(command, run.seed, result.seconds, prepared.facts.get("data_sha256")),
        "candidate": result.candidate,
        "stopped_by": result.reason,
        "steps": result.steps,
        "epochs": result.epochs,
        "skipped_steps": result.skipped,
        "validation": {} if chosen is None else {"loss": chosen.loss, **chosen.metrics},
    }
    if "distilled" in prepared.facts:
        summary["distilled"] = prepared.facts["distilled"]
    write_json(directory / "result.json", summary)
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_bytes().splitlines()]
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
    save_model(directory / "model", run, prepared.task, model, summary)


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
        path = directory / "model.safetensors"
        save_file(weights, path)
        path.chmod(0o644)  # the library leaves it readable by its owner alone

    write_directory(path, config, fill)


def average_models(paths: Sequence[str | Path], output: str | Path) -> None:
    """The mean of the weights of several models of one shape, as a new model directory."""
    found = [read_directory(path) for path in paths]
    directory, config = found[0]
    for other, its in found[1:]:
        differ = sorted(differing(settings(config), settings(its)))
        if differ or not same_tokenizers(directory, other):
            what = f"{differ[0]} differs" if differ else "their tokenizers differ"
            raise ModelError(f"{other}: cannot be averaged with {directory}: {what}")
    models = [load_model(*each) for each in found]
    load_weights(models[0], mean(model_tensors(model) for model in models))
    search = read_section(Search, directory, config, "search")
    run = Run(model=config["model"], search=search, data=Data(max_length=config.get("longest", 256)))
    task = load_task(directory, config)
    save_model(Path(output), run, task, models[0], {"averaged": [str(path) for path in paths]})


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """What weights must have in common to be averaged: all options of the model but dropout, and those of the text."""
    model = {name: value for name, value in config["model"].items() if "dropout" not in name}
    return {"model": model, "text": config.get("text")}
