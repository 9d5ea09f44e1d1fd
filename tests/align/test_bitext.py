"""Chunks: every usable pair once, padded behind, longest target first."""

import numpy as np
import pytest

from regard.align import bitext as module
from regard.align.bitext import Bitext

ROWS = [([5, 6], [7]), ([], [1]), ([4], []), ([0, 1], [2, 3, 4]), ([9], [8, 8]), ([1, 2, 3, 4], [1]), ([6, 5], [7])]


@pytest.fixture(params=[1, 12, 1 << 18])
def cells(request, monkeypatch):
    monkeypatch.setattr(module, "CELLS", request.param)
    return request.param


def test_every_usable_pair_comes_once(cells):
    bitext = Bitext.read(ROWS, longest=3)
    assert len(bitext) == len(ROWS)
    assert bitext.too_long == 1
    assert bitext.tokens == 1 + 3 + 2 + 1
    assert bitext.cells == 3 * 1 + 3 * 3 + 2 * 2 + 3 * 1
    seen = []
    for chunk in bitext.chunks():
        assert (np.diff(chunk.lengths) <= 0).all()
        assert chunk.target.shape == (chunk.lengths[0], len(chunk.rows))
        assert chunk.active.tolist() == [(chunk.lengths > step).sum() for step in range(chunk.lengths[0])]
        if cells == 1:
            assert len(chunk.rows) == 1
        for column, row in enumerate(chunk.rows.tolist()):
            source, target = ROWS[row]
            assert chunk.source[column].tolist() == [0, *(number + 1 for number in source)]
            padding = [0] * (len(chunk.target) - len(target))
            assert chunk.target[:, column].tolist() == [*(number + 1 for number in target), *padding]
            seen.append(row)
    assert sorted(seen) == [0, 3, 4, 6]


def test_the_other_direction():
    swapped = Bitext.read(ROWS, 10).swapped()
    again = Bitext.read([(target, source) for source, target in ROWS], 10)
    for one, other in zip(swapped.chunks(), again.chunks(), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert one.source.tolist() == other.source.tolist()
        assert one.target.tolist() == other.target.tolist()


def test_arrays_and_nothing():
    arrays = Bitext.read(((np.array(source), np.array(target)) for source, target in ROWS), 10)
    assert [arrays.source.row(number) for number in range(len(ROWS))] == [source for source, _ in ROWS]
    assert list(Bitext.read([], 10).chunks()) == []
    assert list(Bitext.read([([], [])], 10).chunks()) == []
