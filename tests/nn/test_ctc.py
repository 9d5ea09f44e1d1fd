"""CTC against torch's own and against every path by hand."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from regard.nn.ctc import best_path, collapse, ctc_log_probability, path_prices

BLANK = 0
TARGET = torch.tensor([[1, 2, 2, 3], [3, 3, 3, 0], [2, 0, 0, 0], [1, 2, 3, 0]])
LENGTH = torch.tensor([4, 3, 1, 0])
PLACES = torch.tensor([7, 6, 3, 4])


@pytest.fixture
def shares():
    return torch.randn(4, 7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).log_softmax(-1)


def states_of(shares):
    index = TARGET[:, None].expand(-1, shares.size(1), -1)
    return path_prices(shares.gather(2, index), shares[:, :, BLANK], LENGTH)


def test_it_equals_torch_with_gradients(shares):
    logits = [shares.clone().requires_grad_() for _ in range(2)]
    ours = ctc_log_probability(states_of(logits[0].log_softmax(-1)), TARGET, PLACES, LENGTH)
    theirs = -F.ctc_loss(logits[1].log_softmax(-1).transpose(0, 1), TARGET, PLACES, LENGTH, BLANK, reduction="none")
    torch.testing.assert_close(ours, theirs)
    for prices in (ours, theirs):
        prices.sum().backward()
    torch.testing.assert_close(logits[0].grad, logits[1].grad, atol=1e-9, rtol=1e-7)


def test_the_best_path_is_the_best_of_all(shares):
    paths = best_path(states_of(shares), TARGET, PLACES, LENGTH)
    for row in range(4):
        places, target = int(PLACES[row]), TARGET[row, : LENGTH[row]].tolist()
        every = [
            tokens for tokens in itertools.product(range(4), repeat=places) if collapse(list(tokens), BLANK) == target
        ]
        prices = [sum(float(shares[row, place, token]) for place, token in enumerate(tokens)) for tokens in every]
        found = [0 if state % 2 == 0 else target[state // 2] for state in paths[row, :places].tolist()]
        assert tuple(found) == every[prices.index(max(prices))]
        total = torch.tensor(prices, dtype=torch.float64).logsumexp(0)
        torch.testing.assert_close(ctc_log_probability(states_of(shares), TARGET, PLACES, LENGTH)[row], total)


def test_a_target_that_does_not_fit_has_no_path(shares):
    prices = states_of(shares)
    short = ctc_log_probability(prices, TARGET, torch.tensor([4, 4, 1, 1]), LENGTH)  # 2 2 and 3 3 3 need blanks between
    assert (short[:2] < -1e20).all()
    assert (short[2:] > -100).all()


def test_collapse():
    assert collapse([0, 1, 1, 0, 1, 2, 2, 0], 0) == [1, 1, 2]
    assert collapse([0, 0], 0) == []
    assert collapse([], 0) == []
