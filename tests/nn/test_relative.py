"""Relative positions against the papers' formulas, written as loops over queries and keys."""

import math

import pytest
import torch

from regard.nn.position import sinusoidal
from regard.nn.relative import ALiBi, Rotary, Shaw, TransformerXL, distances, make_relation, skew, unskew
from regard.nn.self_attention import SelfAttention

WIDTH, HEADS = 12, 3
SHAPES = [(4, 4, 0), (1, 5, 4), (3, 5, 2), (2, 8, 3), (1, 1, 0), (5, 5, 0)]  # queries, keys, where query 0 stands


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def loud(relation):
    """Without zeros."""
    for number, parameter in enumerate(relation.parameters()):
        parameter.data.copy_(randn(*parameter.shape, seed=number))
    return relation


@pytest.mark.parametrize(("queries", "keys", "first"), SHAPES)
def test_skew_finds_the_distance_of_each_pair(queries, keys, first):
    far = distances(queries, keys, first)
    assert len(far) == queries + keys - 1
    matrix = skew(far.expand(2, queries, -1).float(), keys)
    wanted = [[float(j - i - first) for j in range(keys)] for i in range(queries)]
    assert matrix.tolist() == [wanted, wanted]


@pytest.mark.parametrize(("queries", "keys", "first"), SHAPES)
def test_unskew_is_the_reverse(queries, keys, first):
    x = randn(2, queries, keys)
    spread = unskew(x)
    assert spread.shape == (2, queries, queries + keys - 1)
    assert torch.equal(skew(spread, keys), x)
    torch.testing.assert_close(spread.sum(-1), x.sum(-1))  # nothing else is there
    for row in range(queries):  # row i begins at the distance of key 0
        assert torch.equal(spread[:, row, queries - 1 - row : queries - 1 - row + keys], x[:, row])


@pytest.mark.parametrize(("queries", "keys", "first"), SHAPES)
@torch.no_grad()
def test_shaw_is_that_of_the_paper(queries, keys, first):
    shaw = loud(Shaw(WIDTH, HEADS, 2))
    q, k = randn(2, HEADS, queries, 4), randn(2, HEADS, keys, 4, seed=1)
    weights = randn(2, HEADS, queries, keys, seed=2).softmax(-1)
    bias, context = shaw.bias(q, k, first), shaw.context(weights, first)
    for i in range(queries):
        near = [min(max(j - i - first, -2), 2) + 2 for j in range(keys)]
        for j in range(keys):
            torch.testing.assert_close(bias[:, :, i, j], q[:, :, i] @ shaw.keys[near[j]])
        wanted = sum(weights[:, :, i, j, None] * shaw.values[near[j]] for j in range(keys))
        torch.testing.assert_close(context[:, :, i], wanted)


@pytest.mark.parametrize(("queries", "keys", "first"), SHAPES)
@torch.no_grad()
def test_transformer_xl_is_that_of_the_paper(queries, keys, first):
    relation = loud(TransformerXL(WIDTH, HEADS))
    q, k = randn(2, HEADS, queries, 4), randn(2, HEADS, keys, 4, seed=1)
    bias = relation.bias(q, k, first)
    for i in range(queries):
        for j in range(keys):
            r = relation.relative(sinusoidal(1, WIDTH, i + first - j)[0]).view(HEADS, 4)
            content = (relation.content[:, 0] * k[:, :, j]).sum(-1)
            place = ((q[:, :, i] + relation.place_bias[:, 0]) * r).sum(-1)
            torch.testing.assert_close(bias[:, :, i, j], content + place, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_transformer_xl_has_no_longest_length():
    relation = loud(TransformerXL(WIDTH, HEADS))
    before = relation.bias(randn(1, HEADS, 3, 4), randn(1, HEADS, 3, 4), 0)
    relation.bias(randn(1, HEADS, 1, 4), randn(1, HEADS, 3000, 4), 2999)
    assert torch.equal(relation.bias(randn(1, HEADS, 3, 4), randn(1, HEADS, 3, 4), 0), before)


@pytest.mark.parametrize(("queries", "keys", "first"), SHAPES)
def test_alibi_is_that_of_the_paper(queries, keys, first):
    bias = ALiBi(32, 8).bias(randn(1, 8, queries, 4), randn(1, 8, keys, 4), first)
    for head in range(8):
        for i in range(queries):
            for j in range(keys):
                wanted = -(0.5 ** (head + 1)) * abs(i + first - j)
                assert bias[head, i, j].item() / math.sqrt(4) == pytest.approx(wanted)


def test_rotary_turns_by_the_position():
    rotary = Rotary(8, 2)
    q, k = randn(1, 2, 5, 4), randn(1, 2, 5, 4, seed=1)
    for start in (0, 7, 1000):
        turned = rotary.place(q, k, start)
        for x, y in zip((q, k), turned, strict=True):
            for t in range(5):
                for pair, theta in enumerate((1.0, 0.01)):
                    complex_x = torch.complex(x[0, :, t, 2 * pair].double(), x[0, :, t, 2 * pair + 1].double())
                    wanted = complex_x * complex(math.cos((start + t) * theta), math.sin((start + t) * theta))
                    torch.testing.assert_close(y[0, :, t, 2 * pair].double(), wanted.real, atol=1e-5, rtol=0)
                    torch.testing.assert_close(y[0, :, t, 2 * pair + 1].double(), wanted.imag, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["shaw", "transformer_xl", "rotary", "alibi"])
@torch.no_grad()
def test_only_the_distance_counts(kind):
    """The same words further on give the same result."""
    torch.manual_seed(0)
    attention = SelfAttention(WIDTH, HEADS, relation=loud(make_relation(kind, WIDTH, HEADS, 3)))
    x = randn(1, 6, WIDTH)
    moved = torch.cat([randn(1, 4, WIDTH, seed=5), x], 1)
    mask = torch.arange(10)[None] >= 4
    torch.testing.assert_close(attention(moved, mask)[0][:, 4:], attention(x)[0], atol=1e-5, rtol=1e-5)
    swapped = x[:, [1, 0, 2, 3, 4, 5]]
    assert (attention(swapped)[0][:, [1, 0, 2, 3, 4, 5]] - attention(x)[0]).abs().max() > 1e-3  # and it does count


@pytest.mark.parametrize("kind", ["rotary", "transformer_xl"])
def test_tables_made_in_inference_serve_training(kind):
    attention = SelfAttention(WIDTH, HEADS, relation=make_relation(kind, WIDTH, HEADS, 3))
    with torch.inference_mode():
        attention(randn(1, 6, WIDTH))
    attention(randn(1, 6, WIDTH))[0].sum().backward()
    assert attention.query.weight.grad is not None


def test_absolute_kinds_have_no_relation():
    assert make_relation("sinusoidal", WIDTH, HEADS, 3) is None
    assert make_relation("none", WIDTH, HEADS, 3) is None
