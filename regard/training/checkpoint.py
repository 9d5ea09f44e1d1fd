"""Checkpoints: the whole state of a run as one directory that is there whole or not at all.

    checkpoints/step-00001000/   model.safetensors  optimiser.safetensors  [ema.safetensors]  state.json  COMMIT
    snapshots/                   step-00001000.safetensors  best-step-00001000.safetensors

`COMMIT` is written last and holds the SHA-256 and size of each file and of each snapshot the state needs. The
directory is made under a temporary name, flushed to the disk, then renamed; the last checkpoint is found by
scanning for the newest one whose hashes are right. A snapshot is written before the first checkpoint that lists
it, and deleted when no kept checkpoint does. A second checkpoint of one step is called `step-00001000-2`.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.directory import flush
from regard.errors import ModelError
from regard.training.storage import (
    Damaged,
    aside,
    decode,
    describe,
    encode,
    encode_json,
    read_checked,
    remove,
    replace_file,
    require_space,
    sweep,
    write_file,
)

VERSION = 1
KEPT = 2
NAME = re.compile(r"step-(\d+)(?:-(\d+))?")
Description = dict[str, Any]  # sha256 and size


class Snapshots:
    """Weights of single validations, as files; those not yet written are kept in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.known: dict[str, Description] = {}
        self.waiting: dict[str, bytes] = {}

    def add(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Take a copy of the weights; it reaches the disk with the next checkpoint."""
        data = encode(tensors, name)
        self.known[name] = describe(data)
        self.waiting[name] = data

    def load(self, name: str) -> dict[str, Tensor]:
        """The weights of a snapshot, checked."""
        try:
            data = self.waiting.get(name) or read_checked(self.path(name), self.known[name])
            return decode(data, name)
        except Damaged as error:
            raise ModelError(str(error)) from None

    def path(self, name: str) -> Path:
        """The file of a snapshot."""
        return self.directory / f"{name}.safetensors"

    def keep_only(self, names: Iterable[str]) -> None:
        """Forget what the state no longer needs."""
        names = set(names)
        self.known = {name: value for name, value in self.known.items() if name in names}
        self.waiting = {name: value for name, value in self.waiting.items() if name in names}

    def write(self) -> None:
        """Bring to the disk what waits."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in list(self.waiting):
            replace_file(self.path(name), self.waiting[name])
            del self.waiting[name]

    def delete_except(self, names: Iterable[str]) -> None:
        """Delete the files no checkpoint needs."""
        kept = {self.path(name) for name in [*names, *self.known]}
        for path in self.directory.glob("*.safetensors"):
            if path not in kept:
                path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Checkpoint:
    """What was read back."""

    path: Path
    state: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]  # model, optimiser, ema


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(self, directory: Path, warn: Callable[[str], None]) -> None:
        self.directory = directory / "checkpoints"
        self.snapshots = Snapshots(directory / "snapshots")
        self.warn = warn
        self.damaged: set[Path] = set()

    def latest(self) -> Checkpoint | None:
        """The newest undamaged checkpoint, or None in a fresh directory; leftovers are swept."""
        sweep(self.directory)
        sweep(self.snapshots.directory)
        found = self._found()
        for path in reversed(found):
            try:
                checkpoint = self._read(path)
                if not self.damaged:
                    self._prune(path)
                return checkpoint
            except Damaged as error:
                self.damaged.add(path)
                self.warn(f"checkpoint {path.name} is damaged and not used: {error}")
        if found:
            raise ModelError(
                f"{self.directory}: no checkpoint is usable, all {len(found)} are damaged; "
                "delete the directory to start from the beginning"
            )
        return None

    def save(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        """Write a checkpoint whole or not at all, then delete old ones. Raises OSError when the disk says no."""
        self.directory.mkdir(parents=True, exist_ok=True)
        require_space(self.directory, self.size(tensors))
        self.snapshots.write()
        path = self._free_name(step)
        temporary = aside(path)
        try:
            temporary.mkdir()
            self._fill(temporary, tensors, state)
            os.replace(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        flush(self.directory)
        self._prune(path)

    def size(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
        """About the bytes the next checkpoint needs."""
        files = sum(tensor.nbytes for part in tensors.values() for tensor in part.values())
        return files + sum(len(data) for data in self.snapshots.waiting.values()) + 65536

    def _fill(self, path: Path, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        files: dict[str, Description] = {}
        for name, part in tensors.items():
            data = encode(part, f"{name}.safetensors")
            write_file(path / f"{name}.safetensors", data)
            files[f"{name}.safetensors"] = describe(data)
        data = encode_json(state)
        write_file(path / "state.json", data)
        files["state.json"] = describe(data)
        commit = {"version": VERSION, "files": files, "snapshots": self.snapshots.known}
        write_file(path / "COMMIT", encode_json(commit))
        flush(path)

    def _read(self, path: Path) -> Checkpoint:
        commit = _read_commit(path)
        for name, description in commit["snapshots"].items():
            read_checked(self.snapshots.path(name), description)
        data = {name: read_checked(path / name, description) for name, description in commit["files"].items()}
        if missing := {"model.safetensors", "optimiser.safetensors", "state.json"} - data.keys():
            raise Damaged(f"{path / 'COMMIT'}: does not list {', '.join(sorted(missing))}")
        state = json.loads(data.pop("state.json"))
        self.snapshots.known = dict(commit["snapshots"])
        return Checkpoint(
            path, state, {name.removesuffix(".safetensors"): decode(value, name) for name, value in data.items()}
        )

    def _found(self) -> list[Path]:
        """All checkpoints, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted((path for path in self.directory.iterdir() if NAME.fullmatch(path.name)), key=_order)

    def _free_name(self, step: int) -> Path:
        serials = [_order(path)[1] for path in self._found() if _order(path)[0] == step]
        serial = f"-{max(serials) + 1}" if serials else ""
        return self.directory / f"step-{step:08d}{serial}"

    def _prune(self, newest: Path) -> None:
        """Keep the newest checkpoint and the sound one before it, and the snapshots these list."""
        sound = [path for path in self._found() if path not in self.damaged and path != newest]
        kept = [*sound[len(sound) - (KEPT - 1) :], newest]
        try:
            for path in self._found():
                if path not in kept:
                    remove(path)
            self.snapshots.delete_except(name for path in kept for name in _read_commit(path)["snapshots"])
        except (OSError, Damaged) as error:
            self.warn(f"old checkpoints could not be deleted: {error}")


def _order(path: Path) -> tuple[int, int]:
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2] or 1)


def _read_commit(path: Path) -> dict[str, Any]:
    """The COMMIT file of a checkpoint, of the expected form."""
    try:
        commit = json.loads((path / "COMMIT").read_bytes())
        if commit["version"] != VERSION:
            raise Damaged(f"{path / 'COMMIT'}: version {commit['version']}, expected {VERSION}")
        for description in [*commit["files"].values(), *commit["snapshots"].values()]:
            if not isinstance(description["sha256"], str) or not isinstance(description["size"], int):
                raise ValueError("an entry without sha256 and size")
        return commit
    except OSError as error:
        raise Damaged(f"{path / 'COMMIT'}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path / 'COMMIT'}: not readable: {error}") from None
