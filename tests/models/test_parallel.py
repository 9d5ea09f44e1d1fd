"""What models share that write all words at once."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.config import Search
from regard.data.batch import EOS, PAD, make_batch
from regard.engine.native import NativeEngine
from regard.errors import ConfigError
from regard.models.base import build_model
from regard.models.parallel import Parallel, copied
from regard.view.record import record

SECTION = {
    "kind": "nonautoregressive", "width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 2, "decoder_layers": 2,
    "most": 6, "dropout": 0.0,
}  # fmt: skip
SOURCES = [[4, 5, 6, 2], [7, 2], [2]]
TARGETS = [[5, 6, 7, 8, 2], [4, 2], [2]]


@pytest.fixture
def model(tiny_model) -> Parallel:
    return tiny_model(SECTION, 0, 9, 9, scale=0.4)


def test_words_are_copied_as_often_as_their_fertility():
    source = torch.tensor([[4, 5, 6, 2], [7, 8, 2, 0], [9, 2, 0, 0], [5, 6, 2, 0]])
    fertility = torch.tensor([[1, 0, 3, 0], [0, 2, 0, 0], [0, 0, 0, 0], [5, 1, 0, 0]])
    tokens, length = copied(source, fertility)
    assert length.tolist() == [4, 2, 1, 6]  # none at all makes one place
    assert tokens.tolist() == [
        [4, 6, 6, 6, PAD, PAD],
        [8, 8, PAD, PAD, PAD, PAD],
        [9, PAD, PAD, PAD, PAD, PAD],
        [5, 5, 5, 5, 5, 6],
    ]


@torch.no_grad()
def test_all_places_see_each_other_but_not_themselves(model):
    """Another word copied to one place changes what every other place says."""
    batch = model.tensors(make_batch(SOURCES[:1], TARGETS[:1]))
    memory = model.encode(batch)
    canvas, _ = model.teach(batch, memory)
    before = model.fill(canvas, memory)
    for place in range(4):
        tokens = canvas.tokens.clone()
        tokens[0, place] = 8
        after = model.fill(dataclasses.replace(canvas, tokens=tokens), memory)
        assert ((after - before)[0].abs().amax(-1) > 1e-6).all()


@torch.no_grad()
def test_the_end_has_the_price_of_the_proposal(model):
    """So that the score of a target is that of its words and of its places."""
    batch = make_batch(SOURCES, TARGETS)
    logits, tensors = model(batch), model.tensors(batch)
    assert logits.shape == (3, 5, 9)
    price = model.teach(tensors, model.encode(tensors))[0].price
    for row, target in enumerate(TARGETS):
        shares = logits[row].log_softmax(-1)
        torch.testing.assert_close(shares[len(target) - 1, EOS], price[row])
        assert (shares[: len(target) - 1, EOS] < -1e-3).all()


def test_an_ensemble_is_refused(model):
    with pytest.raises(ConfigError, match="word by word"):
        NativeEngine([model, model])


def test_forced_beginnings_are_refused(model):
    with pytest.raises(ConfigError, match="forced beginnings"):
        NativeEngine([model]).search(SOURCES, Search(), [[4], [], []])


@pytest.mark.parametrize("kind", ["nonautoregressive", "ctc", "maskpredict"])
def test_heads_must_divide_the_width(kind):
    with pytest.raises(ConfigError, match="width 10 cannot be divided into 4 heads"):
        build_model({"kind": kind, "width": 10, "heads": 4}, 9, 9)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("changes", "search"),
    [
        ({}, Search(beam=4, nbest=4)),
        ({"kind": "maskpredict", "longest": 8, "most": None}, Search(beam=3, nbest=3, passes=4)),
        ({"kind": "maskpredict", "longest": 8, "most": None}, Search(method="greedy")),
        ({"kind": "ctc", "stretch": 3, "most": None}, Search(method="greedy")),
    ],
)
def test_the_last_pass_can_be_made_again(tiny_model, changes, search):
    """What is shown of an output is what its places looked at when they were filled as the search has filled them."""
    section = {key: value for key, value in (SECTION | changes).items() if value is not None}
    model, source = tiny_model(section, 0, 9, 9, scale=0.4), [4, 5, 6, 7, 2]
    engine = NativeEngine([model])
    found = engine.writings(source, search)
    assert len(found) == search.nbest
    for ids, writing in found.items():
        target = [*ids, EOS]
        with torch.no_grad(), record(model) as maps:
            filled = model.filled(model.tensors(make_batch([source], [target])), writing)
        shares = model.output(filled.hidden)[0].detach().softmax(1)
        for place, (word, certain, fresh) in enumerate(zip(*vars(writing.passes[-1]).values(), strict=True)):
            if fresh:
                assert float(shares[place, word]) == pytest.approx(certain, rel=1e-4)
        shown = {each.name: each.weights for each in engine.attend(source, target, writing)}
        made = maps["decoder.1.cross_attention"][0]
        if filled.places is not None:
            made = made[:, filled.places[0, : len(ids)]]
        assert np.allclose(shown["decoder.1.cross_attention"][:, : len(ids)], made[:, : len(ids)], atol=1e-6)
