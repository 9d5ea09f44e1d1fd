"""How a result came about: what anybody needs to get it again, kept in every result.json; and the machine it ran on."""

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from regard import __version__

CPU_FACTS = Path("/proc/cpuinfo")
UNITS = {"avx512f": "AVX-512", "avx2": "AVX2"}  # flag → vector units, the widest first: how fast products are


def origin(command: str, seed: int, seconds: float, data_sha256: str | None) -> dict[str, Any]:
    """Command, commit, seed, wall time, data hash, versions and kind of machine."""
    import torch

    return {
        "command": portable(command),
        "commit": commit(),
        "seed": seed,
        "seconds": round(seconds, 2),
        "data_sha256": data_sha256,
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "regard": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def portable(command: str) -> str:
    """A command as it can be given elsewhere: the folder of the data sets by the name of its variable."""
    folder = os.environ.get("REGARD_DATA", "").rstrip("/")
    return command.replace(f"{folder}/", "$REGARD_DATA/") if folder else command


def commit() -> str | None:
    """The commit of the code, when it runs from a checkout; `+` when files have changed since."""
    here = Path(__file__).resolve().parents[1]
    if not (here / ".git").exists():
        return None
    found = [_git(here, "rev-parse", "HEAD"), _git(here, "status", "--porcelain", "--untracked-files=no", "regard")]
    return found[0] + ("+" if found[1] else "") if found[0] else None


def _git(directory: Path, *words: str) -> str:
    try:
        command = ["git", "-C", str(directory), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def machine() -> str:
    """The kind of machine, without its name."""
    return f"{platform.system()} {platform.machine()}, {processor()}, {os.cpu_count()} cores"


def processor() -> str:
    """The model of the processor and its widest vector units, as far as the system tells them."""
    try:
        lines = CPU_FACTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    units = [name for flag, name in UNITS.items() if flag in facts.get("flags", "").split()]
    model = facts.get("model name") or platform.processor() or "unknown processor"
    return f"{model} with {units[0]}" if units else model


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
