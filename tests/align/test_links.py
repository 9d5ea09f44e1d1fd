"""Pharaoh files, and what is wrong about one."""

import numpy as np
import pytest

from regard.align.links import Alignment, Gold, read_links, write_links
from regard.errors import DataError


def test_a_line_in_order():
    assert write_links({(2, 10), (2, 9), (0, 1)}) == "0-1 2-9 2-10"
    assert write_links([]) == ""


def test_a_whole_corpus_of_links():
    pairs = [frozenset({(0, 3), (4, 1)}), frozenset(), frozenset({(2, 2)}), frozenset()]
    packed = Alignment.pack(pairs)
    assert list(packed) == pairs
    assert packed[2] == {(2, 2)}
    assert list(packed.turned()) == [frozenset((b, a) for a, b in each) for each in pairs]
    mixed = Alignment(4, np.array([2, 0, 0]), np.array([2, 4, 0]), np.array([2, 1, 3]))
    assert list(mixed) == pairs
    assert list(Alignment.pack([])) == []
    assert packed[-2] == packed[2:][0] == {(2, 2)}
    for outside in (-5, 4):
        with pytest.raises(IndexError):
            packed[outside]


def test_sure_and_possible_links(tmp_path):
    path = tmp_path / "gold"
    path.write_text("0-0 1?1  0-0\n\n2?0 2-0\n")
    found = read_links(path, [(2, 2), (0, 4), (3, 1)])
    assert found[0] == Gold(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
    assert found[1] == Gold(frozenset(), frozenset())
    assert found[2].sure == found[2].possible == {(2, 0)}  # said twice, once for sure


def test_what_is_written_is_read(tmp_path):
    links = [frozenset({(0, 3), (4, 1)}), frozenset(), frozenset({(2, 2)})]
    path = tmp_path / "links"
    path.write_text("".join(write_links(each) + "\n" for each in links))
    assert [each.sure for each in read_links(path, [(5, 5)] * 3)] == links


@pytest.mark.parametrize("word", ["3", "3-", "-3", "a-b", "1-2-3", "1:2", "٣-1", "0--1", "1234567890-1"])
def test_a_bad_link_is_told_with_its_line(word, tmp_path):
    path = tmp_path / "bad"
    path.write_text(f"0-0\n0-0 {word}\n")
    with pytest.raises(DataError, match=rf"bad: line 2: expected links as 3-4 or 3\?4, found '{word}'"):
        read_links(path, [(9, 9), (9, 9)])


def test_a_link_outside_the_pair(tmp_path):
    path = tmp_path / "far"
    path.write_text("1-1\n0-2\n")
    assert read_links(path, [(2, 2), (1, 3)])
    with pytest.raises(DataError, match=r"far: line 1: 1-1 is outside the pair: its source has 1 tokens"):
        read_links(path, [(1, 2), (1, 3)])
    with pytest.raises(DataError, match=r"far: line 2: 0-2 is outside the pair: its target has 2 tokens"):
        read_links(path, [(2, 2), (1, 2)])


def test_too_few_or_too_many_lines(tmp_path):
    path = tmp_path / "short"
    path.write_text("0-0\n\n")
    for pairs in (1, 3):
        with pytest.raises(DataError, match=rf"short has 2 lines, but there are {pairs} pairs"):
            read_links(path, [(1, 1)] * pairs)
