"""The average attention network against its equations, and at constant cost a step."""

import pytest
import torch

from regard.data.batch import make_batch
from regard.errors import ConfigError
from regard.models.average import Average, AverageAttention
from regard.models.base import build_model
from regard.models.transformer import Transformer

SIZES = {"width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.0}


@torch.no_grad()
def test_the_mean_is_that_of_the_paper():
    torch.manual_seed(0)
    average, x = Average(Transformer.Config(**SIZES)), torch.randn(2, 5, 8)
    found, running = average(x, None)
    for t in range(5):
        g = average.feed_forward(x[:, : t + 1].mean(1, keepdim=True))[:, 0]
        gates = torch.sigmoid(average.gates(torch.cat([x[:, t], g], -1)))
        torch.testing.assert_close(found[:, t], gates[:, :8] * x[:, t] + gates[:, 8:] * g)
    torch.testing.assert_close(running.sum, x.sum(1))
    assert running.length == 5


@torch.no_grad()
def test_a_step_keeps_one_vector_a_layer(tiny_model):
    model = tiny_model({"kind": "average", "tie": "all", **SIZES}, 0, 9, 9)
    assert isinstance(model, AverageAttention)
    memory = model.encode(model.tensors(make_batch([[4, 5, 2]])))
    state = model.start(memory)
    for step in range(20):
        _, state = model.decode(torch.tensor([[4]]), memory, state)
        assert [tuple(each.sum.shape) for each in state.caches] == [(1, 8)] * 2
        assert state.caches[0].length == step + 1


def test_options_that_cannot_be():
    with pytest.raises(ConfigError, match="9 cannot be divided into 2 heads"):
        build_model({"kind": "average", **SIZES, "width": 9}, 7, 7)
