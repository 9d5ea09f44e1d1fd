"""The torch engine in several processes: N searches at a time, with one thread each.

A process is started as `python -m regard.engine.workers`, never imports the user's program, and holds a whole
model. A call is one line of JSON to its standard input, the answer one line from its standard output. It ends
when its input ends, or when nobody can read its answer: also after `kill -9` of the one who started it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

import regard.errors
from regard.config import Search
from regard.data.batch import Hypothesis, Writing
from regard.data.worker import how_it_ended, ignore_signals, start_helper
from regard.directory import read_directory
from regard.engine.base import Engine
from regard.errors import ConfigError, RegardError

if TYPE_CHECKING:
    from regard.view.record import Map


class Worker:
    """Our end of one process."""

    def __init__(self, number: int, directories: Sequence[str], threads: int) -> None:
        self.number = number
        self.process = start_helper(
            "regard.engine.workers", json.dumps([directories, threads]), subprocess.PIPE, threads
        )

    def ask(self, request: Any) -> Any:
        """The answer to one call."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self._dead() from None
        return self.answer()

    def answer(self) -> Any:
        """What the process says next; an error of its own is raised here as it was there."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._dead()
        answer = json.loads(line)
        if "error" in answer:
            raise getattr(regard.errors, answer["kind"])(answer["error"])
        return answer["result"]

    def _dead(self) -> RegardError:
        return RegardError(f"translation worker {self.number} {how_it_ended(self.process)}")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # a line that was not sent
                    stream.close()


class Workers:
    """An engine that hands each call to a process that is free."""

    name = "torch"

    def __init__(self, directories: Sequence[Path], workers: int, threads: int = 1) -> None:
        self.workers = workers
        names = [str(directory.resolve()) for directory in directories]
        self.all: list[Worker] = []
        self.free: SimpleQueue[Worker] = SimpleQueue()
        try:
            for number in range(workers):
                self.all.append(Worker(number, names, threads))
            for worker in self.all:
                self.limit: int | None = worker.answer()  # it has loaded the models
                self.free.put(worker)
        except BaseException:
            self.close()
            raise

    def _ask(self, call: str, *values: Any) -> Any:
        worker = self.free.get()
        try:
            return worker.ask([call, *values])
        finally:
            self.free.put(worker)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Search,
        prefixes: Sequence[Sequence[int]] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """The outputs of one batch of sources (ids that end in EOS), best first."""
        found = self._ask("search", sources, options.model_dump(), prefixes, seeds)
        return [
            [Hypothesis(tuple(ids), score, price, finished=end) for ids, score, price, end in outputs]
            for outputs in found
        ]

    def cross_attention(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> np.ndarray | None:
        """Mean weights [B,T,S] with which targets look at sources; None without attention."""
        found = self._ask("cross_attention", sources, targets)
        return None if found is None else np.array(found, np.float32)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Log-probability of each target token (ids that end in EOS)."""
        return [np.array(row, np.float32) for row in self._ask("score", sources, targets)]

    def attend(self, source: Sequence[int], target: Sequence[int], writing: Writing | None = None) -> "list[Map]":
        """Maps are not sent between processes."""
        raise ConfigError("attention maps: load the model without workers")

    def writings(self, source: Sequence[int], options: Search) -> dict[tuple[int, ...], Writing]:
        """None: they are not sent between processes."""
        return {}

    def close(self) -> None:
        """End all processes."""
        for worker in self.all:
            worker.close()


def work(directories: list[str], threads: int) -> None:
    """The process itself: load the models, then answer until nobody asks."""
    import torch

    from regard.engine.native import load_engine

    torch.set_num_threads(threads)
    found = [read_directory(directory) for directory in directories]
    engine = load_engine([path for path, _ in found], [config for _, config in found], "cpu")
    say({"result": engine.limit})
    for line in sys.stdin.buffer:
        call, *values = json.loads(line)
        try:
            say({"result": answer(engine, call, values)})
        except RegardError as error:  # one call is refused, the next one may do
            say({"kind": type(error).__name__, "error": str(error)})


def answer(engine: Engine, call: str, values: list[Any]) -> Any:
    """What the engine says to one call, as plain values."""
    if call == "search":
        sources, options, *more = values
        outputs = engine.search(sources, Search(**options), *more)
        return [[(one.ids, one.score, one.log_probability, one.finished) for one in row] for row in outputs]
    if call == "score":
        return [row.tolist() for row in engine.score(*values)]
    weights = engine.cross_attention(*values)
    return None if weights is None else weights.tolist()


def say(answer: dict[str, Any]) -> None:
    """One line of JSON."""
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """A mistake of the user is told to the one who asked."""
    ignore_signals()
    try:
        work(*json.loads(sys.argv[1]))
    except BrokenPipeError:
        os._exit(0)  # the reader is gone, and flushing at exit would complain
    except RegardError as error:
        say({"kind": type(error).__name__, "error": str(error)})
    except (MemoryError, RuntimeError) as error:
        say({"kind": "RegardError", "error": str(error).splitlines()[0] if str(error) else "not enough memory"})


if __name__ == "__main__":
    main()
