"""The best extensions are those of a full sort, with whole blocks of words and without."""

import pytest
import torch

from regard.search import best
from regard.search.best import NATS, best_words, log_total, most_probable

INFINITY = float("inf")


def test_beam_and_word_are_named():
    paid = torch.tensor([[-1.0, -2.0]])
    prices = torch.tensor([[-9.0, -1.0, -5.0], [-0.5, -7.0, -0.2]])
    found, beams, words = best_words(prices, paid, 4)
    assert torch.allclose(found, torch.tensor([[-2.0, -2.2, -2.5, -6.0]]))
    assert beams.tolist() == [[0, 1, 1, 0]]
    assert words.tolist() == [[1, 2, 0, 2]]


@pytest.mark.parametrize("size", [5, 64, 640, 641, 703, 1000])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("number", [1, 6])
@pytest.mark.parametrize("lie", ["rows", "columns"])
def test_the_same_as_a_full_sort(size, beams, number, lie, monkeypatch):
    if number > beams * size:
        pytest.skip("not so many words")
    monkeypatch.setattr(best, "FEW", 0)
    generator = torch.Generator().manual_seed(size + beams + number)
    prices = torch.randn(4 * beams, size, generator=generator)
    prices[:, :3] = -INFINITY  # forbidden words
    prices[1] -= 100  # all of its best words are another beam's
    paid = torch.randn(4, beams, generator=generator)
    paid[2, 1:] = -INFINITY  # beams that do not live yet
    given = prices if lie == "rows" else prices.t().contiguous().t()
    found, owners, words = best_words(given, paid, number)
    assert torch.equal(most_probable(given), prices.argmax(1))
    total = prices.view(4, beams, size) + paid[:, :, None]
    wanted = total.flatten(1).topk(number, 1)
    assert torch.equal(found, wanted.values)
    finite = found.isfinite()
    assert torch.equal(owners[finite], (wanted.indices // size)[finite])
    assert torch.equal(words[finite], (wanted.indices % size)[finite])
    assert torch.equal(most_probable(prices), prices.argmax(-1))


@pytest.mark.parametrize("shift", [0.0, 60.0, -60.0, 500.0, -500.0])
def test_logits_less_their_total_are_log_probabilities(shift):
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(1)) * 3 + shift
    logits[1, 4] = -INFINITY
    logits[2] += 3
    wanted = (logits.double() * NATS).log_softmax(-1)
    found = (logits - log_total(logits)[:, None]).double() * NATS
    torch.testing.assert_close(found, wanted, atol=2e-4 if abs(shift) > 100 else 1e-5, rtol=0)


def test_what_is_no_number_stays_so():
    logits = torch.zeros(2, 4)
    logits[1, 2] = float("nan")
    assert log_total(logits).isnan().tolist() == [False, True]
