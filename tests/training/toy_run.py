"""A tiny run: a GRU with dropout, tied weights and a buffer, on synthetic batches made from (seed, epoch)."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import Train
from regard.data.batch import Batch, make_batch
from regard.errors import RegardError
from regard.training.loop import Goal, Progress, Result, Trainer, Validation

VOCABULARY, WIDTH, BATCHES, SEED = 11, 8, 5, 7
SEEN = 1_000  # the sum of ids at which the score is the highest: that of the updates up to the ninth, about

OPTIONS = {
    "max_steps": 23,
    "rate": 0.04,
    "warmup": 3,
    "clip": 0.5,
    "accumulate": 2,
    "ema": 0.9,
    "average": 3,
    "patience": 2,
    "log_every": 2,
    "validate_every": 3,
    "checkpoint_minutes": 1000.0,
}


class Toy(nn.Module):
    """Predicts the next id of the target; the output layer is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.recurrent = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.output = nn.Linear(WIDTH, VOCABULARY)
        self.output.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            self.seen += float(ids.sum())
        hidden, _ = self.recurrent(self.dropout(self.embedding(ids)))
        return self.output(self.dropout(hidden))


class Objective:
    """The loss of `Toy`; `at` maps the number of a call to something that happens there."""

    def __init__(self, at: dict[int, Callable[[Tensor], Tensor | None]] | None = None) -> None:
        torch.manual_seed(SEED)
        self.model = Toy()
        self.calls = 0
        self.at = at or {}

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        self.calls += 1
        source = torch.as_tensor(batch.source)
        target = torch.as_tensor(batch.target)
        loss = F.cross_entropy(self.model(source).flatten(0, 1), target.flatten(), reduction="sum")
        if self.calls in self.at:
            changed = self.at[self.calls](loss)
            loss = loss if changed is None else changed
        return loss, target.numel()


class Loader:
    """Batches of several sizes; which ids are in them depends on the seed, the epoch and the number."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.number = batches
        self.opened = self.closed = 0

    def count(self, epoch: int) -> int:
        return self.number

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        self.opened += 1
        try:
            for number in range(start, self.number):
                yield self.batch(epoch, number)
        finally:
            self.closed += 1

    def batch(self, epoch: int, number: int) -> Batch:
        random = np.random.default_rng([SEED, epoch, number])
        rows, length = 2 + number % 3, 3 + number % 2
        source = random.integers(4, VOCABULARY, (rows, length))
        target = (source * 2 + 1) % VOCABULARY
        return make_batch(source.tolist(), target.tolist(), [epoch * 1000 + number * 10 + row for row in range(rows)])


def evaluate(model: nn.Module, stop: Callable[[], bool]) -> Validation:
    """A loss on fixed data, and a score that any changed bit of the weights changes; uses random numbers.

    The score rises until so many ids have been seen, then falls: so the run ends at the same step on every machine.
    """
    assert not model.training
    torch.rand(3)
    np.random.rand(3)  # noqa: NPY002
    batch = Loader().batch(999, 0)
    logits = model(torch.as_tensor(batch.source)).flatten(0, 1)
    loss = float(F.cross_entropy(logits, torch.as_tensor(batch.target).flatten()))
    bits = float(sum(tensor.double().sum() for tensor in model.parameters())) * 1e6 % 1
    score = 1e-3 * bits - abs(float(model.get_buffer("seen")) / SEEN - 1)
    return Validation(loss, float(np.exp(loss)), {"score": score}, [{"source": "a", "reference": "b", "output": "c"}])


def trainer(directory: Path, objective: Objective | None = None, look=evaluate, loader=None, **options) -> Trainer:
    """A trainer of the toy run with some options changed."""
    goal = options.pop("goal", Goal("score", higher=True))
    progress = options.pop("progress", None) or Progress(quiet=True)
    return Trainer(
        objective or Objective(),
        loader or Loader(),
        look,
        goal,
        Train(**{**OPTIONS, **options}),
        directory,
        seed=SEED,
        width=WIDTH,
        progress=progress,
        resume_hint="say it again",
    )


def fingerprint(run: Trainer, result: Result) -> dict[str, bytes]:
    """All bits that count at the end of a run."""
    tensors = {f"weights/{name}": tensor for name, tensor in result.weights.items()}
    state = run.updater.optimiser.state
    for number, parameter in enumerate(run.updater._parameters):
        tensors |= {f"optimiser/{number}/{key}": value for key, value in state[parameter].items()}
    if run.average:
        tensors |= {f"ema/{name}": tensor for name, tensor in run.average.tensors.items()}
    times = {"seconds": 0.0, "logged_seconds": 0.0, "metrics_bytes": 0}
    record = {**run.state.record(), **times, "candidate": result.candidate}
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()} | {"state": json.dumps(record).encode()}


def lines(directory: Path) -> list[dict]:
    """The log of a run without times."""
    text = (directory / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    records = [json.loads(line) for line in text.splitlines()]
    return [
        {key: value for key, value in item.items() if not key.endswith(("seconds", "per_second"))} for item in records
    ]


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked process: its exit code, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except RegardError as error:
            os.write(2, f"{error}\n".encode())
            os._exit(error.exit_code)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(number: int = signal.SIGKILL) -> None:
    """Send this process a signal."""
    os.kill(os.getpid(), number)
