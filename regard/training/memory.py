"""Giving memory back: batches of ever other shapes leave holes in the heap, which the C library keeps for itself."""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

MUCH = 10**9  # bytes; a process that holds less is left alone, since taking pages again costs time


@cache
def _trim() -> "ctypes._NamedFuncPointer | None":  # pyright: ignore[reportPrivateUsage]
    try:
        return ctypes.CDLL(None).malloc_trim if sys.platform == "linux" else None
    except (AttributeError, OSError):  # another C library
        return None


def resident() -> int:
    """Bytes this process holds now; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def give_back() -> bool:
    """The holes in the heap of a large process go back to the system."""
    trim = _trim()
    if trim is None or resident() < MUCH:
        return False
    trim(0)
    return True
