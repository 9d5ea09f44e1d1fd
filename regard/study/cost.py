"""What an operation costs: seconds, and bytes of memory at most.

Time is taken in rounds: every case once a round, each round beginning with another, so that what else the machine does
falls on all alike; the median of the rounds counts. A short operation is repeated within a round until the clock can
tell it well.

Memory is counted, not sampled: torch reports every allocation and release on the CPU, those inside its kernels too. The
highest sum, above inputs and weights, is the same in every run. What a kernel's library holds by itself is not in it.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.autograd.profiler import profile

from regard.study.subject import Operation, Size, make_operation

Mode = Literal["forward", "gradient"]
MODES: tuple[Mode, ...] = ("forward", "gradient")
MOST_CALLS = 1000
CONTAINER = Path("/sys/fs/cgroup")  # where the limits of a container are
UNFUSED_COPIES = 5  # of the weights of attention, in forward and backward pass together, rounded up


@dataclass(frozen=True)
class Case:
    """One operation at one size."""

    subject: str
    size: Size

    def attention_bytes(self) -> int:
        """What attention that writes out its weights will need, roughly; 0 for the others."""
        if not self.subject.startswith("unfused"):
            return 0
        return UNFUSED_COPIES * 4 * self.size.batch * self.size.heads * self.size.length**2


@dataclass(frozen=True)
class Cost:
    """What was measured of a case in one mode."""

    rounds: tuple[float, ...]  # seconds of one call
    bytes: int

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """(largest − smallest) / median."""
        return (max(self.rounds) - min(self.rounds)) / self.seconds


def run_forward(operation: Operation) -> None:
    """The output alone, nothing kept for a gradient."""
    with torch.no_grad():
        operation.function(*operation.inputs)


def run_gradient(operation: Operation) -> None:
    """The output, and the gradient of all inputs and weights."""
    output = operation.function(*operation.inputs)
    torch.autograd.grad(output, [*operation.inputs, *operation.weights], torch.ones_like(output))


RUN: dict[Mode, Callable[[Operation], None]] = {"forward": run_forward, "gradient": run_gradient}


Key = tuple[Case, Mode]
Runs = dict[Key, Callable[[], None]]


def peak_bytes(run: Callable[[], None]) -> int:
    """The most memory that was held at a time beyond what was held before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler would tell on stderr that it starts and stops
    profiler = profile(use_cpu=True, profile_memory=True)
    with profiler:
        run()
    assert profiler.kineto_results is not None
    events: list[Any] = profiler.kineto_results.events()  # torch's own types do not tell of nbytes
    held = most = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def seconds_per_call(run: Callable[[], None], calls: int) -> float:
    """The mean of so many calls, one after another."""
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - began) / calls


def calls_needed(run: Callable[[], None], least: float) -> int:
    """How many calls in a row the clock can tell well; the first, which sets things up, does not count."""
    run()
    calls = 1
    while calls < MOST_CALLS:
        passed = calls * seconds_per_call(run, calls)
        if passed >= least:
            break
        calls = min(MOST_CALLS, max(2 * calls, round(calls * least / max(passed, 1e-9))))
    return calls


def measure(cases: Sequence[Case], rounds: int, least: float, tick: Callable[[], None]) -> dict[Case, dict[Mode, Cost]]:
    """Every case in both modes; `tick` is called `rounds` + 1 times for each case and mode."""
    operations = {case: make_operation(case.subject, case.size) for case in cases}
    runs: Runs = {(case, mode): _bind(RUN[mode], operations[case]) for case in cases for mode in MODES}
    bytes_, calls = {}, {}
    for key, run in runs.items():
        calls[key] = calls_needed(run, least)  # before memory: a first call may allocate what is kept
        bytes_[key] = peak_bytes(run)
        tick()
    seconds: dict[Key, list[float]] = {key: [] for key in runs}
    with _no_collection():
        for key in in_turn(list(runs), rounds):
            seconds[key].append(seconds_per_call(runs[key], calls[key]))
            tick()
    return {case: {mode: Cost(tuple(seconds[case, mode]), bytes_[case, mode]) for mode in MODES} for case in cases}


def _bind(run: Callable[[Operation], None], operation: Operation) -> Callable[[], None]:
    return lambda: run(operation)


def in_turn(keys: Sequence[Key], rounds: int) -> Iterator[Key]:
    """Every key once a round; the rounds begin at places that are spread over the list."""
    for number in range(rounds):
        first = number * len(keys) // rounds
        yield from (*keys[first:], *keys[:first])


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage is looked for in the middle of a timing."""
    gc.collect()
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def available_bytes() -> int | None:
    """Memory that can be had without swapping, in the machine or the container, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):  # no such file, or "max"
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(limit - used)
    return min(found, default=None)


def split_by_memory(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Those that fit into half of the available memory, and those that do not."""
    available = available_bytes()
    limit = float("inf") if available is None else available / 2
    fitting = [case for case in cases if case.attention_bytes() <= limit]
    return fitting, [case for case in cases if case not in fitting]
