"""The memory of a process: kept from one update or search to the next, and given back where training has grown large.

Each asks for the same amounts again. A page taken anew from the system costs more than the arithmetic on it, so
freed memory stays with the process; but batches of ever other shapes leave holes in the heap.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

LARGEST = 2**25  # bytes; the C library takes no larger number for what it holds in its heap
AHEAD = 2**26  # bytes that the heap grows by at a time
TRIM, PAD, MAPPED, ARENAS = -1, -2, -3, -8  # the names of glibc's options
HUGE = 2**21  # bytes of a huge page
ROOM = 2**28  # bytes of the heap that lie on huge pages
BLOCK = 3 * 2**23  # bytes; below LARGEST, so that a block comes from the heap
ADVICE = 14  # the system's number for huge pages
MUCH = 10**9  # bytes; a process that holds less is left alone, since taking pages again costs time
KEPT = 2 * 10**9  # the same for one that keeps its memory: an update of a small model may need more than MUCH

_keeps = False


@cache
def _library(function: str) -> "ctypes._NamedFuncPointer | None":  # pyright: ignore[reportPrivateUsage]
    try:
        return getattr(ctypes.CDLL(None), function) if sys.platform == "linux" else None
    except (AttributeError, OSError):  # another C library
        return None


@cache
def keep_memory() -> bool:
    """What this process frees stays with it, in one heap for all threads; whether the C library can do that."""
    global _keeps
    set_option = _library("mallopt")
    if set_option is None:
        return False
    options = {ARENAS: 1, MAPPED: LARGEST, TRIM: 2**31 - 1, PAD: AHEAD}
    done = [set_option(*option) for option in options.items()]
    _keeps = all(done)
    return _keeps


@cache
def use_huge_pages() -> bool:
    """Keep memory, and let what is asked for from now on lie on huge pages; whether the system was asked for them.

    A search reads all weights and all it remembers at every step, and small pages have to be found one by one.
    Nothing is taken that is not used.
    """
    take, free, end, advise = (_library(name) for name in ("malloc", "free", "sbrk", "madvise"))
    if not keep_memory() or not (take and free and end and advise):
        return False
    for each in (take, end):
        each.restype = ctypes.c_void_p
    take.argtypes, free.argtypes, end.argtypes = [ctypes.c_size_t], [ctypes.c_void_p], [ctypes.c_ssize_t]
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    first = end(0)
    blocks = [take(BLOCK) for _ in range(ROOM // BLOCK)]  # the heap grows, and stays as long when they are freed
    last = end(0)
    for block in blocks:
        free(block)
    start = -(-first // HUGE) * HUGE
    return last > start and advise(start, last - start, ADVICE) == 0


def resident() -> int:
    """Bytes this process holds now; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def give_back() -> bool:
    """The holes in the heap of a large process go back to the system."""
    trim = _library("malloc_trim")
    if trim is None or resident() < (KEPT if _keeps else MUCH):
        return False
    trim(0)
    return True
