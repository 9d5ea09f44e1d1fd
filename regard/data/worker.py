"""A loader's helper process: makes every n-th batch of an epoch and writes it to its standard output.

It is started as `python -m regard.data.worker`, not by `multiprocessing`, so that it never imports the
user's program or torch. It holds no state worth saving and ends by itself: when the reader is gone, even
by `kill -9`, its next write fails. A batch is sent as one line of JSON (types and shapes), then the arrays.
"""

import json
import os
import signal
import subprocess
import sys
from typing import IO, Any, NamedTuple

import numpy as np

from regard.data.batch import Batch
from regard.data.plan import Budget, make_batches, plan_epoch
from regard.data.store import Store
from regard.errors import DataError, RegardError

ARRAYS = ("source", "source_length", "target", "target_length", "index")


class Task(NamedTuple):
    """What a helper process is to make: the batches `range(start, stop, step)` of a planned epoch."""

    directory: str
    tokens: int
    rows: int
    seed: int
    epoch: int
    start: int
    stop: int
    step: int


def start_helper(
    module: str, argument: str, stdin: int = subprocess.DEVNULL, threads: int = 1
) -> subprocess.Popen[bytes]:
    """A process that runs a module of ours and writes to us."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # it finds the modules that we find
    quiet = {"PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", module, argument],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env=os.environ | quiet,
        start_new_session=True,  # Ctrl-C is for us, who may still have a step to finish
    )


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Why a process says nothing more."""
    try:
        code = process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        return f"(process {process.pid}) closed its output"
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"(process {process.pid}) ended early: {how}"


def ignore_signals() -> None:
    """Signals meant for the one who started a helper are left to that one."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)


class Worker:
    """The reader's end of one helper process."""

    def __init__(self, number: int, task: Task) -> None:
        self.number = number
        self.process = start_helper("regard.data.worker", json.dumps(task))
        assert self.process.stdout is not None
        self.stream = self.process.stdout

    def receive(self) -> Batch:
        """The next batch; a DataError when the process failed or died."""
        header = self.stream.readline()
        if not header.endswith(b"\n"):
            raise self._dead()
        content = json.loads(header)
        if "error" in content:
            raise DataError(f"loader worker {self.number}: {content['error']}")
        arrays: dict[str, Any] = {name: self._array(*content[name]) for name in ARRAYS}
        return Batch(**arrays, extra={name: self._array(*shape) for name, shape in content["extra"].items()})

    def _array(self, kind: str, shape: list[int]) -> np.ndarray:
        array = np.empty(shape, dtype=kind)
        if self.stream.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:  # type: ignore[attr-defined]
            raise self._dead()
        return array.astype(np.int64)

    def _dead(self) -> DataError:
        return DataError(f"loader worker {self.number} {how_it_ended(self.process)}")

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.stream.close()
        self.process.wait()


def send(stream: IO[bytes], batch: Batch, kind: str) -> None:
    """Write one batch, its ids in the narrow type of the store."""
    arrays = {name: getattr(batch, name) for name in ARRAYS}
    arrays |= {name: arrays[name].astype(kind) for name in ("source", "target")}
    extra = {name: array.astype("<u4") for name, array in batch.extra.items()}

    def describe(some: dict[str, np.ndarray]) -> dict[str, Any]:
        return {name: (array.dtype.str, array.shape) for name, array in some.items()}

    stream.write(json.dumps({**describe(arrays), "extra": describe(extra)}).encode() + b"\n")
    for array in (*arrays.values(), *extra.values()):
        stream.write(array.data)
    stream.flush()


def work(task: Task, stream: IO[bytes]) -> None:
    """Make and send the batches of the task; what is wrong with the data is sent instead of a batch."""
    try:
        store = Store(task.directory)
        plan = plan_epoch(store.lengths(), Budget(task.tokens, task.rows), task.seed, task.epoch)
        narrow = "<u2" if max(store.source_size, store.target_size) <= 1 << 16 else "<u4"
        for batch in make_batches(store, plan, range(task.start, task.stop, task.step)):
            send(stream, batch, narrow)
    except RegardError as error:
        stream.write(json.dumps({"error": str(error)}).encode() + b"\n")
        stream.flush()


def main() -> None:
    """The helper process itself."""
    ignore_signals()
    try:
        work(Task(*json.loads(sys.argv[1])), sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(0)  # the reader is gone, and flushing at exit would complain


if __name__ == "__main__":
    main()
