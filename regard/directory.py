"""A model directory: safetensors, JSON and tokenizer files, with a manifest of their hashes; no code, no pickle.

    config.json          task, model options, text options, search defaults, vocabulary sizes, how it was trained
    model.safetensors    the weights
    tokenizer.json       or source.json and target.json
    MANIFEST.json        size and sha256 of each of them

It loads by its path alone, and one flipped bit in any file is noticed. A run directory holds the finished
model in `model/` and may be given in its place.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, ModelError

FORMAT = 1
MANIFEST = "MANIFEST.json"


def hash_file(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_directory(path: Path, config: dict[str, Any], fill: Callable[[Path], None]) -> None:
    """Write a whole model directory or none: `fill` puts weights and tokenizers into it."""

    def fill_all(fresh: Path) -> None:
        fill(fresh)
        write_json(fresh / "config.json", {"format": FORMAT, **config})

    write_listed(path, fill_all)


def write_listed(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a whole folder with a manifest or none: `fill` puts files into a new folder beside it.

    An older folder of that name is replaced; one that has no manifest is left alone.
    """
    path = path.absolute()
    check_free(path, MANIFEST)
    fresh = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        fill(fresh)
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": hash_file(file)} for file in sorted(fresh.iterdir())
        }
        write_json(fresh / MANIFEST, {"format": FORMAT, "files": files})
        for file in [*fresh.iterdir(), fresh]:  # on disk before it has its name
            flush(file)
        old = path.with_name(f".{path.name}.old-{os.getpid()}")
        if path.exists():
            path.rename(old)
        fresh.rename(path)
        flush(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def flush(path: Path) -> None:
    """What a file or a folder holds is on disk when this returns."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def check_free(path: Path, ours: str) -> None:
    """A folder that is written anew must not hold the work of others: it is empty, or has our file in it."""
    if path.exists() and not (path.is_dir() and ((path / ours).is_file() or not any(path.iterdir()))):
        raise ConfigError(f"{path}: exists and was not made by this command; choose another name")


def write_json(path: Path, value: Any) -> None:
    """JSON that people can read, on disk when this returns."""
    with path.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, ensure_ascii=False, indent=1, allow_nan=False)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_json(path: Path) -> Any:
    """JSON from a model directory."""
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None


def has_begun(path: Path) -> bool:
    """Whether there is a run in a directory that has got as far as its first checkpoint."""
    return (path / "run.toml").is_file() and any((path / "checkpoints").glob("step-*"))


def find_directory(path: str | Path) -> Path:
    """The model directory meant by a path: itself, or `model/` in a run directory."""
    path = Path(path)
    for candidate in (path, path / "model"):
        if (candidate / MANIFEST).is_file():
            return candidate
    if not path.exists():
        raise ModelError(f"{path}: no such model directory")
    if (path / "run.toml").exists() and not (path / "model").exists():
        raise ModelError(f"{path}: this run has not finished: there is no model in it yet (train again to go on)")
    wanted = path / "model" if (path / "model").is_dir() else path
    raise ModelError(f"{wanted / MANIFEST}: missing: this is not a model directory, or a damaged one")


def identify(path: str | Path) -> str:
    """What tells a model from any other: the sha256 of its manifest."""
    return hash_file(find_directory(path) / MANIFEST)


def read_directory(path: str | Path) -> tuple[Path, dict[str, Any]]:
    """Check every file against the manifest; the directory and its config."""
    directory = find_directory(path)
    listed = check_listed(directory)
    present = {path.name for path in directory.iterdir() if path.suffix in (".json", ".safetensors")} - {MANIFEST}
    if unlisted := sorted((present | {"config.json", "model.safetensors"}) - listed):
        raise ModelError(f"{directory / MANIFEST}: does not list {unlisted[0]}")
    config = read_json(directory / "config.json")
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise ModelError(f"{directory / 'config.json'}: not a model configuration")
    return directory, config


def check_listed(directory: Path) -> set[str]:
    """Check every file of a manifest; their names."""
    manifest = read_json(directory / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ModelError(f"{directory / MANIFEST}: not a manifest")
    if manifest.get("format") != FORMAT:
        raise ModelError(f"{directory / MANIFEST}: format {manifest.get('format')!r}, this version reads {FORMAT}")
    for name, wanted in manifest["files"].items():
        _check_file(directory, name, wanted)
    return set(manifest["files"])


def _check_file(directory: Path, name: Any, wanted: Any) -> None:
    if not isinstance(name, str) or Path(name).name != name or not isinstance(wanted, dict):
        raise ModelError(f"{directory / MANIFEST}: bad entry {name!r}")
    path = directory / name
    if not path.is_file():
        raise ModelError(f"{path}: listed in {MANIFEST}, but missing")
    if path.stat().st_size != wanted.get("bytes"):
        raise ModelError(f"{path}: damaged: {path.stat().st_size} bytes, {MANIFEST} says {wanted.get('bytes')}")
    if hash_file(path) != wanted.get("sha256"):
        raise ModelError(f"{path}: damaged: its sha256 is not the one in {MANIFEST}")
