"""The sparse table of translations."""

import math

import numpy as np
import pytest

from regard.align import lexicon as module
from regard.align.bitext import Bitext
from regard.align.lexicon import Lexicon, digamma

ROWS = [([0, 1], [0, 1, 2]), ([1], [3])]


def as_dict(lexicon: Lexicon, values: np.ndarray) -> dict:
    """(source, target) → value, in the ids of the rows; NULL is -1."""
    keys = [divmod(key, lexicon.width) for key in lexicon.keys.tolist()]
    return {(source - 1, target - 1): value for (source, target), value in zip(keys, values.tolist(), strict=False)}


@pytest.mark.parametrize("merge", [1, 1 << 24])
def test_only_what_occurs_together_has_a_place(merge, monkeypatch):
    monkeypatch.setattr(module, "MERGE", merge)
    lexicon = Lexicon(Bitext.read(ROWS, 9))
    found = as_dict(lexicon, lexicon.probabilities)
    null = {(-1, target): 0.25 for target in range(4)}
    assert found == null | {(0, target): 1 / 3 for target in range(3)} | {(1, target): 0.25 for target in range(4)}


def test_slots_lead_back_to_the_words():
    bitext = Bitext.read(ROWS, 9)
    lexicon = Lexicon(bitext)
    for chunk in bitext.chunks():
        slots = lexicon.slots(chunk)
        for step, column, place in np.ndindex(*slots.shape):
            target = chunk.target[step, column]
            expected = chunk.source[column, place] * lexicon.width + target
            slot = slots[step, column, place]
            assert slot == len(lexicon.keys) if target == 0 else lexicon.keys[slot] == expected
    assert lexicon.probabilities[len(lexicon.keys)] == 0


def test_counts_become_shares():
    lexicon = Lexicon(Bitext.read(ROWS, 9))
    values = np.arange(len(lexicon.keys) + 1, dtype=float)
    lexicon.add(np.arange(len(values)), values)
    lexicon.update()
    assert as_dict(lexicon, lexicon.probabilities)[-1, 3] == 3 / (0 + 1 + 2 + 3)
    sums = np.add.reduceat(lexicon.probabilities[:-1], lexicon.starts)
    np.testing.assert_allclose(sums, 1)
    assert lexicon.counts.sum() == 0
    assert lexicon.probabilities[-1] == 0  # whatever was counted for padding


def test_a_prior_makes_small_counts_smaller():
    lexicon = Lexicon(Bitext.read(ROWS, 9))
    lexicon.add(np.arange(3), np.array([5.0, 0.1, 0.4]))  # three translations of NULL; the fourth has no count
    lexicon.update(prior=0.01)
    found = as_dict(lexicon, lexicon.probabilities)
    expected = math.exp(digamma(np.array(5.01)) - digamma(np.array(5.5 + 4 * 0.01)))
    assert found[-1, 0] == pytest.approx(expected)
    assert found[-1, 1] < 0.1 / 5.5 / 100
    assert 0 < found[-1, 3] <= found[-1, 1]


def test_digamma():
    euler = 0.5772156649015329
    x = np.array([1.0, 2.0, 0.5, 10.0])
    harmonic = sum(1 / n for n in range(1, 10))
    expected = [-euler, 1 - euler, -euler - 2 * math.log(2), harmonic - euler]
    np.testing.assert_allclose(digamma(x), expected, atol=1e-9)
    small = np.array([1e-3, 0.01, 0.3])
    np.testing.assert_allclose(digamma(small + 1) - digamma(small), 1 / small, rtol=1e-8)
