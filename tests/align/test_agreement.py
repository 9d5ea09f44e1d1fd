"""The alignment error rate, by hand."""

import numpy as np
import pytest

from regard.align.agreement import alignment_error, count_links
from regard.align.links import Gold
from regard.errors import DataError

# two pairs: three sure links, two more possible ones
GOLD = [
    Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)})),
    Gold(frozenset({(0, 0)}), frozenset({(0, 0), (0, 1)})),
]


def test_by_hand():
    """A has 5 links, 2 of them sure and 3 possible: precision 3/5, recall 2/3, AER 1 - (2 + 3) / (5 + 3)."""
    found = [frozenset({(0, 0), (2, 1), (3, 3)}), frozenset({(0, 0), (1, 1)})]
    score = alignment_error(found, GOLD)
    assert score.details == {"precision": 0.6, "recall": 2 / 3, "f1": pytest.approx(12 / 19), "links": 5, "sure": 3}
    assert score.value == pytest.approx(3 / 8)
    assert str(score) == "alignment error rate: 37.50 %"
    assert not score.higher_is_better


def test_possible_links_are_free():
    sure, possible = [each.sure for each in GOLD], [each.possible for each in GOLD]
    assert alignment_error(sure, GOLD).value == alignment_error(possible, GOLD).value == 0.0
    assert alignment_error([frozenset(), frozenset()], GOLD).value == 1.0


def test_with_sure_links_alone_it_is_one_less_f1():
    gold = [Gold(each.sure, each.sure) for each in GOLD]
    score = alignment_error([frozenset({(0, 0), (5, 5)}), frozenset({(0, 0)})], gold)
    assert score.value == pytest.approx(1 - score.details["f1"])


def test_nothing_to_find():
    nothing = Gold(frozenset(), frozenset())
    assert alignment_error([frozenset()], [nothing]).value == 0.0
    assert alignment_error([frozenset({(0, 0)})], [nothing]).value == 1.0


def test_counts_are_sums_over_lines():
    found = [frozenset({(0, 0)}), frozenset({(1, 1)})]
    counts = count_links(found, GOLD)
    assert counts.rows.tolist() == [[1, 2, 1, 1], [1, 1, 0, 0]]
    assert counts.score(np.array([1.0, 0.0])).value == alignment_error(found[:1], GOLD[:1]).value


def test_lines_that_do_not_correspond():
    with pytest.raises(DataError, match="1 alignments but 2"):
        alignment_error([frozenset()], GOLD)
    with pytest.raises(DataError, match="nothing to score"):
        alignment_error([], [])
