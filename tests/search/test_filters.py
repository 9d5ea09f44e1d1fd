import math

import pytest
import torch

from regard.config import Search, length_penalty
from regard.data.batch import BOS, EOS, PAD, UNK
from regard.errors import ModelError
from regard.search.filters import NEVER, Request, check_number, forbid_repeats, restrict

V = 7


def prices(rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, V, generator=torch.Generator().manual_seed(0)).log_softmax(-1)


def allowed(history: list[list[int]], limits: list[int], prefixes=None, **options) -> list[set[int]]:
    """What each row may choose; what it may choose keeps its price."""
    given = prices(len(history))
    rows = torch.tensor(history, dtype=torch.long).view(len(history), -1)
    found = restrict(given.clone(), rows, range(len(history)), Request(limits, prefixes), Search(**options))
    kept = found != NEVER
    assert torch.equal(found[kept], given[kept])
    return [set(row.nonzero().flatten().tolist()) for row in kept]


def test_padding_and_bos_are_never_chosen():
    assert allowed([[]], [9]) == [set(range(V)) - {PAD, BOS}]


def test_at_the_limit_only_the_end_comes():
    assert allowed([[4, 5], [4, 5]], [2, 3]) == [{EOS}, {EOS, UNK, 4, 5, 6}]
    assert allowed([[]], [0]) == [{EOS}]


def test_no_end_before_the_minimum_length():
    assert allowed([[4]], [9], minimum_length=2) == [{UNK, 4, 5, 6}]
    assert allowed([[4, 5]], [9], minimum_length=2) == [{EOS, UNK, 4, 5, 6}]
    assert allowed([[4], [4]], [1, 9], minimum_length=2) == [{EOS}, {UNK, 4, 5, 6}]  # the limit is stronger


@pytest.mark.parametrize(
    ("size", "history", "forbidden"),
    [
        (1, [4, 5], {4, 5}),
        (2, [4, 5, 4], {5}),
        (2, [4, 4], {4}),
        (2, [4, 5, 4, 6, 4], {5, 6}),
        (3, [4, 5, 6, 4, 5], {6}),
        (3, [4, 5, 6, 5, 4], set()),
        (3, [4, 5], set()),
        (2, [5], set()),
    ],
)
def test_no_ngram_comes_twice(size, history, forbidden):
    assert allowed([history], [99], no_repeat=size) == [{EOS, UNK, 4, 5, 6} - forbidden]


def test_repeats_are_forbidden_row_by_row():
    scores = torch.zeros(2, V)
    forbid_repeats(scores, torch.tensor([[4, 5, 4], [5, 6, 5]]), 2)
    assert (scores == NEVER).nonzero().tolist() == [[0, 5], [1, 6]]


def test_an_output_that_cannot_go_on_ends():
    """Every word was used and the end is not due: it ends all the same, at the model's price."""
    assert allowed([[3, 4, 5, 6], [3, 4, 5, 5]], [9, 9], no_repeat=1, minimum_length=8) == [{EOS}, {6}]


def test_a_prefix_is_forced_whatever_the_filters_say():
    assert allowed([[4], [4], [4]], [9, 9, 1], [[4, 6], [4], [4, 6]]) == [{6}, {EOS, UNK, 4, 5, 6}, {EOS}]
    assert allowed([[4, 5, 4]], [9], [[4, 5, 4, 5]], no_repeat=2) == [{5}]  # a repetition that was asked for
    assert allowed([[4]], [9], [[4, EOS]], minimum_length=5) == [{EOS}]


def test_rows_belong_to_their_sentences():
    """Beams of one sentence share its limit and prefix."""
    request = Request([1, 5], [[], [4, 6]])
    found = restrict(prices(4), torch.tensor([[4], [4], [4], [4]]), [0, 0, 1, 1], request, Search())
    assert [row.nonzero().flatten().tolist() for row in found != NEVER] == [[EOS], [EOS], [6], [6]]


def test_length_penalties():
    """Lengths are counted without EOS; an empty output counts as one word, so that nothing divides by zero."""
    for length in (0, 1, 2, 7):
        for alpha in (0, 0.5, 1.0, 2.0):
            assert length_penalty(length, Search(alpha=alpha)) == pytest.approx(max(length, 1) ** alpha)
            gnmt = Search(alpha=alpha, penalty="gnmt")
            assert length_penalty(length, gnmt) == pytest.approx(((5 + length) / 6) ** alpha)


def test_what_is_no_number_is_an_error_of_the_model():
    check_number(-math.inf)
    with pytest.raises(ModelError, match="not numbers"):
        check_number(math.nan)
