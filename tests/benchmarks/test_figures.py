"""Medians, ratios."""

import pytest

from benchmarks.figures import advantage, best, summarise


def test_the_median_is_not_moved_by_one_disturbed_round():
    found = summarise([100.0, 10.0, 104.0])
    assert (found.median, found.rounds) == (100.0, 3)
    assert found.spread == pytest.approx(0.94)
    assert summarise([5.0]).spread == 0
    assert summarise([0.0, 0.0]).spread == 0


def test_above_one_always_means_that_we_are_ahead():
    assert advantage(200, 100, higher=True) == 2
    assert advantage(2, 4, higher=False) == 2
    assert advantage(50, 100, higher=True) == 0.5
    assert advantage(3, 0, higher=True) == float("inf")


def test_the_best_peer_depends_on_what_is_better():
    medians = {"slow": 10.0, "fast": 30.0}
    assert best(medians, higher=True) == "fast"
    assert best(medians, higher=False) == "slow"
