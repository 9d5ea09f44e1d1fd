"""`metrics.jsonl`: one JSON line per event of a run, and the same numbers for TensorBoard if asked.

Fields whose names end in "seconds" or "per_second" are times; all others are the same in a resumed run. The file
is cut to the length a checkpoint knows before a run goes on, so no line is lost or doubled.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.training.storage import encode_json


class Journal:
    """The log of one run. A line that cannot be written (disk full) waits for the next one."""

    def __init__(self, path: Path, length: int, warn: Callable[[str], None]) -> None:
        self.path = path
        self.warn = warn
        self._file = path.open("ab", buffering=0)
        self._file.truncate(min(length, path.stat().st_size))
        self.length = path.stat().st_size
        self._waiting = b""
        if self.length < length:
            warn(f"{path}: {length - self.length} bytes of the log are missing")

    def write(self, record: dict[str, Any]) -> None:
        """Add a line."""
        self._waiting += encode_json(record)
        try:
            self._flush()
        except OSError as error:
            self.warn(f"{self.path}: {error.strerror}; the line is kept for later")

    def sync(self) -> int:
        """Everything written is on the disk afterwards; returns the length of the file."""
        self._flush()
        os.fsync(self._file.fileno())
        return self.length

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _flush(self) -> None:
        if not self._waiting:
            return
        try:
            view = memoryview(self._waiting)
            while view:
                view = view[self._file.write(view) or 0 :]
        except OSError:
            self._file.truncate(self.length)
            raise
        self.length += len(self._waiting)
        self._waiting = b""


class Board:
    """TensorBoard files of a run."""

    def __init__(self, directory: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("train.tensorboard needs the package tensorboard: pip install regard[track]") from None
        self._writer = SummaryWriter(str(directory), purge_step=step + 1)

    def write(self, record: dict[str, Any]) -> None:
        """Add the numbers of a line of the journal."""
        values = {**record, **record.get("metrics", {})}
        for name, value in values.items():
            if isinstance(value, (int, float)) and name not in ("step", "epoch"):
                self._writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def close(self) -> None:
        """Write out what is buffered."""
        self._writer.close()
