"""Tied tensors once, weights lent and given back, means and moving averages."""

import pytest
import torch
from torch import nn
from toy_run import Toy

from regard.errors import ModelError
from regard.training.storage import decode, encode
from regard.training.weights import MovingAverage, copied, lent, load_model, mean, model_tensors


def test_tied_weights_are_saved_once_and_stay_tied():
    model, other = Toy(), Toy()
    model.seen.fill_(5)
    tensors = model_tensors(model)
    assert "embedding.weight" in tensors
    assert "output.weight" not in tensors
    load_model(other, decode(encode(tensors, "x"), "x"))
    assert other.output.weight is other.embedding.weight
    assert torch.equal(other.output.weight, model.output.weight)
    assert other.seen == 5


def test_buffers_that_are_not_persistent_are_left_out():
    model = nn.Module()
    model.register_buffer("table", torch.ones(2), persistent=False)
    model.register_buffer("count", torch.ones(2))
    assert list(model_tensors(model)) == ["count"]


def test_other_names_and_shapes_are_refused_and_nothing_is_changed():
    model = nn.Linear(2, 3)
    before = copied(model_tensors(model))
    with pytest.raises(ModelError, match="missing tensor 'bias'"):
        load_model(model, {"weight": torch.zeros(3, 2)})
    with pytest.raises(ModelError, match="unknown tensor 'more'"):
        load_model(model, {**before, "more": torch.zeros(3)})
    with pytest.raises(ModelError, match=r"'bias' is \[4\], expected \[3\]"):
        load_model(model, {"weight": torch.zeros(3, 2), "bias": torch.zeros(4)})
    assert all(torch.equal(before[name], tensor) for name, tensor in model_tensors(model).items())


def test_lent_weights_are_given_back_after_an_error():
    model = nn.Linear(2, 3)
    before = copied(model_tensors(model))

    def look():
        with lent(model, {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}):
            raise KeyError(float(model.weight.abs().sum().detach()))

    with pytest.raises(KeyError, match=r"0\.0"):
        look()
    assert all(torch.equal(before[name], tensor) for name, tensor in model_tensors(model).items())


def test_mean_in_double_precision():
    sets = [{"a": torch.full((2,), 1e8 + shift), "n": torch.tensor(shift)} for shift in (0, 8, 16, 8)]
    result = mean(sets)
    assert result["a"].dtype == torch.float32
    assert result["a"].tolist() == [1e8 + 8] * 2
    assert result["n"].tolist() == 8
    assert sets[0]["a"][0] == 1e8


def test_moving_average_equals_its_formula():
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)
    average = MovingAverage(model, 0.5)
    expected = 1.0
    for step in range(1, 15):
        model.weight.data.fill_(float(step * step))
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step * step
    assert average.tensors["weight"].item() == pytest.approx(expected, rel=1e-6)
    assert model.weight.item() == 14 * 14
