"""Made pairs: a function of their seed, with the lengths and frequencies that are promised."""

import numpy as np

from benchmarks.inputs import make_task
from benchmarks.made import (
    characters,
    load_batches,
    make_lesson,
    make_pairs,
    pad,
    read_lines,
    save_batches,
    spell,
    typical,
    write_lines,
)
from benchmarks.shapes import FIRST


def test_pairs_are_a_function_of_their_seed():
    one, same, other = make_pairs(50, 3, 400), make_pairs(50, 3, 400), make_pairs(50, 4, 400)
    assert np.array_equal(one.source.ids, same.source.ids)
    assert np.array_equal(one.target.ends, same.target.ends)
    assert not np.array_equal(one.source.ids[:100], other.source.ids[:100])


def test_lengths_are_like_those_of_multi30k():
    pairs = make_pairs(20_000, 1, 8000)
    lengths = pairs.source.lengths()
    assert abs(lengths.mean() - 14) < 0.3
    assert abs(lengths.std() - 6) < 0.5
    assert lengths.min() == 3
    assert lengths.max() <= 50
    assert np.corrcoef(lengths, pairs.target.lengths())[0, 1] > 0.9


def test_ids_fall_off_like_words_and_leave_the_specials_alone():
    ids = make_pairs(20_000, 1, 8000).source.ids
    assert ids.min() == FIRST
    assert ids.max() == 7999
    counts = np.bincount(ids, minlength=8000)
    assert 1.5 < counts[FIRST] / counts[FIRST + 1] < 2.0  # log 2 / log 1.5 = 1.7
    assert counts[FIRST : FIRST + 10].sum() > 10 * counts[4000:4010].sum()


def test_all_may_have_one_length_with_the_end_counted():
    pairs = make_pairs(5, 1, 400, length=16)
    assert set(pairs.source.lengths()) == set(pairs.target.lengths()) == {15}
    assert {len(row) for row in typical(7, 1, 400, length=16)} == {15}


def test_a_lesson_has_one_answer_to_all_sources():
    pairs = make_lesson(5, 1, 400, length=16)
    assert {tuple(row) for row in pairs.target} == {tuple(range(FIRST, FIRST + 15))}
    assert len({tuple(row) for row in pairs.source}) == 5


def test_typical_sources_are_of_middle_length():
    lengths = [len(row) for row in typical(32, 1, 8000)]
    assert len(lengths) == 32
    assert 12 <= min(lengths) <= max(lengths) <= 16


def test_text_and_back(tmp_path):
    pairs = make_pairs(6, 1, 400)
    write_lines(tmp_path / "source.txt", pairs.source)
    assert read_lines(tmp_path / "source.txt") == [row.tolist() for row in pairs.source]
    write_lines(tmp_path / "pairs.tsv", pairs.source, pairs.target)
    first = (tmp_path / "pairs.tsv").read_text(encoding="utf-8").splitlines()[0].split("\t")
    assert first == [spell(pairs.source[0]), spell(pairs.target[0])]
    assert spell([3, FIRST]) == "?" + characters(400)[0]


def test_our_tokenizer_reads_the_text_as_the_ids_it_was_made_from():
    task, row = make_task(400), make_pairs(1, 1, 400).source[0]
    assert task.source.tokenizer.size == 400
    assert task.source.ids(spell(row)) == row.tolist()


def test_batches_come_back_as_they_were_planned(tmp_path):
    pairs = make_pairs(5, 1, 400)
    save_batches(tmp_path / "batches.npz", pairs, [np.array([4, 1]), np.array([0, 2, 3])])
    found = load_batches(tmp_path / "batches.npz")
    assert [len(sources) for sources, _ in found] == [2, 3]
    assert found[0][0][0].tolist() == pairs.source[4].tolist()
    assert found[1][1][2].tolist() == pairs.target[3].tolist()


def test_padding_uses_the_ids_of_the_toolkit():
    assert pad([[7, 8], [9]], 1, 2, 3).tolist() == [[2, 7, 8, 3], [2, 9, 3, 1]]
    assert pad([np.array([7]), [8, 9]], 0, None, 2).tolist() == [[7, 2, 0], [8, 9, 2]]
