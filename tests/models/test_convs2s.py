"""ConvS2S against the paper's equations, written as loops over rows and positions."""

import math

import pytest
import torch

from regard.data.batch import make_batch
from regard.errors import ConfigError
from regard.models.base import build_model, shift_right

SECTION = {
    "kind": "convs2s", "width": 6, "embedding": 5, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0,
    "encoder_kernel": 3, "decoder_kernel": 3, "max_length": 12,
}  # fmt: skip
BATCH = make_batch([[4, 5, 6, 2], [2], [7, 2]], [[4, 5, 2], [6, 6, 7, 4, 2], [2]])


@pytest.fixture
def model():
    torch.manual_seed(1)
    return build_model(SECTION, 9, 8).eval()


def linear(module, x):
    """g · v / ‖v‖ of each output, times x, plus b."""
    v = module.linear.parametrizations.weight
    weight = v.original0 * v.original1 / v.original1.norm(dim=1, keepdim=True)
    return weight @ x + module.linear.bias


def gated(module, window):
    """One position from its window [kernel, width]."""
    v = module.convolution.parametrizations.weight
    weight = v.original0 * v.original1 / v.original1.flatten(1).norm(dim=1)[:, None, None]
    both = torch.einsum("oik,ki->o", weight, window) + module.convolution.bias
    a, b = both.chunk(2)
    return a * torch.sigmoid(b)


@torch.no_grad()
def test_encoder_follows_the_paper(model):
    memory = model.encode(model.tensors(BATCH))
    for row, ids in enumerate([[4, 5, 6, 2], [2], [7, 2]]):
        e = [model.source.tokens.weight[token] + model.source.positions.table[t] for t, token in enumerate(ids)]
        x = [linear(model.encoder_in, vector) for vector in e]
        for layer in model.encoder:
            zero = torch.zeros(6)
            padded = [zero, *x, zero]
            y = [gated(layer, torch.stack(padded[t : t + 3])) for t in range(len(x))]
            x = [(one + other) * math.sqrt(0.5) for one, other in zip(x, y, strict=True)]
        for t, vector in enumerate(x):
            z = linear(model.encoder_out, vector)
            torch.testing.assert_close(memory.projected[0][0][row, t], z)
            torch.testing.assert_close(memory.values[row, t], (z + e[t]) * math.sqrt(0.5))


@torch.no_grad()
def test_decoder_follows_the_paper(model):
    batch = model.tensors(BATCH)
    memory = model.encode(batch)
    hidden, _ = model.decode(shift_right(batch.target), memory)
    keys, values = memory.projected[0]
    for row, (source, ids) in enumerate(zip([4, 1, 2], [[1, 4, 5], [1, 6, 6, 7, 4], [1]], strict=True)):
        g = [model.target.tokens.weight[token] + model.target.positions.table[t] for t, token in enumerate(ids)]
        x = [linear(model.decoder_in, vector) for vector in g]
        for layer in model.decoder:
            padded = [torch.zeros(6)] * 2 + x
            after = []
            for t in range(len(x)):
                y = gated(layer.convolution, torch.stack(padded[t : t + 3]))
                d = (linear(layer.to_query, y) + g[t]) * math.sqrt(0.5)
                weights = torch.softmax(keys[row, :source] @ d, 0)
                context = weights @ values[row, :source] * source * math.sqrt(1 / source)
                y = (y + linear(layer.from_context, context)) * math.sqrt(0.5)
                after.append((x[t] + y) * math.sqrt(0.5))
            x = after
        for t, vector in enumerate(x):
            torch.testing.assert_close(hidden[row, t], linear(model.decoder_out, vector))


def test_kernels_that_see_nothing_before_are_refused():
    with pytest.raises(ConfigError, match="decoder_kernel: should be greater than or equal to 2"):
        build_model({**SECTION, "decoder_kernel": 1}, 9, 8)
