import pytest
import torch
import torch.nn.functional as F

from regard.nn import loss as loss_module
from regard.nn import product
from regard.nn.loss import largest_logit, token_loss, token_prices


def plain(hidden, weight, bias, labels, smoothing):
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, label_smoothing=smoothing, reduction="sum")


@pytest.mark.parametrize("safe", [loss_module.SAFE, 0.0])  # with the maximum taken off the logits, and without
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize("wider", [False, torch.backends.mkldnn.is_available()], ids=["MKL", "oneDNN"])
def test_chunked_loss_and_gradients_equal_the_plain_form(
    monkeypatch, safe, smoothing, with_bias, dtype, tolerance, wider
):
    monkeypatch.setattr(loss_module, "SAFE", safe)
    monkeypatch.setattr(loss_module, "CHUNK", 7 * 11)  # several chunks of 7 rows, the last one short
    monkeypatch.setattr(loss_module, "ROWS", 7)
    monkeypatch.setattr(product, "ROWS", 7)
    monkeypatch.setattr(product, "FEW", 1)
    monkeypatch.setattr(product, "THIN", 1)
    monkeypatch.setattr(product, "LARGE", 1)
    monkeypatch.setattr(product, "has_wider_units", lambda: wider)
    generator = torch.Generator().manual_seed(1)
    results = []
    hidden = torch.randn(23, 8, generator=generator, dtype=dtype)
    weight = torch.randn(11, 8, generator=generator, dtype=dtype)
    bias = torch.randn(11, generator=generator, dtype=dtype) if with_bias else None
    labels = torch.randint(0, 11, (23,), generator=generator)
    for function in (token_loss, plain):
        inputs = [tensor.clone().requires_grad_() for tensor in (hidden, weight, bias) if tensor is not None]
        value = function(inputs[0], inputs[1], inputs[2] if with_bias else None, labels, smoothing)
        (3 * value).backward()  # the gradient that comes from above is honoured
        results.append([value.detach(), *(tensor.grad for tensor in inputs)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize("size", [1.0, 1000.0], ids=["usual", "large"])
def test_chunked_prices_and_gradients_equal_the_plain_form(monkeypatch, with_bias, dtype, tolerance, size):
    monkeypatch.setattr(loss_module, "CHUNK", 7 * 11)  # several chunks of 7 rows, the last one short
    monkeypatch.setattr(loss_module, "ROWS", 7)
    generator = torch.Generator().manual_seed(1)
    hidden = size * torch.randn(23, 8, generator=generator, dtype=dtype)
    weight = torch.randn(11, 8, generator=generator, dtype=dtype)
    bias = torch.randn(11, generator=generator, dtype=dtype) if with_bias else None
    asked = torch.randint(3, 11, (23, 5), generator=generator)  # a token may be asked for twice
    above = torch.randn(23, 5, generator=generator, dtype=dtype)
    never, results = (0, 2), []

    def in_full(hidden, weight, bias, asked, never):
        shares = F.linear(hidden, weight, bias).index_fill(1, torch.tensor(never), float("-inf")).log_softmax(1)
        return shares.gather(1, asked), shares.amax(1)

    for function in (token_prices, in_full):
        inputs = [tensor.clone().requires_grad_() for tensor in (hidden, weight, bias) if tensor is not None]
        prices, best = function(inputs[0], inputs[1], inputs[2] if with_bias else None, asked, never)
        (prices * above).sum().backward()
        results.append([prices.detach(), best.detach(), *(tensor.grad for tensor in inputs)])
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("size", [1.0, 3.4, 3.6, 300.0])  # logits of 10 to 3000, below and above what is safe
@pytest.mark.parametrize("sign", [1, -1])
def test_large_logits_do_not_overflow(size, sign):
    hidden = torch.full((2, 4), sign * size, requires_grad=True)
    weight, labels = torch.eye(6, 4) * 10, torch.tensor([0, 5])
    value = token_loss(hidden, weight, None, labels)
    value.backward()
    torch.testing.assert_close(value, plain(hidden, weight, None, labels, 0.0))
    assert hidden.grad.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("with_bias", [True, False])
def test_no_logit_is_larger_than_the_bound(with_bias):
    torch.manual_seed(0)
    hidden, weight = torch.randn(20, 3), torch.randn(9, 3)
    bias = torch.randn(9) if with_bias else None
    most = F.linear(hidden, weight, bias).abs().max().item()
    assert most <= largest_logit(hidden, weight, bias) < 3 * most
    assert not largest_logit(torch.tensor([[float("nan")] * 3]), weight, bias) < loss_module.SAFE
    assert largest_logit(hidden[:0], weight, bias) == 0


def test_without_gradient_nothing_is_kept():
    with torch.no_grad():
        value = token_loss(torch.ones(3, 4), torch.ones(5, 4), None, torch.tensor([0, 1, 2]))
    assert not value.requires_grad
    torch.testing.assert_close(value, 3 * torch.tensor(5.0).log())


def test_half_precision_layers_get_full_precision_losses():
    hidden, weight = torch.randn(5, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 4])
    with torch.autocast("cpu", torch.bfloat16):
        loss = token_loss(hidden, weight, None, labels, 0.1)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, plain(hidden, weight, None, labels, 0.1))
    loss.backward()
    assert hidden.grad.isfinite().all()


def test_without_a_gradient_none_is_made(monkeypatch):
    made = []
    monkeypatch.setattr(torch, "empty_like", lambda *values: made.append(values))
    weight = torch.randn(6, 4, requires_grad=True)
    with torch.no_grad():
        token_loss(torch.randn(5, 4), weight, None, torch.tensor([0, 1, 2, 3, 4]))
    assert not made
