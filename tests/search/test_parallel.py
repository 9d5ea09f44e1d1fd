"""The parallel search over made probabilities: choosing, refining, reading."""

from dataclasses import dataclass, replace

import pytest
import torch

from regard.config import Search
from regard.data.batch import BOS, EOS, PAD
from regard.errors import ModelError
from regard.search import parallel
from regard.search.best import BITS
from regard.search.filters import Request
from regard.search.parallel import Filler, parallel_search, trace

WORDS = 8


@dataclass(frozen=True)
class Places:
    """A canvas of made places: what is hidden at each."""

    length: torch.Tensor
    price: torch.Tensor
    hidden: torch.Tensor  # [N,T]
    fertility = None

    @property
    def tokens(self):
        return torch.where(self.hidden, BOS, PAD)

    @property
    def mask(self):
        return torch.arange(self.hidden.size(1)) < self.length[:, None]


def places(lengths, prices=None):
    length = torch.tensor(lengths)
    hidden = torch.ones(len(lengths), max(lengths), dtype=torch.bool)
    return Places(length, torch.tensor(prices or [0.0] * len(lengths)), hidden)


def peaked(rows):
    """Logits that give the named word of each place the named lead."""
    logits = torch.zeros(len(rows), max(map(len, rows)), WORDS)
    for row, words in enumerate(rows):
        for place, (word, lead) in enumerate(words):
            logits[row, place, word] = lead
    return logits


def in_bits(logits):
    """An output layer that finds the logits made already."""
    return logits * BITS


def search(filler, sentences, **options):
    return parallel_search(filler, Request([20] * sentences), Search(**options))


def test_the_likeliest_word_of_every_place():
    """PAD, BOS and EOS are never among them."""
    logits = peaked([[(5, 2.0), (PAD, 9.0), (6, 1.0)], [(EOS, 9.0), (7, 3.0)]])
    logits[0, 1, 4] = 1.0
    logits[1, 0, 3] = 0.5
    filler = Filler(lambda *_: places([3, 2]), lambda canvas: logits.clone(), in_bits, None, list)
    (first,), (second,) = search(filler, 2, method="greedy", alpha=0.0)
    assert (first.ids, second.ids) == ((5, 4, 6), (3, 7))
    shares = logits.log_softmax(-1)
    wanted = shares[0, 0, 5] + shares[0, 1, 4] + shares[0, 2, 6]
    assert first.log_probability == pytest.approx(float(wanted), abs=1e-5)
    assert BOS not in first.ids


def test_candidates_are_ranked_by_score_and_told_once():
    canvas = places([1, 2, 2, 1], [-0.5, -0.1, -0.2, -3.0])
    logits = peaked([[(4, 3.0)], [(5, 6.0), (6, 6.0)], [(5, 6.0), (6, 6.0)], [(7, 3.0)]])
    filler = Filler(lambda *_: canvas, lambda _: logits.clone(), in_bits, None, list)
    (outputs,) = search(filler, 1, beam=4, nbest=4)
    assert [output.ids for output in outputs] == [(5, 6), (4,), (7,)]
    shares = logits.log_softmax(-1)
    best = float(shares[1, 0, 5] + shares[1, 1, 6]) - 0.1
    assert outputs[0].log_probability == pytest.approx(best, abs=1e-5)
    assert outputs[0].score == pytest.approx(best / 2, abs=1e-5)


def test_the_least_certain_places_are_filled_again():
    """Four places, four passes: 3, 2 and 1 of them are looked at again, with the others known."""
    seen = []
    first = peaked([[(4, 1.0), (5, 4.0), (6, 2.0), (7, 3.0)]])

    def fill(canvas):
        if canvas.hidden.all():
            return first.clone()
        return peaked([[(4, 8.0), (5, 8.0), (4, 1.5), (5, 8.0)]])

    def hide(canvas, tokens, hidden):
        seen.append((tokens[0].tolist(), hidden[0].tolist()))
        return replace(canvas, hidden=hidden)

    filler = Filler(lambda *_: places([4]), fill, in_bits, hide, list)
    ((output,),) = search(filler, 1, method="greedy", passes=4)
    assert [sum(hidden) for _, hidden in seen] == [3, 2, 1]
    assert seen[0] == ([4, 5, 6, 7], [True, False, True, True])
    assert seen[1][1][2]  # still the least certain
    assert output.ids == (4, 5, 4, 5)
    ((once,),) = search(filler, 1, method="greedy")
    assert once.ids == (4, 5, 6, 7)


def test_one_place_is_always_looked_at_again():
    counts = []

    def hide(canvas, tokens, hidden):
        counts.append(int(hidden.sum()))
        return replace(canvas, hidden=hidden)

    filler = Filler(lambda *_: places([1]), lambda canvas: peaked([[(4, 1.0)]]), in_bits, hide, list)
    search(filler, 1, method="greedy", passes=3)
    assert counts == [1, 1]


def test_blanks_and_what_they_say():
    logits = peaked([[(5, 5.0), (5, 5.0), (PAD, 5.0), (5, 5.0)]])
    read = lambda tokens: [token for place, token in enumerate(tokens) if token and token != ([0] + tokens)[place]]  # noqa: E731, RUF005
    filler = Filler(lambda *_: places([4]), lambda canvas: logits.clone(), in_bits, None, read, blank=PAD)
    ((output,),) = search(filler, 1, method="greedy")
    assert output.ids == (5, 5)


def test_many_places_are_filled_some_at_a_time(monkeypatch):
    """Logits are made of real places alone, never of all at once, and say the same."""
    generator = torch.Generator().manual_seed(3)
    canvas = places([5, 1, 7, 3, 6], [-0.1, -0.2, -0.3, -0.4, -0.5])
    logits, seen = torch.randn(5, 7, WORDS, generator=generator), []

    def output(rows):
        seen.append(len(rows))
        return in_bits(rows)

    filler = Filler(lambda *_: canvas, lambda _: logits, output, None, list)
    whole = search(filler, 5, method="greedy")
    assert seen == [22]
    monkeypatch.setattr(parallel, "ROWS", 8)
    assert search(filler, 5, method="greedy") == whole
    assert seen == [22, 8, 8, 6]


def test_damaged_weights_are_told():
    logits = torch.full((1, 2, WORDS), float("nan"))
    filler = Filler(lambda *_: places([2]), lambda canvas: logits, in_bits, None, list)
    with pytest.raises(ModelError, match="not numbers"):
        search(filler, 1, method="greedy")


def test_how_an_output_came_about():
    """Two places, two passes: the less certain one is filled again."""
    first = peaked([[(4, 3.0), (5, 1.0)]])
    second = peaked([[(4, 3.0), (6, 9.0)]])
    canvas = places([2])

    def fill(which):
        return (first if which is canvas else second).clone()

    filler = Filler(lambda *_: canvas, fill, in_bits, lambda *_: replace(canvas), list, copies=False)
    ((ids, writing),) = trace(filler, Request([20]), Search(method="greedy", passes=2))[0].items()
    assert ids == (4, 6)
    assert [each.tokens for each in writing.passes] == [(4, 5), (4, 6)]
    assert [each.fresh for each in writing.passes] == [(True, True), (False, True)]
    assert writing.passes[1].certain[1] > writing.passes[0].certain[1]
    assert (writing.fertility, writing.copied) == (None, False)
