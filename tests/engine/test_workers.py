"""The torch engine in several processes: the same answers, the same errors, nothing left behind."""

import os
import signal
import time

import numpy as np
import pytest

import regard
from regard.config import Search
from regard.engine.workers import Workers
from regard.errors import ConfigError, ModelError, RegardError
from regard.predict import in_parallel

SOURCES = [[4, 5, 6, 2], [7, 2], [6, 9, 2]]


@pytest.fixture(scope="module")
def pair(shop):
    """One model here, and in two other processes."""
    here = regard.load(shop / "transformer").engine
    there = Workers([shop / "transformer" / "model"], 2)
    yield here, there
    there.close()
    assert all(worker.process.returncode is not None for worker in there.all)


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_searches_are_the_same(pair, method):
    here, there = pair
    options = Search(method=method, beam=3, maximum_length=6)
    for prefixes in (None, [[4], [], [5, 5]]):
        wanted = here.search(SOURCES, options, prefixes, [3, 1, 2])
        assert there.search(SOURCES, options, prefixes, [3, 1, 2]) == wanted


def test_the_rest_is_the_same(pair):
    here, there = pair
    assert there.limit == here.limit
    for one, other in zip(here.score(SOURCES, SOURCES), there.score(SOURCES, SOURCES), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(here.cross_attention(SOURCES, SOURCES), there.cross_attention(SOURCES, SOURCES))
    with pytest.raises(ConfigError, match="without workers"):
        there.attend(SOURCES[0], SOURCES[0])


def test_a_refused_call_does_not_end_a_worker(shop, call, tmp_path):
    words = ["model={kind='ctc', width=16, tie='none', heads=2}", "train.max_steps=1", "train.average=0", "--quiet"]
    assert call("train", shop / "tiny.toml", "-o", tmp_path / "ctc", *words).code == 0
    there = Workers([tmp_path / "ctc" / "model"], 1)
    with pytest.raises(ConfigError, match="forced beginnings"):
        there.search(SOURCES, Search(), [[4], [], []])
    assert len(there.search(SOURCES, Search())) == 3
    there.close()


def test_many_calls_come_back_in_order(pair):
    here, there = pair
    options = Search(method="greedy", maximum_length=6)
    rows = [[4 + number % 5] * (1 + number % 7) + [2] for number in range(20)]
    wanted = [here.search([row], options) for row in rows]
    assert in_parallel(lambda row: there.search([row], options), rows, 2) == wanted


def test_an_error_of_the_model_is_that_error_here(tmp_path, shop):
    with pytest.raises(ModelError, match="no such model directory"):
        Workers([tmp_path / "missing"], 2)
    with pytest.raises(ConfigError, match="several workers need the CPU"):
        regard.load(shop / "rnn", workers=2, device="cuda")


def test_a_killed_process_is_told(shop):
    there = Workers([shop / "transformer" / "model"], 1)
    os.kill(there.all[0].process.pid, signal.SIGKILL)
    with pytest.raises(RegardError, match=r"translation worker 0 .* ended early: SIGKILL"):
        there.search(SOURCES, Search())
    there.close()


def test_a_process_ends_when_nobody_asks_any_more(shop):
    worker = Workers([shop / "transformer" / "model"], 1).all[0]
    worker.process.send_signal(signal.SIGINT)  # not for it
    worker.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert worker.process.poll() is None
    worker.process.stdin.close()
    assert worker.process.wait(timeout=60) == 0


def test_in_parallel_raises_the_first_error():
    def fail(number):
        if number == 3:
            raise ConfigError("three")
        return number * 2

    assert in_parallel(fail, [1, 2], 2) == [2, 4]
    for workers in (1, 2):
        with pytest.raises(ConfigError, match="three"):
            in_parallel(fail, [1, 2, 3, 4, 5], workers)
