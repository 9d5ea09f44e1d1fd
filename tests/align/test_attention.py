"""Alignments from weights; the weights are a function here, and that of a real model in the tests of the command."""

import numpy as np
import pytest

from regard.align import attention as module
from regard.align.attention import attention_links
from regard.align.bitext import Bitext
from regard.data.batch import EOS
from regard.errors import ModelError

ROWS = [([5, 6, 7], [7, 5]), ([], [4]), ([9], [9, 9, 9]), ([4] * 9, [4]), ([4, 8], [8, 4])]


def look(sources, targets):
    """Each target token looks at the source tokens of its own kind, the last of them most, and at EOS far more."""
    weights = np.zeros((len(sources), max(map(len, targets)), max(map(len, sources))))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        assert source[-1] == target[-1] == EOS
        for place, token in enumerate(target):
            for other, seen in enumerate(source):
                weights[row, place, other] = 9.0 if seen == EOS else (token == seen) * (1 + other)
        weights[row, :, len(source) :] = 99.0  # padding must not be looked at
    return weights


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_the_source_token_most_looked_at(rows, monkeypatch):
    monkeypatch.setattr(module, "ROWS", rows)
    done = []
    found = attention_links(look, Bitext.read(ROWS, 8), done.append)
    assert found[0] == {(2, 0), (0, 1)}
    assert found[2] == {(0, 0), (0, 1), (0, 2)}
    assert found[4] == {(1, 0), (0, 1)}
    assert found[1] == found[3] == set()  # blank, and too long
    assert done[-1] == 3
    assert attention_links(look, Bitext.read(ROWS, 9))[3] == {(8, 0)}


def test_a_model_that_looks_at_nothing():
    with pytest.raises(ModelError, match="no attention from target to source"):
        attention_links(lambda sources, targets: None, Bitext.read(ROWS, 8))
