"""Self-attention: what each position sees, and that a band computes what the square does."""

import pytest
import torch

from regard.nn import self_attention
from regard.nn.attention import masked_softmax, padding_mask
from regard.nn.relative import make_relation
from regard.nn.self_attention import Cache, SelfAttention, band

WIDTH, HEADS = 8, 2
KINDS = ["none", "shaw", "transformer_xl", "rotary", "alibi"]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make(kind="none", **options) -> SelfAttention:
    torch.manual_seed(0)
    attention = SelfAttention(WIDTH, HEADS, relation=make_relation(kind, WIDTH, HEADS, 3), **options)
    for parameter in attention.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return attention


@pytest.mark.parametrize(("queries", "keys", "first"), [(4, 4, 0), (2, 5, 3), (1, 3, 2), (3, 9, 3)])
def test_a_band_is_what_is_near(queries, keys, first):
    for before in (0, 1, 2, keys):
        for after in (0, 1, 3):
            wanted = [[-before <= j - i - first <= after for j in range(keys)] for i in range(queries)]
            assert band(queries, keys, first, before, after).tolist() == wanted


def by_hand(attention: SelfAttention, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """A full matrix of scores, the restricted part of it by a loop; without relative positions."""
    q, (k, v) = attention.split(attention.query(x)), attention.project(x)
    n = x.size(1)
    allowed = torch.ones(len(x), 1, n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            far = attention.radius and abs(i - j) > attention.radius
            allowed[:, :, i, j] = not (far or (attention.causal and j > i))
    if mask is not None:
        allowed = allowed & mask[:, None, None]
    context = masked_softmax(q @ k.mT / 2, allowed) @ v
    return attention.out(context.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("radius", [0, 1, 2, 5])
@torch.no_grad()
def test_it_looks_where_it_may(causal, radius):
    attention, x = make(causal=causal, radius=radius), randn(3, 9, WIDTH)
    mask = None if causal else padding_mask(torch.tensor([9, 1, 6]), 9)
    real = torch.ones(3, 9, dtype=torch.bool) if mask is None else mask
    assert attention.scores(randn(1, HEADS, 1, 4), randn(1, HEADS, 2, 4)).shape == (1, HEADS, 1, 2)
    torch.testing.assert_close(attention(x, mask)[0][real], by_hand(attention, x, mask)[real], atol=1e-5, rtol=0)


def test_radius_one_sees_three_positions():
    attention, x = make(radius=1), randn(1, 7, WIDTH).requires_grad_()
    (gradient,) = torch.autograd.grad(attention(x)[0][0, 3].sum(), x)
    assert gradient[0].any(-1).tolist() == [False, False, True, True, True, False, False]
    attention = make(radius=2, causal=True)
    (gradient,) = torch.autograd.grad(attention(x)[0][0, 3].sum(), x)
    assert gradient[0].any(-1).tolist() == [False, True, True, True, False, False, False]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("radius", "length"), [(1, 9), (2, 12), (3, 7), (3, 31), (16, 100)])
def test_blocks_compute_what_a_masked_square_does(kind, causal, masked, grad, radius, length, monkeypatch):
    monkeypatch.setattr(self_attention, "BLOCK", 4)
    attention = make(kind, causal=causal, radius=radius)
    assert length > attention.block
    inputs = randn(3, length, WIDTH)
    mask = padding_mask(torch.tensor([length, 1, length // 2]), length) if masked else None
    real = torch.ones(3, length, dtype=torch.bool) if mask is None else mask
    results = []
    for tap in (None, lambda weights: None):  # what is recorded is computed as a square
        attention.tap = tap
        x = inputs.clone().requires_grad_(grad)
        with torch.set_grad_enabled(grad):
            found = attention(x, mask)[0][real]
        results.append([found])
        if grad:
            parameters = [x, *attention.parameters()]
            results[-1] += torch.autograd.grad((found * randn(*found.shape, seed=3)).sum(), parameters)
    for some, same in zip(*results, strict=True):
        assert (some - same).abs().max() <= 1e-5 * max(1, same.abs().max())


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_blocks_continue_a_cache(kind, monkeypatch):
    """A long forced prefix after a cache, and single steps after that."""
    monkeypatch.setattr(self_attention, "BLOCK", 4)
    attention, x = make(kind, causal=True, radius=3), randn(2, 40, WIDTH)
    whole = attention(x)[0]
    for parts in ([7, 33], [1, 20, 19], [40], [2] * 20, [30, *[1] * 10]):
        cache, outputs = empty_cache(), []
        for part in x.split(parts, 1):
            y, cache = attention(part, None, cache)
            outputs.append(y)
        torch.testing.assert_close(torch.cat(outputs, 1), whole, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_restricted_cache_stays_small():
    attention, cache = make(causal=True, radius=4), empty_cache()
    sizes = []
    for step in range(300):
        _, cache = attention(randn(2, 1, WIDTH, seed=step), None, cache)
        sizes.append(cache.pairs.size(3))
        assert cache.forgotten + cache.length == step + 1
    assert max(sizes) <= 64


# The cache


def empty_cache(rows: int = 2) -> Cache:
    return Cache.empty(rows, 2, 4, torch.zeros(0))


@pytest.mark.parametrize("parts", [[1] * 40, [20, 1, 1, 18], [16, 1, 23], [40]])
def test_cache_keeps_what_is_appended(parts):
    keys, values = randn(2, 2, 40, 4), randn(2, 2, 40, 4, seed=1)
    cache, done, sizes = empty_cache(), 0, set()
    for part in parts:
        cache = cache.append(torch.stack([keys, values], 1)[:, :, :, done : done + part])
        done += part
        assert cache.length == done
        sizes.add(cache.pairs.size(3))
        for filled, wanted in zip(cache.filled(), (keys, values), strict=True):
            assert torch.equal(filled, wanted[:, :, :done])
    assert len(sizes) <= 4  # it doubles, so that growing costs little


def test_selected_rows_of_a_cache_are_a_copy():
    keys, values = randn(3, 2, 5, 4), randn(3, 2, 5, 4, seed=1)
    cache = empty_cache(3).append(torch.stack([keys, values], 1))
    rows = torch.tensor([2, 0, 0, 1])
    some, same = cache.select(rows), cache.select(rows)
    assert torch.equal(some.filled()[0], keys[rows])
    assert torch.equal(some.filled()[1], values[rows])
    more = some.append(torch.ones(4, 2, 2, 1, 4))
    assert more.pairs is some.pairs, "there is room for the next step: nothing is copied again"
    assert torch.equal(more.filled()[0][:, :, :5], keys[rows])
    assert (more.filled()[1][:, :, 5] == 1).all()
    same.append(torch.zeros(4, 2, 2, 1, 4))
    assert (more.filled()[0][:, :, 5] == 1).all()
    assert torch.equal(cache.filled()[0], keys)
