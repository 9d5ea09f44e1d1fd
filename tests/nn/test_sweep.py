"""A sweep is the layers themselves, and is refused where they have other parts."""

import pytest
import torch

from regard.models.parallel import PARTS, ParallelLayer
from regard.models.transformer import ENCODER, EncoderLayer, Transformer
from regard.nn import product, sweep
from regard.nn.attention import padding_mask
from regard.nn.sweep import KEPT, SMALL, Stack

WIDTH, HEADS = 16, 4


def options(**changes) -> Transformer.Config:
    return Transformer.Config(**({"width": WIDTH, "heads": HEADS, "feed_forward": 24} | changes))


def shaken(layers):
    """Layers with weights that matter, biases and norms too."""
    torch.manual_seed(1)
    layers = [layer.eval() for layer in layers]
    for layer in layers:
        for weight in layer.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    return layers


@pytest.fixture(params=["script", "python"])
def way(request, monkeypatch):
    """The operations as TorchScript, and as the Python they are written in."""
    if request.param == "python":
        monkeypatch.setattr(sweep, "scripted", lambda function: function)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("lengths", [[7, 2, 1], [7, 7, 7], [8, 8, 7], [420, 420, 3], [9]])
@pytest.mark.usefixtures("way")
@torch.no_grad()
def test_an_encoder(norm, activation, lengths):
    layers = shaken(EncoderLayer(options(norm=norm, activation=activation)) for _ in range(2))
    mask = padding_mask(torch.tensor(lengths), max(lengths))
    assert (mask.size(1) == 420) == (len(mask) * HEADS * mask.size(1) ** 2 > SMALL)  # both ways are taken
    x = torch.randn(*mask.shape, WIDTH)
    wanted = x
    for layer in layers:
        wanted = layer(wanted, mask)
    stack = Stack.of(layers, ENCODER)
    assert stack is not None
    torch.testing.assert_close(stack.forward(x, mask)[mask], wanted[mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
@torch.no_grad()
def test_a_single_short_row_is_traced_once_for_all_lengths(wide, monkeypatch):
    monkeypatch.setattr(sweep, "LARGE", 20 * 3 * WIDTH * WIDTH)  # with weights that are packed: from 20 positions on
    monkeypatch.setattr(product, "has_wider_units", lambda: wide)
    layers = shaken(EncoderLayer(options()) for _ in range(2))
    stack = Stack.of(layers, ENCODER)
    assert stack is not None
    for length in (5, 12, 1, 2, 19, 30):
        x = torch.randn(1, length, WIDTH)
        wanted = x
        for layer in layers:
            wanted = layer(wanted, torch.ones(1, length, dtype=torch.bool))
        torch.testing.assert_close(stack.forward(x, None), wanted, atol=1e-5, rtol=1e-5)
    assert stack.short == (20 if wide else 46)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="no oneDNN")
@torch.no_grad()
def test_packed_weights_make_the_same_as_plain_ones(monkeypatch):
    layers = [EncoderLayer(options(width=128, feed_forward=256)).eval() for _ in range(2)]
    mask = padding_mask(torch.tensor([40, 20]), 40)
    x, found = torch.randn(2, 40, 128), []
    for wider in (False, True):
        monkeypatch.setattr(product, "has_wider_units", lambda wider=wider: wider)
        stack = Stack.of(layers, ENCODER)
        assert stack is not None
        assert stack.weights[0][0][1].is_mkldnn == wider
        found.append(stack.forward(x, mask)[mask])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("itself", "positional"), [(False, True), (True, False)])
@pytest.mark.parametrize("lengths", [[7, 2, 1, 5], [1, 1, 1, 1], [370, 50, 1, 3], [9], [1], [70]])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.usefixtures("way")
@torch.no_grad()
def test_a_decoder_of_all_places(norm, itself, positional, lengths, threads):
    """Two candidates for each sentence; one place alone has no others to look at."""
    layers = shaken(ParallelLayer(options(norm=norm), itself, positional) for _ in range(2))
    mask, seen = padding_mask(torch.tensor(lengths), max(lengths)), torch.tensor([[True] * 3, [True, False, False]])
    seen = seen[: len(lengths)]
    x, table, memory = torch.randn(*mask.shape, WIDTH), torch.randn(400, WIDTH), torch.randn(len(seen), 3, WIDTH)
    places = table[: mask.size(1)]
    pairs = [layer.cross_attention.project(memory) for layer in layers]
    wanted = x
    for layer, (keys, values) in zip(layers, pairs, strict=True):
        wanted = layer(wanted, mask, places, keys, values, seen)
    stack = Stack.of(layers, PARTS, lambda start, number: table[start : start + number])
    assert stack is not None
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(2):  # the second time some of it is known
            found = stack.forward(x, mask, (pairs, seen))
            torch.testing.assert_close(found[mask], wanted[mask], atol=1e-5, rtol=1e-5)
    finally:
        torch.set_num_threads(before)
    (length, *others) = lengths
    assert set(stack.kept) == ({length} if not others and length <= KEPT and (positional or length > 1) else set())


@pytest.mark.parametrize(
    "changes", [{"positions": "rotary"}, {"neighbourhood": 4}, {"norm": "none"}, {"residual": False}]
)
def test_other_parts_are_refused(changes):
    assert Stack.of([EncoderLayer(options(**changes))], ENCODER) is None
    assert Stack.of([EncoderLayer(options()), EncoderLayer(options(**changes))], ENCODER) is None


def test_no_layers_are_no_stack():
    assert Stack.of([], ENCODER) is None


@torch.no_grad()
def test_a_part_may_be_left_out():
    layers = shaken([EncoderLayer(options(self_attention=False))])
    stack, x, mask = Stack.of(layers, ENCODER), torch.randn(2, 3, WIDTH), torch.ones(2, 3, dtype=torch.bool)
    assert stack is not None
    torch.testing.assert_close(stack.forward(x, mask), layers[0](x, mask), atol=1e-5, rtol=1e-5)


def test_a_tap_is_seen():
    layers = [EncoderLayer(options())]
    stack = Stack.of(layers, ENCODER)
    assert stack is not None
    assert not stack.watched
    layers[0].self_attention.tap = print
    assert stack.watched
