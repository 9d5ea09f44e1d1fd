"""The batches of a store, epoch by epoch, made here or by helper processes, for one rank of several.

Batch k of an epoch is decided by the plan (`plan.py`) alone: it can be made without the ones before it, and
the number of workers changes nothing. Rank r of w takes the batches r, r + w, … of the plan.
"""

from collections.abc import Iterator

from regard.data.batch import Batch
from regard.data.plan import Budget, Lengths, Plan, make_batches, plan_epoch, plan_in_order
from regard.data.store import Store
from regard.data.worker import Task, Worker


class Loader:
    """Makes the batches of a store for one rank of `world`."""

    def __init__(
        self,
        store: Store,
        batch_tokens: int,
        batch_rows: int,
        seed: int,
        workers: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world}")
        self.store, self.budget, self.seed = store, Budget(batch_tokens, batch_rows), seed
        self.workers, self.rank, self.world = workers, rank, world
        self._lengths: Lengths | None = None
        self._planned: tuple[int, Plan] | None = None

    def plan(self, epoch: int) -> Plan:
        """All batches of an epoch, of all ranks."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = None  # let the old one go first
            self._lengths = self._lengths or self.store.lengths()
            self._planned = (epoch, plan_epoch(self._lengths, self.budget, self.seed, epoch))
        return self._planned[1]

    def numbers(self, epoch: int) -> range:
        """The numbers in the plan of this rank's batches; ranks may differ by one in how many they have."""
        return range(self.rank, len(self.plan(epoch)), self.world)

    def count(self, epoch: int) -> int:
        """How many batches this rank has in an epoch."""
        return len(self.numbers(epoch))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's batches of an epoch from its number `start` on."""
        numbers = self.numbers(epoch)[start:]
        count = min(self.workers, len(numbers))
        if count == 0:
            yield from make_batches(self.store, self.plan(epoch), numbers)
            return
        workers: list[Worker] = []
        try:
            for number in range(count):
                workers.append(Worker(number, self._task(epoch, numbers[number::count])))
            for number in range(len(numbers)):
                yield workers[number % count].receive()
        finally:
            for worker in workers:
                worker.close()

    def _task(self, epoch: int, numbers: range) -> Task:
        directory = str(self.store.directory.resolve())
        return Task(
            directory, self.budget.tokens, self.budget.rows, self.seed, epoch, numbers.start, numbers.stop, numbers.step
        )


def sequential(store: Store, batch_tokens: int, batch_rows: int) -> Iterator[Batch]:
    """The whole store from the shortest example to the longest, always in the same batches: for validation."""
    plan = plan_in_order(store.lengths(), Budget(batch_tokens, batch_rows))
    return make_batches(store, plan, range(len(plan)))
