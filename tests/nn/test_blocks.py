import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn.blocks import Dropout, FeedForward, Residual


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    torch.manual_seed(0)
    x = torch.ones(1000, 1003)  # a number of elements that no machine word divides
    out = Dropout(rate).train()(x)
    assert (out == 0).float().mean().item() == pytest.approx(rate, abs=0.003)
    assert out.mean().item() == pytest.approx(1, abs=0.01)
    assert out[out != 0].unique().numel() == 1


def test_dropout_passes_the_gradient_where_it_passed_the_value():
    torch.manual_seed(0)
    x = randn(50, 7).requires_grad_()
    out = Dropout(0.4).train()(x)
    out.backward(torch.full_like(out, 3.0))
    torch.testing.assert_close(x.grad, 3 * out.detach() / x.detach())


def test_dropout_draws_anew_each_time_and_for_each_element():
    torch.manual_seed(0)
    dropout, x = Dropout(0.5).train(), torch.ones(64, 64)
    first, second = dropout(x), dropout(x)
    assert 0.4 < (first == second).float().mean() < 0.6
    assert (first != 0).float().mean(0).std() < 0.1  # no column and no row is favoured
    assert (first != 0).float().mean(1).std() < 0.1
    torch.manual_seed(0)
    assert torch.equal(dropout(x), first)


@given(st.floats(0, 1, exclude_max=True))
def test_every_rate_below_one_works(rate):
    out = Dropout(rate).train()(torch.ones(100))
    assert out.isfinite().all()


def test_dropout_does_nothing_in_evaluation_or_at_zero():
    x = randn(5, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_dropout_of_a_part_of_a_tensor():
    torch.manual_seed(0)
    out = Dropout(0.5).train()(torch.ones(40, 60).t()[::2])  # not contiguous
    assert out.shape == (30, 40)
    assert set(out.unique().tolist()) == {0.0, 2.0}


@torch.no_grad()
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_feed_forward_is_the_written_formula(activation):
    torch.manual_seed(0)
    block = FeedForward(6, 10, activation)
    for parameter in block.parameters():
        parameter.normal_()
    x = randn(2, 3, 6)
    inner = x @ block.inner.weight.t() + block.inner.bias
    if activation == "relu":
        inner = inner.clamp_min(0)
    elif activation == "gelu":
        inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
    else:
        gate, value = inner[..., :10], inner[..., 10:]
        inner = gate / (1 + torch.exp(-gate)) * value
    wanted = inner @ block.outer.weight.t() + block.outer.bias
    torch.testing.assert_close(block(x), wanted, atol=1e-5, rtol=1e-5)


def test_feed_forward_drops_inside():
    torch.manual_seed(0)
    block = FeedForward(6, 10, "relu", 0.5)
    x = randn(2, 3, 6)
    assert not torch.equal(block.train()(x), block(x))
    assert torch.equal(block.eval()(x), block(x))


@torch.no_grad()
def test_residual_norms_before_or_after():
    x = randn(2, 3, 6)
    for norm in ("pre", "post"):
        residual = Residual(6, norm, 0.0)
        residual.norm.weight.normal_()
        residual.norm.bias.normal_()
        wanted = x + torch.sin(residual.norm(x)) if norm == "pre" else residual.norm(x + torch.sin(x))
        torch.testing.assert_close(residual(x, torch.sin), wanted)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_residual_drops_only_what_the_sublayer_adds(norm):
    torch.manual_seed(0)
    residual = Residual(6, norm, 0.5).train()
    x = randn(2, 3, 6)
    unchanged = residual(x, torch.zeros_like)
    torch.testing.assert_close(unchanged, x if norm == "pre" else residual.norm(x))
    assert not torch.equal(residual(x, torch.ones_like), residual(x, torch.ones_like))
