"""How many threads compute: where there is little to do, one is faster than several that wait for each other.

Torch shares every operation of a size of its own choosing among its threads, which meet after each one. In a step of a
small model that takes as long as the arithmetic.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

LITTLE = 2**21  # rows × weights of a layer up to which one thread is faster, or as fast where threads meet quickly


@contextmanager
def enough_threads(work: int) -> Iterator[None]:
    """One thread for so little work (rows × weights of a layer), all of them for more."""
    threads = torch.get_num_threads()
    if threads == 1 or work > LITTLE:
        yield
        return
    torch.set_num_threads(1)  # in less than a microsecond; other threads that run already keep theirs
    try:
        yield
    finally:
        torch.set_num_threads(threads)
