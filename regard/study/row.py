"""The rows of a comparison: recipes, run directories and model directories, each with a name of its own.

A model can stand there again with another search, another engine, or a judge that chooses among its outputs.
"""

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from regard.config import Corpus, Run, Search, apply_overrides, load_run
from regard.data.text import Pair, read_pairs
from regard.directory import MANIFEST, find_directory, identify
from regard.errors import ConfigError, DataError, ModelError
from regard.evaluation import hash_lines
from regard.predict import EngineName, Predictor, load
from regard.recipe import locate_corpus, make_run


@dataclass(frozen=True)
class Row:
    """One model of a comparison, trained or not."""

    name: str
    directory: Path  # of its run; of the model, where no run is there
    run: Run | None  # how it is trained; None: only the model is there
    search: Mapping[str, Any] = field(default_factory=dict)  # what differs from the search of the others
    engine: EngineName = "torch"
    rescore: str | None = None  # the model that chooses among its outputs

    @property
    def is_trained(self) -> bool:
        """Whether there is a finished model."""
        return self.run is None or (self.directory / "model" / MANIFEST).is_file()

    @property
    def is_variant(self) -> bool:
        """Whether the same model stands in another row too."""
        return bool(self.search) or self.engine != "torch" or self.rescore is not None

    def load(self, device: str, threads: int | None = None) -> Predictor:
        """The trained model, as this row wants it."""
        return load(self.directory, device=device, engine=self.engine, threads=threads, rescore=self.rescore)

    def identity(self) -> dict[str, Any]:
        """What its outputs depend on beside the search and the pairs."""
        judge = {"rescore": identify(self.rescore)} if self.rescore else {}
        return {"model": identify(self.directory), "engine": self.engine, **judge}


@dataclass(frozen=True)
class HeldOut:
    """The pairs all rows are tested on."""

    names: tuple[str, ...]  # of the files, without their folders
    pairs: tuple[Pair, ...]
    data_sha256: str


def find_rows(words: Sequence[str], output: Path, overrides: Sequence[str], variants: Sequence[str] = ()) -> list[Row]:
    """What the words name; a recipe is trained, with the overrides, in a folder of `output`.

    A variant is a row, by its name, or a model, followed by what is other: `rnn beam=1 engine=ctranslate2`.
    """
    rows = name_rows(words, output, overrides)
    if overrides and not any(is_recipe(Path(word)) for word in words):
        raise ConfigError(f"'{overrides[0]}': an option of recipes, and no recipe is named")
    for text in variants:
        variant = make_variant(text, rows, output)
        if variant.name in (row.name for row in rows):
            raise ConfigError(f"--also '{text}': there is such a row already")
        rows.append(variant)
    return rows


def make_variant(text: str, rows: Sequence[Row], output: Path) -> Row:
    """One more row from one that is there."""
    try:
        name, *changes = shlex.split(text) or [""]
    except ValueError as error:
        raise ConfigError(f"--also '{text}': {error}") from None
    if not name or not changes:
        raise ConfigError(f"--also '{text}': expected a row or a model, and what is other, as \"rnn beam=1\"")
    given = apply_overrides({}, changes)
    known = {row.name: row for row in rows}
    if name not in known and is_recipe(Path(name)):
        raise ConfigError(f"--also '{text}': name the recipe among the rows, and here its row '{Path(name).stem}'")
    row = known.get(name) or name_rows([name], output, ())[0]
    engine, judge = str(given.pop("engine", row.engine)), str(given.pop("rescore", row.rescore or ""))
    if engine not in get_args(EngineName):
        raise ConfigError(f"'{text}': engine = '{engine}', expected one of {', '.join(get_args(EngineName))}")
    if unknown := [key for key in given if key not in Search.model_fields]:
        raise ConfigError(f"'{text}': unknown key '{unknown[0]}'; expected engine, rescore or an option of the search")
    if judge and judge not in known:
        find_directory(judge)
    parts = [f"rescore={Path(judge).name}" if change.startswith("rescore=") else change for change in changes]
    return replace(
        row,
        name=" ".join([row.name, *parts]),
        search=given,
        engine=cast("EngineName", engine),
        rescore=str(known[judge].directory) if judge in known else judge or None,
    )


def name_rows(words: Sequence[str], output: Path, overrides: Sequence[str]) -> list[Row]:
    """The rows that are named one by one."""
    if not words:
        raise ConfigError("nothing to compare: expected recipes (.toml), run or model directories")
    paths = [run_directory(Path(word)) for word in words]
    rows = []
    for name, word, path in zip(unique_names(paths), words, paths, strict=True):
        if is_recipe(path):
            run, _ = make_run(path, output / name, overrides)
            rows.append(Row(name, output / name, run))
        elif (path / "run.toml").is_file():
            rows.append(Row(name, path, load_run(path / "run.toml")))
        else:
            if path.is_file():
                raise ModelError(f"{word}: expected a recipe (.toml), a run directory or a model directory")
            find_directory(path)  # a wrong one is told before the work
            rows.append(Row(name, path, None))
    return rows


def is_recipe(path: Path) -> bool:
    """A recipe ends in .toml."""
    return path.suffix == ".toml" and not path.is_dir()


def run_directory(path: Path) -> Path:
    """The run a finished model lies in, where it does: there its options and its log are."""
    above = path.resolve().parent
    return above if path.name == "model" and (path / MANIFEST).is_file() and (above / "run.toml").is_file() else path


def unique_names(paths: Sequence[Path]) -> list[str]:
    """File stems; equal ones have the folder before them, and a number where that is the same too."""
    full = [Path(os.path.abspath(path)) for path in paths]  # a link keeps its own name
    stems = [path.stem if is_recipe(path) else path.name for path in full]
    common = Counter(stems)
    names = [
        stem if common[stem] == 1 else f"{path.parent.name}-{stem}" for path, stem in zip(full, stems, strict=True)
    ]
    found: list[str] = []
    for name in names:
        number, fresh = 1, name
        while fresh in found or (number > 1 and fresh in names):
            number += 1
            fresh = f"{name}-{number}"
        found.append(fresh)
    return found


def read_test(rows: Sequence[Row], files: Sequence[str]) -> HeldOut:
    """The test pairs that were named, or those of the rows, which must be the same for all."""
    if corpus := locate_corpus(files):
        return make_test(corpus, list(read_pairs(corpus)))
    found: dict[str, tuple[Row, HeldOut]] = {}
    for row in rows:
        if row.run and (corpus := row.run.data.test):
            data = row.run.data
            pairs = list(read_pairs(corpus, data.format, data.source_key, data.target_key, data.decode))
            test = make_test(corpus, pairs)
            found.setdefault(test.data_sha256, (row, test))
    if not found:
        raise ConfigError("no test pairs: no row has data.test; name them with --test")
    if len(found) > 1:
        (one, first), (other, second) = list(found.values())[:2]
        raise ConfigError(
            f"the rows have different test pairs: {one.name} has {' and '.join(first.names)}, "
            f"{other.name} has {' and '.join(second.names)}; name one for all with --test"
        )
    return next(iter(found.values()))[1]


def make_test(corpus: Corpus, pairs: list[Pair]) -> HeldOut:
    """Test pairs with the names and the hash they are told by."""
    files = [corpus] if isinstance(corpus, str) else corpus
    if not pairs:
        raise DataError(f"{files[0]}: no pairs in it")
    return HeldOut(tuple(Path(file).name for file in files), tuple(pairs), hash_lines(*zip(*pairs, strict=True)))
