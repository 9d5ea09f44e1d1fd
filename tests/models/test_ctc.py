"""CTC: places, the loss against torch's, glancing, what is read."""

import pytest
import torch
import torch.nn.functional as F

from regard.config import Search
from regard.data.batch import PAD, make_batch
from regard.engine.native import NativeEngine
from regard.errors import ConfigError
from regard.models.base import build_model
from regard.models.ctc import BLANK, CTC

SECTION = {
    "kind": "ctc", "width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 2, "decoder_layers": 2,
    "stretch": 2, "dropout": 0.0,
}  # fmt: skip
SOURCES = [[4, 5, 6, 2], [7, 2], [2]]
TARGETS = [[5, 6, 6, 8, 2], [4, 2], [2]]


@pytest.fixture
def model(tiny_model) -> CTC:
    return tiny_model(SECTION, 0, 9, 9, scale=0.4)


@torch.no_grad()
def test_every_source_token_has_its_places(model):
    canvas = model.propose(model.encode(model.tensors(make_batch(SOURCES))), 2)
    assert canvas.length.tolist() == [8, 4, 2]
    assert canvas.tokens[0].tolist() == [4, 4, 5, 5, 6, 6, 2, 2]
    assert canvas.tokens[1].tolist() == [7, 7, 2, 2, PAD, PAD, PAD, PAD]


@torch.no_grad()
def test_the_loss_is_that_of_torch(model):
    batch = make_batch(SOURCES, TARGETS)
    total, count = model.loss(batch, 0.1)
    assert count == 8
    tensors = model.tensors(batch)
    shares = model.output(model.filled(tensors).hidden).log_softmax(-1).transpose(0, 1)
    places, length = torch.tensor([8, 4, 2]), torch.tensor([4, 1, 0])
    torch.testing.assert_close(
        total, F.ctc_loss(shares, tensors.target[:, :-1], places, length, BLANK, reduction="sum")
    )


def test_a_target_that_does_not_fit_teaches_nothing(model):
    long = make_batch([[4, 2], [5, 2]], [[5, 5, 5, 5, 2], [6, 2]])
    alone = make_batch([[5, 2]], [[6, 2]])
    total, count = model.loss(long)
    torch.testing.assert_close(total, model.loss(alone)[0])
    assert count == 2, "nor does it make the mean smaller"
    total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@torch.no_grad()
def test_words_stand_in_order(model):
    tensors = model.tensors(make_batch(SOURCES[:1], TARGETS[:1]))
    places = model.filled(tensors).places[0]
    assert places.tolist() == sorted(set(places.tolist()))
    found = NativeEngine([model]).attend(SOURCES[0], TARGETS[0])
    shapes = {layer.kind: layer.weights.shape[1:] for layer in found}
    assert shapes == {"encoder": (4, 4), "places": (5, 5), "cross": (5, 4)}
    cross = next(layer for layer in found if layer.kind == "cross")
    torch.testing.assert_close(torch.as_tensor(cross.weights[:, :4].sum(-1)), torch.ones(2, 4))


def test_glancing_shows_words_of_the_target(tiny_model):
    model = tiny_model({**SECTION, "stretch": 4, "glance": 0.9}, 0, 9, 9, scale=0.4)
    batch = model.tensors(make_batch([[4, 5, 2]] * 50, [[8, 7, 8, 3, 2]] * 50))
    memory = model.encode(batch)
    canvas = model._places(memory)
    seen = model._glance(canvas, memory, batch.target[:, :-1], batch.target_length - 1)
    changed = seen.tokens != canvas.tokens
    assert changed.any()
    assert set(seen.tokens[changed].tolist()) <= {8, 7, 3}
    assert torch.equal(seen.length, canvas.length)
    once = seen.tokens[0][changed[0]].tolist()
    assert once == [word for word in once if word in (8, 7, 3)]
    model.train()
    torch.manual_seed(0)
    glanced = model.loss(batch)[0]
    model.eval()
    assert glanced != model.loss(batch)[0]
    with pytest.raises(ConfigError, match="needs tie = 'all'"):
        build_model({**SECTION, "glance": 0.5, "tie": "none"}, 9, 9)


@torch.no_grad()
def test_the_score_is_that_of_the_best_path(model):
    """So the score of the model's own output is the one the search has given it."""
    engine = NativeEngine([model])
    for source in SOURCES:
        output = engine.search([source], Search(method="greedy"))[0][0]
        price = float(engine.score([source], [[*output.ids, 2]])[0].sum())
        assert price == pytest.approx(output.log_probability, abs=1e-4)
    assert engine.score([[4, 2]], [[5] * 9 + [2]])[0].sum() < -1e3, "nine words do not fit into four places"


def test_an_empty_target(model):
    batch = make_batch([[4, 5, 2], [6, 2]], [[2], [2]])
    total, _ = model.loss(batch)
    total.backward()
    assert model(batch).shape == (2, 1, 9)
    assert NativeEngine([model]).attend([4, 5, 2], [2])
    glancing = build_model({**SECTION, "glance": 0.5}, 9, 9).train()
    assert glancing.loss(batch)[0].isfinite()


def test_blanks_and_repetitions_are_not_read(model):
    assert model.read([BLANK, 5, 5, BLANK, 5, 6]) == [5, 5, 6]
    outputs = NativeEngine([model]).search(SOURCES, Search(beam=3))
    assert [len(each) for each in outputs] == [1, 1, 1], "all candidates are the same"
