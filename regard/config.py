"""The options of a run: a TOML file and `section.key=value` overrides become frozen, strict pydantic models.

A recipe (`*.toml`) has the sections data, text, model, train and search. The `model` section is kept as
plain values here, since a model's options are checked by the model's own `Config` (which needs torch).
What was resolved is written back as TOML into the run directory.
"""

import copy
import difflib
import json
import math
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from regard.errors import ConfigError


class Options(BaseModel):
    """Base of every options class: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


T = TypeVar("T", bound=BaseModel)


Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Several = Annotated[int, Field(ge=2)]
Corpus = str | tuple[str, str]  # one file of pairs (TSV or JSONL), or [source file, target file]


class Data(Options):
    """Where the examples come from and how they are put into batches."""

    train: Corpus | None = None
    valid: Corpus | None = None  # none: a part of train is split off
    test: Corpus | None = None  # only looked at by `prepare` (overlap) and `evaluate`
    prepared: str | None = None  # a corpus made by `regard prepare`, instead of the files
    format: Literal["auto", "text", "tsv", "jsonl"] = "auto"  # auto: by ending and first line
    source_key: str = "source"  # JSONL field, or the language inside "translation"
    target_key: str = "target"
    decode: Literal["strict", "replace"] = "strict"  # invalid UTF-8: an error, or U+FFFD
    valid_fraction: Fraction = 0.1  # of train, when no valid is given ...
    valid_limit: Positive = 1000  # ... but at most so many pairs
    max_length: Positive = 256  # tokens, EOS counted: pairs with a longer side are left out of training, and counted
    max_pairs: Count = 0  # take only so many pairs of train (0: all)
    batch_tokens: Positive = 4096  # budget of a batch: rows × longest row of either side
    batch_rows: Positive = 1024  # and never more rows than this
    workers: Count = 0  # loader processes; the order of batches does not depend on it
    aligner: str | None = None  # fertilities follow a model's attention, or a file of links (none: our own aligner)


TokenizerKind = Literal["bytes", "characters", "words", "bpe", "unigram"]
UnicodeForm = Literal["none", "NFC", "NFKC", "NFD", "NFKD"]


class Text(Options):
    """From raw text to ids and back; stored in the model and applied again at inference."""

    source_unicode: UnicodeForm = "NFC"  # NFD takes Hangul syllables apart into letters
    target_unicode: UnicodeForm = "NFC"  # none: outputs are spelled as the training data are
    lowercase: bool = False
    moses: bool = False  # Moses punctuation normalisation and tokenisation, undone on output
    tokenised: bool = False  # the input is already split at spaces: leave the words alone, do not detokenise
    source_language: str = "en"  # language of the Moses rules
    target_language: str = "en"
    source: TokenizerKind = "bpe"
    target: TokenizerKind = "bpe"
    joint: bool = False  # one vocabulary for both sides (needed to share embeddings)
    vocabulary: Positive = 8000  # pieces of a subword tokenizer (of each, when separate), bytes and specials included
    word_limit: Count = 0  # most frequent words or characters kept (0: all)
    word_minimum: Positive = 1  # words seen less often become unknown
    train_lines: Positive = 2_000_000  # a tokenizer is trained on at most so many evenly spread lines

    @model_validator(mode="after")
    def _check(self) -> "Text":
        if self.joint and self.source != self.target:
            raise ValueError("joint needs the same tokenizer on both sides")
        if self.moses and self.tokenised:
            raise ValueError("moses and tokenised exclude each other: the text is either raw or already tokenised")
        return self


class Train(Options):
    """The training loop: optimiser, schedule, regularisation, validation, stopping, averaging."""

    max_steps: Count = 10_000  # updates (0: no limit)
    max_epochs: Count = 0  # passes over the data (0: no limit)
    max_minutes: Annotated[float, Field(ge=0)] = 0  # training time over all sittings (0: no limit)
    optimiser: Literal["adam", "adamw", "sgd", "nesterov", "adadelta"] = "adam"
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)  # of adam and adamw
    epsilon: Annotated[float, Field(gt=0)] = 1e-9  # of adam, adamw and adadelta
    momentum: Fraction = 0.0  # of sgd and nesterov
    decay: Fraction = 0.95  # of the averages of adadelta (ρ)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["noam", "inverse_sqrt", "cosine", "plateau", "constant"] = "inverse_sqrt"
    rate: Annotated[float, Field(gt=0)] = 1e-3  # peak learning rate; for noam the factor before d_model^-0.5
    warmup: Count = 400  # updates of linear warm-up from 0
    minimum_rate: Annotated[float, Field(ge=0)] = 0.0  # floor of cosine and plateau
    plateau_factor: Fraction = 0.5  # plateau: the rate is multiplied by this ...
    plateau_patience: Count = 3  # ... after so many validations without progress
    label_smoothing: Fraction = 0.1
    clip: Annotated[float, Field(ge=0)] = 1.0  # largest norm of the gradient (0: off)
    accumulate: Positive = 1  # batches per update
    validate_every: Literal["epoch"] | Positive = "epoch"  # or a number of updates
    decode_limit: Count = 500  # validation pairs that are really decoded (0: loss only)
    samples: Count = 3  # validation outputs shown
    metric: str = "auto"  # what "better" means: loss, bleu, chrf, exact_match, wer, cer (auto: by the task)
    patience: Count = 10  # stop after so many validations without progress (0: never)
    average: Count = 0  # keep the weights of the last n validations, average them at the end
    ema: Fraction = 0.0  # decay of an exponential moving average of the weights (0: off)
    keep: Literal["auto", "best", "last", "average", "ema"] = "auto"  # finished model; auto: what validates best
    checkpoint_minutes: Annotated[float, Field(gt=0)] = 10.0  # and at every validation
    log_every: Positive = 50  # updates per line of metrics.jsonl
    bad_steps: Count = 3  # non-finite updates in a row that are skipped before training stops
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    tensorboard: bool = False  # also write TensorBoard files (extra `track`)

    @model_validator(mode="after")
    def _check(self) -> "Train":
        if self.optimiser == "nesterov" and not self.momentum:
            raise ValueError("optimiser = 'nesterov' needs momentum above 0")
        if self.keep == "average" and not self.average:
            raise ValueError("keep = 'average' needs average, the number of validations to average")
        if self.keep == "ema" and not self.ema:
            raise ValueError("keep = 'ema' needs ema, the decay of the moving average")
        if self.schedule == "cosine" and not self.max_steps:
            raise ValueError("schedule = 'cosine' needs max_steps, where it ends")
        if not (self.max_steps or self.max_epochs or self.max_minutes or self.patience):
            raise ValueError("training would never end: set max_steps, max_epochs, max_minutes or patience")
        return self


class Search(Options):
    """How an output is found, stored in the model as its default."""

    method: Literal["beam", "greedy", "sample"] = "beam"
    beam: Positive = 5
    nbest: Positive = 1
    stop: Literal["bound", "count"] = "bound"
    penalty: Literal["length", "gnmt"] = "length"  # score = log p / length^alpha, or over ((5+n)/6)^alpha
    alpha: Annotated[float, Field(ge=0)] = 1.0
    minimum_length: Count = 0  # tokens before EOS may come
    maximum_length: Count = 0  # tokens without EOS (0: growth × source length + 10)
    growth: Annotated[float, Field(ge=0)] = 0.0  # 0: as outputs grow in the training data (2 where that is not known)
    no_repeat: Count = 0  # no n-gram of this size twice (0: off)
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_k: Count = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: int = 1  # of sampling
    passes: Positive = 1  # of a model that fills places in parallel and can look at them again
    mean_fertility: bool = False  # of a model with fertilities: their rounded mean instead of the likeliest ones
    batch_tokens: Positive = 6144  # source tokens × beam decoded together

    @property
    def candidates(self) -> int:
        """Outputs of a sentence that are made at the same time."""
        return {"beam": self.beam, "greedy": 1, "sample": self.nbest}[self.method]

    @model_validator(mode="after")
    def _check(self) -> "Search":
        if self.method == "beam" and self.nbest > self.beam:
            raise ValueError(f"nbest ({self.nbest}) cannot exceed beam ({self.beam})")
        if self.method == "greedy" and self.nbest > 1:
            raise ValueError("greedy search finds one output: nbest must be 1")
        if 0 < self.maximum_length < self.minimum_length:
            raise ValueError(f"minimum_length ({self.minimum_length}) is above maximum_length ({self.maximum_length})")
        return self


def change_search(base: Search, given: Mapping[str, Any], where: str = "search") -> Search:
    """A search with what was given in place of its own; beams mean a beam search, a larger n-best widens the beam."""
    if not given:
        return base
    values = base.model_dump() | dict(given)
    if "beam" in given and "method" not in given:
        values["method"] = "beam"
    if "nbest" in given and "beam" not in given and values["method"] == "beam":
        values["beam"] = max(values["beam"], values["nbest"])
    return validate(Search, values, where)


class Distill(Options):
    """Sequence-level knowledge distillation: the training targets are what a teacher says (regard/distill.py)."""

    teacher: tuple[str, ...]  # a model directory, or several: an ensemble
    output: Literal["best", "closest"] = "best"  # of the n best the first, or the one most like the reference
    mix: bool = False  # the real pairs are learned too, beside the distilled ones
    search: Search = Search()  # how the teacher decodes; what is not given is the teacher's own, with beam 5

    @model_validator(mode="after")
    def _check(self) -> "Distill":
        if not self.teacher:
            raise ValueError("no teacher given")
        if self.output == "closest" and self.search.nbest < 2:
            raise ValueError("output = 'closest' chooses among several: search.nbest must be above 1")
        return self


class Reverse(Options):
    """Fine-tuning of a model that writes all words at once by what a teacher thinks of them (regard/objective.py)."""

    teacher: str  # a model directory
    weight: Annotated[float, Field(gt=0, lt=1)] = 0.25  # λ: of the teacher's view, beside the targets


def length_penalty(length: int, options: Search) -> float:
    """What a log-probability is divided by; the length is counted without EOS."""
    if options.penalty == "gnmt":
        return ((5 + length) / 6) ** options.alpha
    return max(length, 1) ** options.alpha


def longest_output(source: int, options: Search, limit: int | None) -> int:
    """Tokens an output may have, EOS not counted, after a source of so many; `limit` is the model's own, with EOS."""
    longest = options.maximum_length or math.ceil((options.growth or 2.0) * source) + 10
    return longest if limit is None else min(longest, limit - 1)


class Run(Options):
    """One training run: the whole TOML file."""

    seed: Count = 1
    threads: Count = 0  # CPU threads (0: as torch chooses)
    task: Literal["translation"] = "translation"
    start: str | None = None  # go on from this model, or from some of its layers, with its tokenizers
    start_encoder: str | None = None  # begin with the encoder of this model, with its tokenizers
    start_decoder: bool = False  # and with those parts of its decoder that this model has too
    data: Data = Data()
    text: Text = Text()
    model: dict[str, Any] = Field(default_factory=lambda: {"kind": "transformer"})  # kind, and that model's own options
    train: Train = Train()
    search: Search = Search()
    distill: Distill | None = None  # none: the targets are those of the training files
    reverse: Reverse | None = None  # none: only the targets are learned from

    @model_validator(mode="after")
    def _check(self) -> "Run":
        if self.start and self.start_encoder:
            raise ValueError("start has an encoder already: give start or start_encoder")
        if self.start_decoder and not self.start_encoder:
            raise ValueError("start_decoder = true needs start_encoder, the model it comes from")
        return self


def validate(schema: type[T], values: dict[str, Any], where: str) -> T:
    """Values → options; an error names the place, the key and the nearest known key."""
    try:  # by way of JSON, which is strict about types and yet takes a list for a tuple
        return schema.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        found: dict[str, list[str]] = {}
        for item in error.errors():
            path = _known_path(schema, item["loc"])
            found.setdefault(".".join(path), []).append(_explain(schema, path, item))
        lines = [f"{where}: {key + ': ' if key else ''}{' or '.join(reasons)}" for key, reasons in found.items()]
        raise ConfigError("\n".join(lines)) from None


def _known_path(schema: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The key an error is about, without the names pydantic gives to the members of a union."""
    path: list[str] = []
    for part in loc:
        section = _section(schema, path)
        path.append(str(part))
        if part in section.model_fields and _section(schema, path) is section:
            break
    return path


def _explain(schema: type[BaseModel], path: list[str], item: Any) -> str:
    if item["type"] == "extra_forbidden":
        known = list(_section(schema, path[:-1]).model_fields)
        near = difflib.get_close_matches(path[-1], known, 1)
        return "unknown key; " + (f"did you mean '{near[0]}'?" if near else "known keys: " + ", ".join(known))
    message = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if item["type"] == "value_error":  # our own check of several keys says what it found
        return message
    return f"{message} (found {json.dumps(item.get('input'), default=str)[:80]})"


def _section(schema: type[BaseModel], path: list[str]) -> type[BaseModel]:
    for name in path:
        annotation = schema.model_fields[name].annotation if name in schema.model_fields else None
        for each in (annotation, *get_args(annotation)):  # a section, or one that may be missing
            if isinstance(each, type) and issubclass(each, BaseModel):
                schema = each
    return schema


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain values."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def apply_overrides(values: dict[str, Any], overrides: list[str]) -> dict[str, Any]:
    """`section.key=value` with the value parsed as TOML (a bare word counts as a string)."""
    result = copy.deepcopy(values)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"override '{override}': expected section.key=value")
        *path, last = key.strip().split(".")
        section = result
        for name in path:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                raise ConfigError(f"override '{override}': '{name}' is not a section")
        section[last] = _parse_value(text.strip())
    return result


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def load_run(path: Path, overrides: list[str] | None = None) -> Run:
    """A recipe with overrides → the options of a run."""
    return validate(Run, apply_overrides(read_recipe(path), overrides or []), str(path))


def read_recipe(path: Path) -> dict[str, Any]:
    """The values of a recipe, its file names made absolute.

    File names in a recipe are relative to it; those in overrides are relative to the working directory.
    `$NAME` in a file name stands for an environment variable.
    """
    values = read_toml(path)
    files = values.get("data")
    if isinstance(files, dict):
        values["data"] = files | {key: locate(files[key], path) for key in FILES if key in files}
    for key in ("start", "start_encoder"):
        if key in values:
            values[key] = locate(values[key], path)
    for name in ("distill", "reverse"):
        if isinstance(section := values.get(name), dict) and "teacher" in section:
            values[name] = section | {"teacher": locate(section["teacher"], path)}
    return values


FILES = ("train", "valid", "test", "prepared", "aligner")  # keys of the data section that name files


def locate(name: Any, recipe: Path) -> Any:
    """A file name of a recipe as an absolute one."""
    if isinstance(name, list):
        return [locate(item, recipe) for item in name]
    if not isinstance(name, str):
        return name
    expanded = os.path.expandvars(name)
    if missing := re.search(r"\$\{?(\w+)", expanded):
        raise ConfigError(f"{recipe}: '{name}' needs the environment variable {missing[1]}, which is not set")
    base = Path() if name.startswith("$") else recipe.parent  # a variable is set by who stands in the working directory
    return str((base / expanded).resolve())


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


def dump_toml(options: BaseModel) -> str:
    """Options as TOML, every value spelled out."""
    return tomli_w.dumps(_without_none(options.model_dump(mode="json")))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value]
    return value
