"""Fertilities: every target token belongs to one source token, and none is lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.align.aligner import AlignerOptions
from regard.align.fertility import Histogram, assign, corpus_fertilities, fertility
from regard.tasks.bilingual import Habits, aligned_pairs


def test_by_hand():
    """Target token 1 has no link: its left neighbour's; 3 has three: the middle one; 4 has none: that of 3."""
    links = frozenset({(0, 0), (4, 2), (1, 3), (2, 3), (4, 3)})
    assert assign(links, 5, 5).tolist() == [0, 0, 4, 2, 2]
    assert fertility(links, 5, 5).tolist() == [2, 0, 2, 0, 1]


def test_the_nearest_neighbour_counts_and_the_left_one_of_two():
    links = frozenset({(0, 0), (1, 4)})
    assert assign(links, 2, 6).tolist() == [0, 0, 0, 1, 1, 1]
    assert assign(frozenset({(1, 3)}), 2, 4).tolist() == [1, 1, 1, 1]


def test_without_links_along_the_diagonal():
    assert assign(frozenset(), 2, 4).tolist() == [0, 0, 1, 1]
    assert assign(frozenset(), 4, 2).tolist() == [0, 2]
    assert fertility(frozenset(), 3, 0).tolist() == [0, 0, 0]
    assert fertility(frozenset(), 0, 3).tolist() == []
    with pytest.raises(ValueError, match="an empty source"):
        assign(frozenset(), 0, 3)


@given(st.data())
def test_they_sum_to_the_length_of_the_target(data):
    source, target = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 6))
    place = st.tuples(st.integers(0, source - 1), st.integers(0, max(0, target - 1)))
    links = data.draw(st.frozensets(place)) if target else frozenset()
    found = fertility(links, source, target)
    assert len(found) == source
    assert found.sum() == target
    owners = assign(links, source, target)
    for number in range(target):
        linked = {one for one, other in links if other == number}
        assert not linked or owners[number] in linked


def rows_of(pairs):
    """The number in a word's name as its id, behind the special ones."""
    return [tuple([int(word[1:]) + 4 for word in text.split()] for text in pair.pair) for pair in pairs]


def test_of_a_corpus():
    """Where one word in four makes two, nine fertilities of ten are found again."""
    habits = Habits(phrases=0.25, compounds=0, second=0, dropped=0, inserted=0, swapped=0.1, moved=0, turned=0)
    pairs = aligned_pairs(300, words=60, habits=habits)
    rows = rows_of(pairs)
    truth = [fertility(frozenset(pair.links), *map(len, row)) for pair, row in zip(pairs, rows, strict=True)]
    found = corpus_fertilities(rows)
    assert [each.sum() for each in found] == [len(target) for _, target in rows]
    same = np.concatenate([one == other for one, other in zip(found, truth, strict=True)])
    assert same.mean() > 0.89


def test_blank_and_too_long_pairs_have_fertilities_too():
    rows = [([1, 2], [3]), ([], []), ([1], []), ([1, 2, 1, 2], [3, 3])]
    found = corpus_fertilities(rows, AlignerOptions(longest=3))
    assert [each.tolist() for each in found[1:]] == [[], [0], [1, 0, 1, 0]]
    assert found[0].sum() == 1


def test_the_histogram():
    found = Histogram.of([np.array([0, 1, 1]), np.array([], dtype=np.int64), np.array([3])])
    assert found.counts.tolist() == [1, 2, 0, 1]
    assert found.mean == 1.25
    assert found.zeros == 0.25
    assert Histogram.of([]).mean == Histogram.of([]).zeros == 0.0
