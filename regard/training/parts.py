"""A batch in parts: as many at a time as there are threads, each so large that its vectors stay in a core's cache.

On a CPU, threads that share each small operation wait for one another after every one. Here each thread computes
its own rows of the batch from the embeddings to the gradients, and they meet once in an update. What a part draws by
chance depends on its number, and gradients are added in a fixed order: the same threads give the same weights.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.nn.chance import drawing_from

CACHED = 2**18  # numbers in the vectors of a part, source and target: 1 MB; twice as many need far more memory
SMALL = 2**17  # with fewer, a thread is busier with calling than with computing

Gradients = list[Tensor | None]
Computed = tuple[Tensor, int, Gradients]  # loss, number of tokens, gradients
Compute = Callable[[Batch], Computed]


def cut(batch: Batch, number: int) -> list[Batch]:
    """The batch in so many parts of about equal cost, rows of like length together."""
    if number == 1:
        return [batch]
    cost = batch.source_length + batch.target_length
    order = np.argsort(cost, kind="stable")
    sums = np.cumsum(cost[order])
    starts = np.searchsorted(sums, sums[-1] * np.arange(1, number) / number)
    return [take(batch, np.sort(rows)) for rows in np.split(order, starts) if len(rows)]


def take(batch: Batch, rows: np.ndarray) -> Batch:
    """Some rows of a batch, without the places that only others have."""
    part = batch.map(lambda array: array[rows])
    if part.extra:  # whose columns may be those of the source, or others
        return part
    source, target = (part.source[:, : part.source_length.max()], part.target[:, : part.target_length.max()])
    return replace(part, source=source, target=target)


class Parts:
    """Computes gradients of batches part by part, in all threads."""

    def __init__(self, compute: Compute, width: int, threads: int) -> None:
        self._compute = compute
        self._width = width
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "part", torch.set_num_threads, (1,)) if threads > 1 else None

    def number(self, batch: Batch) -> int:
        """How many parts a batch is cut into."""
        size = self._width * int(batch.source_length.sum() + batch.target_length.sum())
        threads = max(1, min(self._threads, size // SMALL))
        return min(len(batch), threads * -(-size // (threads * CACHED)))

    def sum(self, batches: Sequence[Batch], seeds: np.random.SeedSequence) -> Computed:
        """Loss, tokens and gradients of the batches; each part draws from a child of the seeds."""
        parts = [part for batch in batches for part in cut(batch, self.number(batch))]
        seeded = [
            *zip(parts, (int(child.generate_state(1, np.uint64)[0]) for child in seeds.spawn(len(parts))), strict=True)
        ]
        if self._pool is None or len(parts) == len(batches):
            return self._run(seeded)
        shares = [
            self._pool.submit(self._run, seeded[first :: self._threads])
            for first in range(min(self._threads, len(parts)))
        ]
        wait(shares)
        torch.set_num_threads(self._threads)  # what a thread says of itself is what new threads begin with
        return add([share.result() for share in shares])

    def _run(self, seeded: Sequence[tuple[Batch, int]]) -> Computed:
        """The sum over some parts, one after the other."""
        total: Computed | None = None
        for part, seed in seeded:
            with drawing_from(torch.Generator().manual_seed(seed)):
                found = self._compute(part)
            total = found if total is None else add([total, found])
            del found  # before the next part is computed
        assert total is not None
        return total


def add(found: Sequence[Computed]) -> Computed:
    """The sum of losses, tokens and gradients, in place of the first."""
    loss, tokens, gradients = found[0]
    for other, count, more in found[1:]:
        loss, tokens = loss + other, tokens + count
        both = [(mine, its) for mine, its in zip(gradients, more, strict=True) if mine is not None and its is not None]
        if both:
            torch._foreach_add_(*map(list, zip(*both, strict=True)))  # pyright: ignore
        gradients = [its if mine is None else mine for mine, its in zip(gradients, more, strict=True)]
    return loss, tokens, gradients
