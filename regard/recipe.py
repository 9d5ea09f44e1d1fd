"""From what a user gives to the options of a run: a recipe, or files of pairs for which everything is chosen."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import FILES, Corpus, Data, Run, apply_overrides, read_recipe, validate
from regard.directory import has_begun, read_directory
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.predict import Predictor

Files = str | Path | Sequence[str | Path]  # a recipe, a file of pairs, or a source and a target file
BEAM = 5  # of a teacher, where nobody says otherwise (Kim & Rush 2016)


def train(
    what: Run | Mapping[str, Any] | Files,
    output: str | Path,
    *,
    overrides: Sequence[str] = (),
    valid: Files = (),
    start: str | Path | None = None,
    teacher: Files = (),
    prepared: str | Path | None = None,
    device: str = "auto",
    allow: Sequence[str] = (),
    quiet: bool = False,
) -> "Predictor":
    """Train in the run directory `output`, or go on where an earlier call was stopped; the finished model.

    `what` is a recipe (`.toml`), its values, a file of pairs, or a source and a target file; options that nobody
    gives are chosen from the corpus. `overrides` are `"section.key=value"`; `start` is a model to go on from;
    `teacher` is a model, or several, to be distilled; `allow` names options that may differ from those the run was
    started with.

        regard.train("pairs.tsv", "model").translate(["a man sleeps ."])
    """
    if isinstance(what, Run | Mapping):
        values = what.model_dump(mode="json", exclude_none=True) if isinstance(what, Run) else dict(what)
        run = complete(values, "options", overrides, given_values(valid, (), start, prepared, teacher))
    else:
        run, _ = make_run(what, output, overrides, valid=valid, start=start, prepared=prepared, teacher=teacher)
    from regard.pipeline import train as train_run

    return train_run(run, output, device=device, allow=allow, quiet=quiet)


def make_run(
    files: Files,
    output: str | Path,
    overrides: Sequence[str] = (),
    *,
    valid: Files = (),
    test: Files = (),
    start: str | Path | None = None,
    prepared: str | Path | None = None,
    teacher: Files = (),
) -> tuple[Run, list[str]]:
    """The options of the run in `output`, and why they were chosen where nobody gave them."""
    given = given_values(valid, test, start, prepared, teacher)
    names = [files] if isinstance(files, str | Path) else list(files)
    recipe = Path(names[0]) if names else Path(prepared or "") / "run.toml"
    if (len(names) == 1 and recipe.suffix == ".toml") or (not names and prepared):
        return complete(read_recipe(recipe), str(recipe), overrides, given), []
    corpus = locate_corpus(names)
    if corpus is None:
        raise ConfigError("expected a recipe (.toml), a file of pairs, or a source and a target file")
    kept = Path(output) / "run.toml"
    reasons: list[str] = []
    if has_begun(Path(output)):  # what was chosen when the run began
        values = read_recipe(kept)
        before = values["data"].get("train")
        if locate_corpus(before or ()) != corpus:
            raise ConfigError(f"{kept}: this run was started on {before}, not on {corpus}")
    else:
        from regard.choose import choose, follow_model, follow_teacher

        reading = [override for override in overrides if override.startswith("data.")]
        described = apply_overrides({"data": {"train": corpus} | given["data"]}, reading)["data"]
        data = validate(Data, described, "options: data")
        if start:
            chosen, reasons = follow_model(start, data)
        elif teachers := given.get("distill", {}).get("teacher"):
            chosen, reasons = follow_teacher(teachers[0], data)
        else:
            chosen, reasons = choose(data)
        values = chosen.model_dump(mode="json", exclude_none=True)
    return complete(values, "options", overrides, given), reasons


def given_values(
    valid: Files, test: Files, start: str | Path | None, prepared: str | Path | None, teacher: Files = ()
) -> dict[str, Any]:
    """What was given beside the recipe, as values of one."""
    corpora = {"valid": locate_corpus(valid), "test": locate_corpus(test)}
    data: dict[str, Any] = {key: corpus for key, corpus in corpora.items() if corpus}
    if prepared:
        data["prepared"] = str(Path(prepared).resolve())
    values: dict[str, Any] = {"data": data}
    if start:
        values["start"] = str(Path(start).resolve())
    if teachers := [teacher] if isinstance(teacher, str | Path) else list(teacher):
        values["distill"] = {"teacher": [str(Path(name).resolve()) for name in teachers]}
    return values


def complete(values: dict[str, Any], where: str, overrides: Sequence[str], given: dict[str, Any]) -> Run:
    """The options with what was given beside them; a run that goes on from a model has that model's sections."""
    own = {name: values.get(name, {}) for name in given.keys() & {"data", "distill"}}
    if all(isinstance(section, dict) for section in own.values()):
        values = values | given | {name: section | given[name] for name, section in own.items()}
    values = apply_overrides(values, list(overrides))
    if isinstance(files := values.get("data"), dict):  # names in overrides are relative to the working directory
        values["data"] = files | {key: absolute(files[key]) for key in FILES if key in files}
    starts = [key for key in ("start", "start_encoder") if isinstance(values.get(key), str)]
    values = values | {key: absolute(values[key]) for key in starts}
    if isinstance(teacher := values.get("reverse"), dict) and "teacher" in teacher:
        values["reverse"] = teacher | {"teacher": absolute(teacher["teacher"])}
    if isinstance(start := values.get("start"), str):
        _, config = read_directory(start)
        for section in ("text", "model"):
            own = values.get(section, {})
            values[section] = config.get(section, {}) | own if isinstance(own, dict) else own
    if isinstance(values.get("distill"), dict) and values["distill"].get("teacher"):
        values = follow(values)
    return validate(Run, values, where)


def follow(values: dict[str, Any]) -> dict[str, Any]:
    """What a run with a teacher takes from it: the text section, and how the teacher itself decodes."""
    distill, text = values["distill"], values.get("text", {})
    names = distill["teacher"]
    teachers = absolute([names] if isinstance(names, str) else names)
    if not isinstance(teachers, list) or not all(isinstance(name, str) for name in teachers):
        return values  # which is refused
    _, config = read_directory(teachers[0])
    search = distill.get("search", {})
    if isinstance(search, dict):
        search = config.get("search", {}) | {"method": "beam", "beam": BEAM, "nbest": 1, "stop": "count"} | search
        if distill.get("output") == "closest" and search["method"] == "beam":
            search["nbest"] = distill.get("search", {}).get("nbest", search["beam"])
    return values | {
        "text": config.get("text", {}) | text if isinstance(text, dict) else text,
        "distill": distill | {"teacher": teachers, "search": search},
    }


def absolute(name: Any) -> Any:
    """The full name of a file, or of both files of a corpus."""
    if isinstance(name, list | tuple):
        return [absolute(item) for item in name]
    return os.path.abspath(name) if isinstance(name, str) else name  # links stay: a pipe has no other name


def locate_corpus(files: Files) -> Corpus | None:
    """One file, or a pair of files, by their full names."""
    names = [files] if isinstance(files, str | Path) else list(files)
    if len(names) > 2:
        raise ConfigError(f"expected one file of pairs or two aligned files, found {len(names)}: {names[2]}")
    full = [absolute(str(name)) for name in names]
    return (full[0], full[1]) if len(full) == 2 else next(iter(full), None)
