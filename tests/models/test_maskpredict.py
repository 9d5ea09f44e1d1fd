"""Mask-predict: lengths, lessons, passes."""

import pytest
import torch
import torch.nn.functional as F

from regard.config import Search
from regard.data.batch import PAD, make_batch
from regard.engine.native import NativeEngine
from regard.models.maskpredict import HIDDEN, MaskPredict

SECTION = {
    "kind": "maskpredict", "width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 2, "decoder_layers": 2,
    "longest": 9, "dropout": 0.0,
}  # fmt: skip
SOURCES = [[4, 5, 6, 2], [7, 2], [2]]
TARGETS = [[5, 6, 7, 8, 2], [4, 2], [2]]


@pytest.fixture
def model(tiny_model) -> MaskPredict:
    return tiny_model(SECTION, 0, 9, 9, scale=0.4)


@torch.no_grad()
def test_the_likeliest_lengths_are_proposed(model):
    memory = model.encode(model.tensors(make_batch(SOURCES)))
    shares = model.lengths(memory)
    torch.testing.assert_close(shares.exp().sum(-1), torch.ones(3))
    canvas = model.propose(memory, 3)
    best = shares.topk(3, -1)
    assert canvas.length.tolist() == (best.indices + 1).flatten().tolist()
    assert torch.equal(canvas.price, best.values.flatten())
    for row, length in enumerate(canvas.length.tolist()):
        assert canvas.tokens[row].tolist() == [HIDDEN] * length + [PAD] * (canvas.tokens.size(1) - length)
    assert model.propose(memory, 12).length.shape == (36,)  # more than there are lengths


@torch.no_grad()
def test_padding_has_no_part_in_the_length(model):
    together = model.lengths(model.encode(model.tensors(make_batch(SOURCES))))
    for row, source in enumerate(SOURCES):
        alone = model.lengths(model.encode(model.tensors(make_batch([source]))))
        torch.testing.assert_close(together[row], alone[0])


@torch.no_grad()
def test_the_loss_is_that_of_the_paper(model):
    """Evaluated with everything hidden: the length, and every word from the source alone."""
    batch = make_batch(SOURCES, TARGETS)
    total, count = model.loss(batch)
    assert count == 8
    shares, logits = model.lengths(model.encode(model.tensors(batch))), model(batch)
    wanted = -(shares[0, 3] + shares[1, 0] + shares[2, 0])  # an empty target has one place that nobody asks for
    for row, target in enumerate(TARGETS):
        for t, word in enumerate(target[:-1]):
            wanted += F.cross_entropy(logits[row, t], torch.tensor(word))
    torch.testing.assert_close(total, wanted)


def test_a_lesson_hides_some_words_and_asks_for_those(model):
    model.train()
    batch = model.tensors(make_batch([[4, 5, 2]] * 200, [[5, 6, 7, 8, 2]] * 200))
    torch.manual_seed(0)
    canvas, _ = model.lesson(batch, model.encode(batch))
    hidden = canvas.tokens == HIDDEN
    assert torch.equal(hidden, canvas.asked)
    assert torch.equal(canvas.tokens[~hidden], batch.target[:, :4][~hidden])
    counts = hidden.sum(1).bincount(minlength=5).tolist()
    assert counts[0] == 0
    assert min(counts[1:]) > 30  # 1 to 4 of them, about equally often
    assert min(hidden.sum(0).tolist()) > 90  # every place as often


@pytest.mark.usefixtures("unchecked")
def test_more_passes_look_at_other_words(model, tiny_model):
    """After the first pass what is asked for depends on what was said."""
    engine = NativeEngine([tiny_model(SECTION, 3, 9, 9)])
    with torch.no_grad():
        engine.models[0].length.bias[5] += 50
    once = engine.search(SOURCES[:2], Search(method="greedy"))
    often = engine.search(SOURCES[:2], Search(method="greedy", passes=6))
    assert {len(outputs[0].ids) for outputs in [*once, *often]} == {6}
    assert [outputs[0].ids for outputs in once] != [outputs[0].ids for outputs in often]
