"""Commands that are measured: one process for each, with the machine's speed before and after it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measure import Figures, Job

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = "{scratch}"  # in a command or a job: a file that is new each time
REAL_TIME = 10  # priority


@dataclass(frozen=True)
class Side:
    """One command that is measured; the seconds from its start to its end are always taken."""

    name: str
    command: tuple[str, ...]
    job: Job | None = None  # given to the command as JSON
    stdin: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a process gave."""

    figures: Figures
    calibration: tuple[float, float]  # GFLOP/s of a matrix product before and after it
    error: str = ""


def start(side: Side, threads: int = 2, timeout: float = 3600, calibrated: bool = True) -> Outcome:
    """Run a side once to its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if side.job is not None:  # a command is left to choose, as on any machine
        environment["OMP_NUM_THREADS"] = str(threads)
    before = calibrate() if calibrated else 0.0
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "figures.json")
        began = time.monotonic()
        words = command_line(side, folder, output, began)
        try:
            done = subprocess.run(  # noqa: S603
                words, capture_output=True, text=True, input=side.stdin, cwd=ROOT, env=environment, timeout=timeout
            )
            error = f"exit code {done.returncode}: {last_line(done.stderr)}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            error = f"stopped after {timeout:g} s"
        seconds = time.monotonic() - began
        figures = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    after = calibrate() if calibrated else 0.0
    return Outcome({**figures, "seconds": seconds}, (before, after), error)


def command_line(side: Side, folder: str, output: Path, began: float) -> list[str]:
    """The words of the command, its job at the end."""
    words = list(side.command)
    if side.job is not None:
        words.append(json.dumps({**side.job, "output": str(output), "began": began}))
    return [word.replace(SCRATCH, str(Path(folder, "scratch"))) for word in words]


def calibrate(seconds: float = 0.2, size: int = 768) -> float:
    """GFLOP/s of a plain matrix product now: a disturbed moment shows."""
    matrix = np.ones((size, size), dtype=np.float32)
    result = np.empty_like(matrix)
    np.matmul(matrix, matrix, out=result)
    rounds, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        np.matmul(matrix, matrix, out=result)
        rounds += 1
    return round(2e-9 * size**3 * rounds / passed, 1)


def raise_priority() -> bool:
    """Real-time priority for this process and those it starts, where that is allowed: others disturb less."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME))
    except (AttributeError, OSError):
        return False
    return True


def limit_processors(number: int) -> None:
    """Keep this process and those it starts to so many processors, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:number])


def regard(*words: str) -> tuple[str, ...]:
    """Our command line."""
    return (sys.executable, "-m", "regard", *words)


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command that is not measured."""
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603


def knows(option: str, command: str) -> bool:
    """Whether a command of ours has an option."""
    done = run(regard(command, "--help"))
    return done.returncode == 0 and option in done.stdout


def carry_out(side: Side, threads: int) -> None:
    """Do a job that is not measured."""
    outcome = start(side, threads, calibrated=False)
    if outcome.error:
        raise RuntimeError(f"{side.name}: {outcome.error}")


def last_line(text: str) -> str:
    """What an error says at its end."""
    return (text.strip().splitlines() or ["no message"])[-1]
