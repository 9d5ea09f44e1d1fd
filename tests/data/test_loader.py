"""Order, budget, workers and ranks of batches."""

import os
import random
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from regard.data import plan as planning
from regard.data.loader import Loader, sequential
from regard.data.store import add_column, write_store
from regard.errors import DataError

TOKENS, ROWS = 120, 16


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    chance = random.Random(3)
    rows = [([4 + i % 90] * chance.randint(0, 30), [5] * chance.randint(0, 30)) for i in range(500)]
    rows[7] = ([6] * 300, [7])  # alone above the budget
    return write_store(tmp_path_factory.mktemp("store"), rows, 100, 100)


def make(store, **options):
    return Loader(store, TOKENS, ROWS, **{"seed": 1, **options})


def numbers(batches):
    return [batch.index.tolist() for batch in batches]


def assert_equal(left, right):
    for name in ("source", "source_length", "target", "target_length", "index"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), strict=True)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_example_once_an_epoch(store, workers):
    loader = make(store, workers=workers)
    seen = [numbers(loader.batches(epoch)) for epoch in range(3)]
    for epoch in range(3):
        assert sorted(chain(*seen[epoch])) == list(range(500))
        assert len(seen[epoch]) == loader.count(epoch)
    assert seen[0] != seen[1] != seen[2]
    assert {tuple(batch) for batch in seen[0]} != {tuple(batch) for batch in seen[1]}


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(store, workers):
    alone, helped = list(make(store).batches(2)), list(make(store, workers=workers).batches(2))
    assert len(alone) == len(helped)
    for left, right in zip(alone, helped, strict=True):
        assert_equal(left, right)


@pytest.mark.parametrize("workers", [0, 2])
def test_columns_travel_with_the_batches(store, workers):
    """What is known of each source token lies beside it, padded with zeros."""
    store = add_column(store, "twice", ((2 * row.source[:-1]).tolist() for row in store.rows(range(len(store)))), 9999)
    for batch in make(store, workers=workers).batches(0):
        ended = np.where(np.arange(batch.source.shape[1]) < batch.source_length[:, None] - 1, batch.source, 0)
        np.testing.assert_array_equal(batch.extra["twice"], 2 * ended)
        assert batch.extra["twice"].dtype == np.int64


def test_the_order_is_decided_by_seed_and_epoch_alone(store):
    loader = make(store)
    list(loader.batches(0))
    assert numbers(loader.batches(1)) == numbers(make(store).batches(1))
    assert numbers(make(store, seed=2).batches(1)) != numbers(make(store).batches(1))
    assert numbers(make(store).batches(1)) == [plan.tolist() for plan in make(store).plan(1)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world", [1, 2])
def test_a_later_start_gives_the_tail(store, workers, world):
    loader = make(store, workers=workers, rank=world - 1, world=world)
    whole = numbers(make(store, rank=world - 1, world=world).batches(4))
    for start in (0, 1, 7, len(whole) - 1, len(whole), len(whole) + 3):
        assert numbers(loader.batches(4, start)) == whole[start:]


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_are_disjoint_and_complete(store, workers):
    whole = numbers(make(store).batches(0))
    for rank in range(3):
        assert numbers(make(store, rank=rank, world=3, workers=workers).batches(0)) == whole[rank::3]
    assert sum(make(store, rank=rank, world=3).count(0) for rank in range(3)) == len(whole)
    with pytest.raises(ValueError, match="rank 3"):
        make(store, rank=3, world=3)


def test_batches_keep_the_budget_and_fill_it(store):
    batches = list(make(store).batches(0))
    for batch in batches:
        width = max(batch.source.shape[1], batch.target.shape[1])
        assert len(batch) * width <= TOKENS or (len(batch) == 1 and batch.index.tolist() == [7])
        assert len(batch) <= ROWS
    used = sum(batch.source_length.sum() + batch.target_length.sum() for batch in batches)
    assert used / sum(batch.source.size + batch.target.size for batch in batches) > 0.6  # 0.36 without buckets
    assert len(batches) < 150
    assert max(len(batch) for batch in Loader(store, 10**6, 7, 1).batches(0)) == 7


def test_batches_hold_the_rows_of_the_store(store):
    for batch in list(make(store).batches(0))[:5]:
        for row, number in enumerate(batch.index):
            assert batch.source[row, : batch.source_length[row]].tolist() == store.source(number).tolist()
            assert batch.target[row, : batch.target_length[row]].tolist() == store.target(number).tolist()
            assert not batch.source[row, batch.source_length[row] :].any()


def test_batches_are_not_in_order_of_length(store):
    widths = [batch.source.shape[1] for batch in make(store).batches(0)]
    assert np.corrcoef(widths, range(len(widths)))[0, 1] ** 2 < 0.1


def test_sequential_runs_from_short_to_long(store):
    batches = list(sequential(store, TOKENS, ROWS))
    assert sorted(chain(*numbers(batches))) == list(range(500))
    widths = [max(batch.source.shape[1], batch.target.shape[1]) for batch in batches]
    assert widths == sorted(widths)
    assert numbers(sequential(store, TOKENS, ROWS)) == numbers(batches)


def test_a_large_store_is_released_now_and_then(store, monkeypatch):
    calls = []
    monkeypatch.setattr(type(store), "release", lambda self: calls.append(1))
    loader = make(store)
    loader.plan(0)
    calls.clear()
    list(loader.batches(0))
    assert not calls  # a small one is not
    monkeypatch.setattr(planning, "LARGE", 0)
    monkeypatch.setattr(planning, "RELEASE", 100)
    list(loader.batches(0))
    assert 3 <= len(calls) <= 5


def children():
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "regard.data.worker" in line]


def gone(process, seconds=5):
    """Whether a process ends in time; a zombie has ended."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout.strip()
        if not state or state.startswith("Z"):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def large(tmp_path):
    """So large that workers cannot have sent everything ahead through their pipes."""
    return write_store(tmp_path / "large", (([5] * 200, [6] * 200) for _ in range(4000)), 100, 100)


def test_a_dead_worker_is_an_error_in_time(large):
    batches = Loader(large, 4000, 100, 1, workers=2).batches(0)
    next(batches)
    workers = children()
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(DataError, match=r"loader worker \d \(process \d+\) ended early: SIGKILL"):
        list(batches)
    assert time.monotonic() - begin < 5
    assert children() == []


def test_closing_the_iterator_ends_the_workers(large):
    batches = Loader(large, 4000, 100, 1, workers=2).batches(0)
    next(batches)
    assert len(children()) == 2
    batches.close()
    assert children() == []


def test_signals_for_the_trainer_do_not_end_workers(large):
    loader = Loader(large, 4000, 100, 1, workers=1)
    batches = loader.batches(0)
    next(batches)
    for name in (signal.SIGTERM, signal.SIGINT):
        os.kill(children()[0], name)
    assert len(list(batches)) == loader.count(0) - 1


def test_damage_met_by_a_worker_is_told(large):
    loader = Loader(large, 4000, 100, 1, workers=1)
    loader.plan(0)
    (large.directory / "store.json").unlink()
    with pytest.raises(DataError, match=r"loader worker 0: .*store\.json"):
        list(loader.batches(0))


PROGRAM = """
import sys, time
from regard.data.loader import Loader
from regard.data.store import Store
batches = Loader(Store(sys.argv[1]), 4000, 100, 1, workers=2).batches(0)
next(batches)
print("torch" in sys.modules, flush=True)
time.sleep(60)
"""


def test_workers_end_when_the_trainer_is_killed(large):
    trainer = subprocess.Popen([sys.executable, "-c", PROGRAM, str(large.directory)], stdout=subprocess.PIPE)
    try:
        assert trainer.stdout.readline() == b"False\n"
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(trainer.pid)], capture_output=True, text=True)
        workers = [int(line) for line in found.stdout.split()]
        assert len(workers) == 2
        maps = "".join(Path(f"/proc/{worker}/maps").read_text() for worker in workers)
        assert "numpy" in maps
        assert "torch" not in maps
    finally:
        trainer.kill()
        trainer.wait()
        trainer.stdout.close()
    assert all(gone(worker) for worker in workers)
