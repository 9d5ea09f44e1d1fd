"""Objectives: what a teacher thinks of a model's outputs, by hand and through a run."""

import numpy as np
import pytest
import torch

import regard
from regard.data.batch import BOS, EOS, make_batch
from regard.errors import ConfigError
from regard.nn.chance import gumbel
from regard.objective import LikelihoodObjective, ReverseObjective

NAT = {
    "kind": "nonautoregressive", "width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 1, "decoder_layers": 1,
    "most": 5, "dropout": 0.0,
}  # fmt: skip
TEACHER = {
    "kind": "transformer", "width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 1, "decoder_layers": 1,
    "tie": "all", "dropout": 0.0,
}  # fmt: skip


@pytest.fixture
def objective(tiny_model):
    teacher = tiny_model(TEACHER, 1, 9, 9, scale=0.4).requires_grad_(False)
    return ReverseObjective(tiny_model(NAT, 0, 9, 9, scale=0.4), teacher, 0.0, 0.25)


@pytest.fixture
def batch():
    made = make_batch([[4, 5, 6, 2], [7, 2]], [[5, 6, 7, 2], [4, 2]])
    made.extra["fertility"] = np.array([[2, 1, 0, 0], [1, 0, 0, 0]])
    return made


@torch.no_grad()
def test_the_view_of_the_teacher_by_hand(objective, batch):
    model, teacher = objective.model, objective.teacher
    tensors = model.tensors(batch)
    memory = model.encode(tensors)
    canvas, _ = model.teach(tensors, memory)
    found = objective.reverse(canvas, memory, teacher.encode(tensors))
    for row, length in enumerate((3, 1)):
        logits = model.output(model.fill(canvas, memory))[row, :length]
        said = logits.argmax(-1).tolist()
        alone = teacher.encode(teacher.tensors(make_batch([batch.source[row, : batch.source_length[row]]])))
        wanted = 0.0
        for place in range(length):
            hidden, _ = teacher.decode(torch.tensor([[BOS, *said[:place]]]), alone)
            wanted -= (logits[place].softmax(-1) * teacher.output(hidden)[0, -1].log_softmax(-1)).sum()
        hidden, _ = teacher.decode(torch.tensor([[BOS, *said]]), alone)
        wanted -= teacher.output(hidden)[0, -1].log_softmax(-1)[EOS]
        torch.testing.assert_close(found[row], wanted)


def test_all_terms_reach_what_they_should(objective, batch):
    model, teacher = objective.model, objective.teacher
    torch.manual_seed(0)
    total, count = objective.loss(batch)
    assert count == 6
    total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in teacher.parameters())
    tensors = model.tensors(batch)
    memory = model.encode(tensors)
    torch.manual_seed(0)
    prices = model.fertilities(memory)
    fertility = (prices + gumbel(torch.rand(prices.shape))).argmax(-1)
    drawn = model.canvas_of(memory, prices, fertility)
    judge = teacher.encode(tensors)
    mean = model.canvas_of(memory, prices, model.mean(prices))
    worse = (objective.reverse(drawn, memory, judge) - objective.reverse(mean, memory, judge)).detach()
    words = objective.reverse(model.teach(tensors, memory)[0], memory, judge)
    wanted = 0.25 * ((worse * drawn.price).sum() + words.sum()) + 0.75 * model.loss(batch)[0]
    torch.testing.assert_close(total, wanted)


def test_what_the_teacher_likes_gets_likelier(objective, batch):
    """A few steps on the teacher's term alone: its view of the outputs gets better."""
    model = objective.model
    tensors = model.tensors(batch)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    views = []
    for _ in range(30):
        memory = model.encode(tensors)
        view = objective.reverse(model.teach(tensors, memory)[0], memory, objective.teacher.encode(tensors)).sum()
        optimiser.zero_grad()
        view.backward()
        optimiser.step()
        views.append(view.item())
    assert views[-1] < 0.7 * views[0]


def test_likelihood_is_the_models_own_loss(tiny_model, batch):
    model = tiny_model(TEACHER, 1, 9, 9)
    assert LikelihoodObjective(model, 0.1).loss(batch)[0] == model.loss(batch, 0.1)[0]


def test_a_run_with_a_teacher(shop, tmp_path):
    values = {
        "data": {"train": str(shop / "test.tsv"), "valid": str(shop / "test.tsv"), "batch_tokens": 400},
        "text": {"source": "words", "target": "words", "joint": True},
        "model": TEACHER,
        "train": {"max_steps": 2, "validate_every": 2, "decode_limit": 2},
    }
    regard.train(values, tmp_path / "teacher", quiet=True)
    nat = values | {"model": NAT, "start_encoder": str(tmp_path / "teacher")}
    regard.train(nat, tmp_path / "nat", quiet=True)
    tuned = nat | {"start": str(tmp_path / "nat"), "reverse": {"teacher": str(tmp_path / "teacher")}}
    del tuned["start_encoder"]
    model = regard.train(tuned, tmp_path / "tuned", quiet=True).engine.models[0]
    plain = regard.load(tmp_path / "nat").engine.models[0]
    assert model.state_dict().keys() == plain.state_dict().keys(), "the teacher is no part of the model"
    assert any(not torch.equal(one, other) for one, other in zip(model.parameters(), plain.parameters(), strict=True))
    for wrong, message in (
        ({**values, "reverse": {"teacher": str(tmp_path / "teacher")}}, "needs model.kind = 'nonautoregressive'"),
        ({**nat, "reverse": {"teacher": str(tmp_path / "nat")}}, "expected a model that writes word by word"),
        ({**nat, "reverse": {"teacher": str(shop / "rnn")}}, "its tokenizers are not those of the corpus"),
    ):
        with pytest.raises(ConfigError, match=message):
            regard.train(wrong, tmp_path / "wrong", quiet=True)
