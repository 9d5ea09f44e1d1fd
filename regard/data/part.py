"""A file that is made line by line in a long job, and that an interrupted job goes on with.

    FILE.part         the records so far
    FILE.part.json    how many of them are safely on disk, what made them, and a hash of the lines they belong to

When all is there, FILE.part becomes FILE.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from regard.errors import ConfigError, DataError


class Part:
    """The unfinished output: how many records are safely in it, and a hash of the lines they belong to."""

    def __init__(self, output: Path, job: dict[str, Any], resume: bool) -> None:
        self.output = output
        self.path = output.with_name(output.name + ".part")
        self.state = output.with_name(output.name + ".part.json")
        self.job = job
        self.hash = hashlib.sha256()
        self.records = self.bytes = 0
        self.wanted = self.hash.hexdigest()
        if self.state.exists() and self.path.exists():
            if not resume:
                raise ConfigError(f"{self.path}: an interrupted job; --resume goes on with it (or delete it)")
            self._take_up(self._read())

    def _read(self) -> dict[str, Any]:
        try:
            before = json.loads(self.state.read_bytes())
            return {name: before[name] for name in ("job", "records", "bytes", "lines_sha256")}
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{self.state}: damaged; delete it to start anew") from None

    def _take_up(self, before: dict[str, Any]) -> None:
        if changed := [key for key in self.job if before["job"].get(key) != self.job[key]]:
            raise ConfigError(f"{self.path}: was made with another {', '.join(changed)}; delete it to start anew")
        self.records, self.bytes, self.wanted = before["records"], before["bytes"], before["lines_sha256"]
        if self.path.stat().st_size < self.bytes:
            raise DataError(f"{self.path}: shorter than the {self.bytes} bytes written; delete it to start anew")

    def open(self) -> IO[bytes]:
        """The part, cut to what is safe."""
        self.stream = self.path.open("r+b" if self.path.exists() else "w+b")
        self.stream.truncate(self.bytes)
        self.stream.seek(self.bytes)
        return self.stream

    def skip(self, lines: Iterator[str]) -> int:
        """Pass over the lines that are done; they must be the same as then."""
        for line in islice(lines, self.records):
            self._note(line)
        if self.hash.hexdigest() != self.wanted:
            raise DataError(f"{self.path}: was made from other lines than the first {self.records} of the input")
        return self.records

    def _note(self, line: str) -> None:
        self.hash.update(line.encode("utf-8", "surrogatepass") + b"\n")

    def commit(self, block: list[str]) -> None:
        """The records of these lines are on disk."""
        os.fsync(self.stream.fileno())
        for line in block:
            self._note(line)
        self.records += len(block)
        facts = {"job": self.job, "records": self.records, "bytes": self.stream.tell()}
        fresh = self.state.with_suffix(".tmp")
        fresh.write_text(json.dumps({**facts, "lines_sha256": self.hash.hexdigest()}), encoding="utf-8")
        fresh.replace(self.state)

    def finish(self) -> None:
        """All is there: give the output its name."""
        self.path.replace(self.output)
        self.state.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Nothing is safely written: leave nothing behind."""
        if not self.records:
            self.path.unlink(missing_ok=True)
