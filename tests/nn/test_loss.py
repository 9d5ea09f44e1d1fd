import pytest
import torch
import torch.nn.functional as F

from regard.nn import loss as loss_module
from regard.nn.loss import token_loss


def plain(hidden, weight, bias, labels, smoothing):
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, label_smoothing=smoothing, reduction="sum")


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_chunked_loss_and_gradients_equal_the_plain_form(monkeypatch, smoothing, with_bias, dtype, tolerance):
    monkeypatch.setattr(loss_module, "CHUNK", 7 * 11)  # several chunks of 7 rows, the last one short
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


def test_large_logits_do_not_overflow():
    hidden = torch.full((2, 4), 300.0, requires_grad=True)
    value = token_loss(hidden, torch.eye(6, 4) * 10, None, torch.tensor([0, 5]))
    value.backward()
    assert value.isfinite()
    assert hidden.grad.isfinite().all()


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
