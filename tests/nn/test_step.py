"""A layer's step is the layer itself, one position further, and is refused where the layer has other parts."""

import pytest
import torch

from regard.models.transformer import DecoderLayer, Transformer
from regard.nn.self_attention import Cache
from regard.nn.step import FEW, Affine, LayerStep, make_steps, score_bias

WIDTH, HEADS = 16, 4


def make_layer(**options) -> DecoderLayer:
    torch.manual_seed(1)
    return DecoderLayer(Transformer.Config(width=WIDTH, heads=HEADS, feed_forward=24, **options)).eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@torch.no_grad()
def test_step_by_step_is_the_layer(norm, activation):
    layer = make_layer(norm=norm, activation=activation)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    memory, x = torch.randn(2, 5, WIDTH), torch.randn(6, 20, WIDTH)  # three beams of two sentences
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    keys, values = layer.cross_attention.project(memory)
    rows = torch.arange(2).repeat_interleave(3)
    wanted, _ = layer(x, keys[rows], values[rows], mask[rows], None)
    step, cache = LayerStep.of(layer), Cache.empty(6, HEADS, WIDTH // HEADS, x)
    assert step is not None
    assert step.select(rows) is step
    for position in range(20):
        found, cache = step.forward(x[:, position], keys, values, score_bias(mask, HEADS, x), cache)
        torch.testing.assert_close(found, wanted[:, position], atol=1e-5, rtol=1e-5)
    assert cache.length == 20


@pytest.mark.parametrize(
    "options",
    [{"positions": "rotary"}, {"positions": "shaw"}, {"neighbourhood": 4}, {"norm": "none"}, {"residual": False},
     {"self_attention": False}, {"feed_forward": 0}],
)  # fmt: skip
def test_other_parts_have_no_step(options):
    torch.manual_seed(1)
    layer = DecoderLayer(Transformer.Config(**({"width": WIDTH, "heads": HEADS, "feed_forward": 24} | options)))
    assert LayerStep.of(layer) is None
    assert make_steps([make_layer(), layer]) is None
    assert len(make_steps([make_layer()] * 2)) == 2


def test_nothing_is_hidden_from_who_looks_on():
    layer = make_layer()
    layer.cross_attention.tap = print
    assert LayerStep.of(layer) is None


@pytest.mark.parametrize("rows", [1, FEW, FEW + 1])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_linear_map_in_either_order(rows, with_bias):
    torch.manual_seed(0)
    x, layer = torch.randn(rows, 5), torch.nn.Linear(5, 7, bias=with_bias)
    torch.testing.assert_close(Affine.of(layer.weight, layer.bias)(x), layer(x))
