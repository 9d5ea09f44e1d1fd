"""What every measured process needs: its job, its memory, and a clock that runs long enough.

Only the standard library is imported, so that any environment can run it.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Job = dict[str, Any]
Figures = dict[str, float]


def work(tasks: dict[str, Callable[[Job], Figures]]) -> None:
    """Do the job given as JSON on the command line, and leave its figures in the file it names."""
    job = json.loads(sys.argv[1])
    figures = tasks[job["task"]](job)
    Path(job["output"]).write_text(json.dumps(figures), encoding="utf-8")


def rate(action: Callable[[], object], amount: float, seconds: float, least: int = 2) -> float:
    """Amount done per second when the action is repeated for so long and so often, after once to warm up."""
    action()
    rounds, start = 0, time.perf_counter()
    while True:
        action()
        rounds += 1
        passed = time.perf_counter() - start
        if passed >= seconds and rounds >= least:
            return amount * rounds / passed


def memory(name: str, process: str = "self") -> int:
    """Bytes of a process: VmRSS now, VmHWM at most, RssAnon without files; 0 where the system does not tell."""
    try:
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def forget_peak() -> None:
    """Let the peak of memory begin anew from what is held now."""
    with suppress(OSError):  # then the peak counts from the start of the process
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
