"""The non-autoregressive Transformer: copies by fertility, what it proposes, what it is taught."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.config import Search
from regard.data.batch import EOS, make_batch
from regard.engine.native import NativeEngine
from regard.models.nonautoregressive import NonAutoregressive, drawn, fitted
from regard.search.sample import generator

SECTION = {
    "kind": "nonautoregressive", "width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 2, "decoder_layers": 2,
    "most": 6, "dropout": 0.0,
}  # fmt: skip
SOURCES = [[4, 5, 6, 2], [7, 2], [2]]
TARGETS = [[5, 6, 7, 8, 2], [4, 2], [2]]
FERTILITY = np.array([[2, 0, 2, 0], [1, 0, 0, 0], [0, 0, 0, 0]])


@pytest.fixture
def model(tiny_model) -> NonAutoregressive:
    return tiny_model(SECTION, 0, 9, 9, scale=0.4)


def taught():
    return dataclasses.replace(make_batch(SOURCES, TARGETS), extra={"fertility": FERTILITY})


def test_fertilities_are_brought_to_a_length():
    mask = torch.tensor([[True] * 4, [True] * 4, [True, True, True, False], [True] * 4])
    fertility = torch.tensor([[1, 0, 3, 0], [1, 0, 3, 0], [0, 0, 0, 0], [2, 2, 0, 0]])
    found = fitted(fertility, torch.tensor([4, 8, 3, 0]), mask)
    assert found.tolist() == [[1, 0, 3, 0], [2, 0, 6, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


@torch.no_grad()
def test_the_loss_is_that_of_the_paper(model):
    """− Σ log p(f_s|x) − Σ log p(y_t | x copied by f), computed one by one."""
    batch = taught()
    total, count = model.loss(batch, 0.1)
    assert count == 8  # the ends are counted as for every other model
    memory = model.encode(model.tensors(batch))
    logits, wanted = model(batch), 0.0
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        shares = F.log_softmax(model.fertility(memory.values[row, : len(source)]), -1)
        proposal = sum(shares[s, FERTILITY[row, s]] for s in range(len(source)))
        wanted -= proposal
        for t, word in enumerate(target[:-1]):
            wanted += F.cross_entropy(logits[row, t], torch.tensor(word), label_smoothing=0.1)
        torch.testing.assert_close(logits[row, len(target) - 1].log_softmax(-1)[EOS], proposal)
    torch.testing.assert_close(total, torch.as_tensor(wanted))


@torch.no_grad()
def test_the_likeliest_and_the_mean_fertilities(model):
    memory = model.encode(model.tensors(make_batch(SOURCES)))
    prices = model.fertilities(memory)
    canvas = model.propose(memory, 1)
    assert torch.equal(canvas.fertility, prices.argmax(-1))
    torch.testing.assert_close(canvas.price, prices.amax(-1).sum(-1))
    assert not canvas.fertility[1, 2:].any()  # padding
    mean = (prices.exp() * torch.arange(6)).sum(-1)
    assert not torch.equal(mean.round(), prices.argmax(-1))
    assert torch.equal(model.propose(memory, 1, mean=True).fertility, mean.round())


def test_fertilities_are_drawn_as_they_are_probable():
    prices = torch.tensor([[[0.5, 0.3, 0.2]]]).log()
    mask = torch.ones(1, 1, dtype=torch.bool)
    found = [int(drawn(prices, mask, [generator(1, number)])) for number in range(3000)]
    for fertility, share in enumerate((0.5, 0.3, 0.2)):
        assert abs(found.count(fertility) / 3000 - share) < 0.03


@pytest.mark.usefixtures("unchecked")
def test_more_candidates_are_never_worse(model):
    """Noisy parallel decoding without a teacher: the model's own score decides."""
    engine = NativeEngine([model])
    one = engine.search(SOURCES, Search(method="greedy"))
    several = engine.search(SOURCES, Search(beam=8, nbest=8))
    for alone, outputs in zip(one, several, strict=True):
        assert len(alone) == 1
        assert outputs[0].score >= alone[0].score - 1e-6
        assert len({output.ids for output in outputs}) == len(outputs)
        assert [output.score for output in outputs] == sorted((output.score for output in outputs), reverse=True)
        assert alone[0].ids in {output.ids for output in outputs}


@pytest.mark.usefixtures("unchecked")
def test_outputs_keep_their_maximum_length(model):
    with torch.no_grad():
        model.fertility.bias += torch.tensor([0.0, 0, 0, 0, 0, 50])
    (outputs,) = NativeEngine([model]).search([[4, 5, 6, 2]], Search(method="greedy", maximum_length=3))
    assert len(outputs[0].ids) == 3
    assert not outputs[0].finished


@pytest.mark.usefixtures("unchecked")
def test_no_fertility_at_all_gives_one_word(model):
    with torch.no_grad():
        model.fertility.bias += torch.tensor([50.0, 0, 0, 0, 0, 0])
    for outputs in NativeEngine([model]).search(SOURCES, Search(method="greedy")):
        assert len(outputs[0].ids) == 1
        assert outputs[0].finished


@pytest.mark.usefixtures("unchecked")
def test_what_the_search_has_done_can_be_followed(model):
    engine, source, search = NativeEngine([model]), [4, 5, 6, 2], Search(beam=4, nbest=4)
    outputs = engine.search([source], search, None, [0])[0]
    writings = engine.writings(source, search)
    assert set(writings) == {output.ids for output in outputs}
    for ids, writing in writings.items():
        assert writing.passes[-1].tokens == ids
        copies = [token for token, number in zip(source, writing.fertility, strict=True) for _ in range(number)]
        assert list(writing.start) == (copies or [4])
