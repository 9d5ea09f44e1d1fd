"""Which examples go into which batch: a budget of tokens, length buckets, an order that (seed, epoch) decides.

Examples are shuffled, sorted by length within windows, and cut where rows × longest row would exceed the
budget; then the batches are shuffled. A plan takes 4 bytes an example, and no batch depends on another.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from regard.data.batch import Batch
from regard.data.store import LARGE, Store

WINDOW = 100  # batches among which examples are sorted by length: less padding when more, less mixing
RELEASE = 64  # rows after which the touched pages of a large store are given back: each brings 15 neighbours

Lengths = tuple[np.ndarray, np.ndarray]  # tokens of every source and of every target


@dataclass(frozen=True)
class Budget:
    """How large a batch may be: rows × longest row of either side, and rows; one long example is always allowed."""

    tokens: int
    rows: int


@dataclass(frozen=True)
class Plan:
    """The batches of an epoch: batch k holds the examples `order[begins[k]:ends[k]]`."""

    order: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, number: int) -> np.ndarray:
        return self.order[self.begins[number] : self.ends[number]]


def plan_epoch(lengths: Lengths, budget: Budget, seed: int, epoch: int) -> Plan:
    """The shuffled batches of an epoch, a pure function of what it is given."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    order = _numbers(lengths)
    generator.shuffle(order)
    tokens = max(int(side.sum(dtype=np.int64)) for side in lengths)
    rows = max(1, min(budget.rows, budget.tokens * len(order) // tokens))
    begins = _sort_and_cut(order, lengths, budget, WINDOW * rows)
    ends = np.append(begins[1:], len(order))
    shuffled = generator.permutation(len(begins))
    return Plan(order, begins[shuffled], ends[shuffled])


def plan_in_order(lengths: Lengths, budget: Budget) -> Plan:
    """Batches from the shortest examples to the longest, always the same."""
    order = _numbers(lengths)
    begins = _sort_and_cut(order, lengths, budget, len(order))
    return Plan(order, begins, np.append(begins[1:], len(order)))


def _numbers(lengths: Lengths) -> np.ndarray:
    count = len(lengths[0])
    return np.arange(count, dtype=np.uint32 if count < 1 << 32 else np.uint64)


def _sort_and_cut(order: np.ndarray, lengths: Lengths, budget: Budget, window: int) -> np.ndarray:
    """Sort each window of the order by length, in place; where batches begin."""
    begins: list[int] = []
    for first in range(0, len(order), window):
        part = order[first : first + window]
        source, target = lengths[0][part], lengths[1][part]
        longest = np.maximum(source, target)
        ascending = np.lexsort((source, longest))
        part[:] = part[ascending]
        longest = longest[ascending].astype(np.int64)
        begin = 0
        while begin < len(part):
            begins.append(first + begin)
            ahead = longest[begin : begin + budget.rows]
            cost = ahead * np.arange(1, len(ahead) + 1)  # ascends, for the rows do
            begin += max(1, int(np.searchsorted(cost, budget.tokens, side="right")))
    return np.array(begins, dtype=np.int64)


def make_batches(store: Store, plan: Plan, numbers: Iterable[int]) -> Iterator[Batch]:
    """The planned batches of these numbers, with the memory of a large store given back now and then."""
    touched = 0
    for number in numbers:
        examples = plan[number]
        yield store.batch(examples)
        touched += len(examples)
        if touched >= RELEASE and store.bytes > LARGE:
            store.release()
            touched = 0
