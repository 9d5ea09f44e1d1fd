"""Products by either library are the same, and so are their gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.nn import product
from regard.nn.product import GRAIN, Linear, has_wider_units, is_wide, linear, multiply, outer

has_onednn = torch.backends.mkldnn.is_available()


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.skipif(not has_onednn, reason="no oneDNN"))])
def wide(request, monkeypatch):
    monkeypatch.setattr(product, "has_wider_units", lambda: request.param)
    monkeypatch.setattr(product, "LARGE", 1)
    return request.param


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (3, 7), (1, 1), (2, 3, 5), (GRAIN,), (3 * GRAIN + 5,)])
@pytest.mark.parametrize(("inputs", "outputs"), [(6, 4), (4, 9), (5, 5)])
def test_a_linear_map_and_its_gradients_are_those_of_torch(wide, shape, inputs, outputs, with_bias):
    given = [numbers(*shape, inputs), numbers(outputs, inputs), *([numbers(outputs)] if with_bias else [])]
    results = []
    for function, kind in ((linear, torch.float32), (F.linear, torch.float64)):
        x, weight, *bias = leaves = [each.to(kind).requires_grad_() for each in given]
        y = function(x, weight, bias[0] if bias else None)
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for ours, exact in zip(*results, strict=True):
        assert ours.shape == exact.shape
        torch.testing.assert_close(ours.double(), exact, atol=1e-4, rtol=1e-5)


def test_what_needs_no_gradient_gets_none(wide):
    x, weight = numbers(8, 6), numbers(4, 6).requires_grad_()
    linear(x, weight, None).sum().backward()
    assert x.grad is None
    assert weight.grad is not None
    assert weight.grad.is_contiguous()


@pytest.mark.parametrize(("left", "right"), [(6, 4), (4, 6)])
@pytest.mark.parametrize("rows", [8, GRAIN, GRAIN + 8])
def test_products_take_matrices_that_are_stored_turned(wide, left, right, rows):
    x, weight, gradient = numbers(right, rows).t(), numbers(right, left).t(), numbers(left, rows).t()
    torch.testing.assert_close(multiply(x, weight), x @ weight.t(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(outer(gradient, x), gradient.t() @ x, atol=1e-4, rtol=1e-5)


def test_the_layer_has_the_weights_of_torchs_own(wide):
    ours, theirs = Linear(6, 4), nn.Linear(6, 4)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(numbers(3, 6)), theirs(numbers(3, 6)))


def test_small_products_other_kinds_of_number_and_autocast_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(product, "has_wider_units", lambda: True)
    assert not is_wide(numbers(2, 2), product.LARGE - 1)
    assert not is_wide(numbers(2, 2).double(), product.LARGE)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(numbers(64, 128), numbers(128, 128), None).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("facts", "capability", "wider"),
    [("vendor_id : AuthenticAMD", "AVX512", has_onednn), ("vendor_id : AuthenticAMD", "AVX2", False),
     ("vendor_id : GenuineIntel", "AVX512", False), (None, "AVX512", False)],
)  # fmt: skip
def test_only_processors_whose_widest_units_mkl_leaves_idle_need_another_library(
    monkeypatch, tmp_path, facts, capability, wider
):
    if facts:
        (tmp_path / "cpuinfo").write_text(facts)
    monkeypatch.setattr(product, "CPU_FACTS", tmp_path / "cpuinfo")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert has_wider_units.__wrapped__() == wider
