"""Steps are the layers themselves, one position further, and are refused where the layers have other parts."""

import pytest
import torch

from regard.models.transformer import DecoderLayer, Transformer
from regard.nn import product as products
from regard.nn import step as short
from regard.nn.product import Product
from regard.nn.step import GRAIN, Layers, Past, Sight, Stepper

WIDTH, HEADS = 16, 4
SIZE = WIDTH // HEADS


def make_layer(**options) -> DecoderLayer:
    return DecoderLayer(Transformer.Config(**({"width": WIDTH, "heads": HEADS, "feed_forward": 24} | options))).eval()


def given(x):
    """Vectors as those of tokens that stand nowhere."""
    return torch.arange(len(x)), (x, torch.zeros(1), 1.0)


@pytest.fixture(params=["script", "python"])
def way(request, monkeypatch):
    """The operations as TorchScript, and as the Python they are written in."""
    if request.param == "python":
        monkeypatch.setattr(short, "scripted", lambda function, ways: function)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@pytest.mark.usefixtures("way")
@torch.no_grad()
def test_step_by_step_is_the_layers(norm, activation):
    torch.manual_seed(1)
    layers = [make_layer(norm=norm, activation=activation) for _ in range(2)]
    for layer in layers:
        for weight in layer.parameters():
            torch.nn.init.normal_(weight, std=0.5)
    memory, x = torch.randn(2, 5, WIDTH), torch.randn(6, 20, WIDTH)  # three beams of two sentences
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    rows = torch.arange(2).repeat_interleave(3)
    projected, wanted = [], x
    for layer in layers:
        keys, values = layer.cross_attention.project(memory)
        wanted, _ = layer(wanted, keys[rows], values[rows], mask[rows], None)
        projected.append((keys, values))
    prepared = Layers.of(layers)
    assert prepared is not None
    past = Past.empty(2, 2, HEADS, SIZE, x).select(rows, None)
    stepper = Stepper(prepared, past, Sight.of(projected, mask))
    for position in range(20):
        found, stepper = stepper.forward(*given(x[:, position]))
        torch.testing.assert_close(found, wanted[:, position], atol=1e-5, rtol=1e-5)
    assert (stepper.position, stepper.past.length) == (20, 60)


@pytest.mark.parametrize(
    "options",
    [{"positions": "rotary"}, {"positions": "shaw"}, {"neighbourhood": 4}, {"norm": "none"}, {"residual": False},
     {"self_attention": False}, {"feed_forward": 0}],
)  # fmt: skip
def test_other_parts_have_no_steps(options):
    assert Layers.of([make_layer(**options)]) is None
    assert Layers.of([make_layer(), make_layer(**options)]) is None
    assert len(Layers.of([make_layer(), make_layer()]).products) == 2


def test_layers_that_differ_have_no_steps():
    assert Layers.of([make_layer(), make_layer(norm="post")]) is None


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("rows", [1, 2, products.MANY - 1, products.MANY])
def test_products_of_few_and_of_many_rows(rows, by_rows, monkeypatch):
    torch.manual_seed(1)
    monkeypatch.setattr(products, "has_wide_mkl", lambda: by_rows)
    monkeypatch.setattr(short, "WIDE", 70)  # two rows of these weights
    weight, bias, x = torch.randn(7, 5), torch.randn(7), torch.randn(rows, 5)
    wanted = x @ weight.t() + bias
    for product in (Product.of(weight, bias), Product.of(weight, bias, anywhere=True)):
        for own in (short.way_of(product, rows), short.few_rows, short.many_rows):
            stored = short.form_of(product, own, rows)
            torch.testing.assert_close(own(*stored, x), wanted)
            torch.testing.assert_close(short.times(*stored, x), wanted)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="no oneDNN")
@torch.no_grad()
def test_steps_with_packed_weights_are_those_with_plain_ones(monkeypatch):
    torch.manual_seed(1)
    layers = [make_layer(width=128, feed_forward=256) for _ in range(2)]
    x, memory, mask = torch.randn(64, 128), torch.randn(64, 16, 128), torch.ones(64, 16, dtype=torch.bool)
    projected = [layer.cross_attention.project(memory) for layer in layers]
    found = []
    for wider in (False, True):
        monkeypatch.setattr(products, "has_wider_units", lambda wider=wider: wider)
        steps = Layers.of(layers)
        assert steps.ready(64)[1][0][0].is_mkldnn == wider
        stepper = Stepper(steps, Past.empty(2, 64, HEADS, 128 // HEADS, memory), Sight.of(projected, mask))
        first, stepper = stepper.forward(*given(x))
        found.append(torch.stack([first, stepper.forward(*given(first))[0]]))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def opened(past: Past) -> Past:
    """One position more, as the layers leave it: each beam sees its place, whose keys and values name it."""
    past, beams = past.open(), past.seen.size(1)
    for beam, place in enumerate(range(past.length - beams, past.length)):
        past.seen[:, beam, place] = 0
        past.pairs[..., place, :] = past.seen.new_tensor(opened.number + beam)
    opened.number += beams
    return past


def names(past: Past) -> list[list[set[int]]]:
    """What each beam of each sentence sees."""
    found = past.pairs[0, 0, :, 0, :, 0]
    return [
        [{int(name) for name in row[beam == 0]} for beam in beams] for row, beams in zip(found, past.seen, strict=True)
    ]


def test_beams_see_what_they_come_from_and_places_without_heirs_are_given_up():
    opened.number = 1
    past = Past.empty(1, 2, HEADS, SIZE, torch.zeros(1)).select(torch.tensor([0, 0, 1, 1]), None)
    wanted: list[list[set[int]]] = [[set(), set()], [set(), set()]]
    widths = set()
    for position in range(100):
        first = opened.number
        past = opened(past)
        wanted = [[seen | {first + beam} for beam, seen in enumerate(beams)] for beams in wanted]
        assert names(past) == wanted
        rows = torch.tensor([0, 0, 3, 2]) if position % 2 else torch.tensor([1, 0, 3, 3])
        past = past.select(rows, None)
        wanted = [[wanted[row // 2][row % 2] for row in pair] for pair in rows.view(2, 2).tolist()]
        assert names(past) == wanted
        widths.add(past.seen.size(2))
    assert max(widths) < 2 * 100, "of 200 places half are nobody's"
    assert all(width % GRAIN == 0 for width in widths)
    assert names(past.select(torch.tensor([2]), torch.tensor([1]))) == [[wanted[1][0]]]


def test_a_branch_with_sentences_of_its_own_does_not_disturb_another():
    opened.number = 1
    past = opened(opened(Past.empty(1, 2, HEADS, SIZE, torch.zeros(1))))
    one, other = (past.select(torch.tensor([1]), torch.tensor([1])) for _ in range(2))
    one, other = opened(one), opened(other)
    assert names(one) == [[{1, 2, 3}]]
    assert names(other) == [[{1, 2, 4}]]
