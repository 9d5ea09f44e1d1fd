"""Files that are whole or not there: written aside, flushed to the disk, then renamed.

Tensors are stored as safetensors only, everything else as JSON; nothing here can run code on loading.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from regard.directory import flush
from regard.errors import Diverged, RegardError


class Damaged(Exception):
    """A file that is not what was once written."""


def encode(tensors: Mapping[str, Tensor], name: str) -> bytes:
    """Tensors → the bytes of a safetensors file; a number that is not finite is refused."""
    for key, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise Diverged(f"{name}: '{key}' holds numbers that are not finite; it is not saved")
    return save({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()})


def decode(data: bytes, name: str) -> dict[str, Tensor]:
    """The bytes of a safetensors file → tensors."""
    try:
        return load(data)
    except SafetensorError as error:
        raise Damaged(f"{name}: {error}") from None


def encode_json(value: Any) -> bytes:
    """A value as one line of JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace") + b"\n"  # half a surrogate pair becomes its JSON escape


def describe(data: bytes) -> dict[str, Any]:
    """What is written down of a file, so that a change is noticed."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def read_checked(path: Path, expected: Mapping[str, Any]) -> bytes:
    """The bytes of a file, which must be the described ones."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}") from None
    if len(data) != expected["size"]:
        raise Damaged(f"{path}: {len(data)} bytes, expected {expected['size']}")
    if describe(data)["sha256"] != expected["sha256"]:
        raise Damaged(f"{path}: the content has changed since it was written (SHA-256 differs)")
    return data


def write_file(path: Path, data: bytes) -> None:
    """Write a new file and flush it to the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def aside(path: Path) -> Path:
    """The temporary name beside `path`."""
    return path.with_name(f"{path.name}.tmp-{os.getpid()}")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = aside(path)
    try:
        write_file(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


def remove(path: Path) -> None:
    """Delete a directory; a half deleted one has a temporary name, and is swept later."""
    trash = aside(path)
    os.replace(path, trash)
    shutil.rmtree(trash, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Delete what killed processes left unfinished."""
    for path in directory.glob("*.tmp-*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def require_space(directory: Path, needed: int) -> None:
    """Fail before writing, not half-way, when the disk is clearly too full."""
    usage = shutil.disk_usage(directory)
    if usage.total and usage.free < needed:  # some network file systems say nothing
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))


class Lock:
    """One process at a time trains in a directory; the lock goes with its process, not with its forks."""

    def __init__(self, directory: Path, name: str = "train.lock") -> None:
        self.path = directory / name

    def __enter__(self) -> "Lock":
        self.handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            import fcntl

            fcntl.lockf(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # a system without such locks
            pass
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):  # otherwise the file system knows no locks
                os.close(self.handle)
                message = f"{self.path.parent}: another process is training in this directory"
                raise RegardError(message) from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)
