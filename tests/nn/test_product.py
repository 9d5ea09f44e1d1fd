"""Products by either library are the same, and so are their gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.nn import product
from regard.nn.product import (
    FEW,
    LARGE,
    MANY,
    ROWS,
    THIN,
    Linear,
    Product,
    has_wide_mkl,
    has_wider_units,
    is_by_rows,
    is_wide,
    linear,
    multiply,
    weight_gradient,
)

has_onednn = torch.backends.mkldnn.is_available()


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.skipif(not has_onednn, reason="no oneDNN"))])
def wide(request, monkeypatch):
    monkeypatch.setattr(product, "has_wider_units", lambda: request.param)
    monkeypatch.setattr(product, "LARGE", 1)
    monkeypatch.setattr(product, "FEW", 1)
    monkeypatch.setattr(product, "THIN", 1)
    return request.param


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("shape", [(), (7,), (3, 7), (1, 1), (2, 3, 5), (ROWS,), (3 * ROWS + 5,)])
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


@pytest.mark.parametrize("needing", [0, 1, 2])
def test_only_the_gradients_that_are_needed_are_made(wide, needing, monkeypatch):
    made: list[str] = []
    for name in ("multiply", "weight_gradient"):
        original = getattr(product, name)
        monkeypatch.setattr(product, name, lambda *given, n=name, f=original: made.append(n) or f(*given))
    given = [numbers(ROWS + 8, 6), numbers(4, 6), numbers(4)]
    given[needing].requires_grad_()
    linear(*given).sum().backward()  # whose gradient is one number, seen from everywhere
    if wide:
        assert made == [["multiply", "multiply"], ["multiply", "weight_gradient"], ["multiply"]][needing]
    x, weight, _ = (each.detach().double() for each in given)
    expected = [weight.sum(0).expand(len(x), -1), x.sum(0).expand(4, -1), torch.full((4,), float(len(x)))][needing]
    torch.testing.assert_close(given[needing].grad.double(), expected.double(), atol=1e-4, rtol=1e-5)


def test_what_a_layer_makes_can_be_changed_in_place(wide):
    layer = Linear(6, 4)
    for rows in (FEW, ROWS, ROWS + 3):
        x = numbers(rows, 6)
        torch.testing.assert_close(layer(x).relu_(), F.linear(x, layer.weight, layer.bias).relu())


@pytest.mark.parametrize(("left", "right"), [(6, 4), (4, 6)])
@pytest.mark.parametrize("rows", [8, ROWS, ROWS + 8])
def test_products_take_matrices_that_are_stored_turned(wide, left, right, rows):
    x, weight, gradient = numbers(right, rows).t(), numbers(right, left).t(), numbers(left, rows).t()
    torch.testing.assert_close(multiply(x, weight), x @ weight.t(), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(weight_gradient(gradient, x), gradient.t() @ x, atol=1e-4, rtol=1e-5)


def test_the_layer_has_the_weights_of_torchs_own(wide):
    ours, theirs = Linear(6, 4), nn.Linear(6, 4)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(numbers(3, 6)), theirs(numbers(3, 6)))


def test_small_products_other_kinds_of_number_and_autocast_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(product, "has_wider_units", lambda: True)
    assert is_wide(numbers(FEW, 64), LARGE // 64 // FEW)
    assert not is_wide(numbers(FEW, 64), LARGE // 64 // FEW - 1)
    assert not is_wide(numbers(FEW - 1, 64), LARGE)
    assert not is_wide(numbers(LARGE // 8, 64), THIN - 1), "as the scores of additive attention"
    assert not is_wide(numbers(FEW, 64).double(), LARGE)
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
    monkeypatch.setattr(product, "has_wider_units", has_wider_units.__wrapped__)
    assert has_wide_mkl() == (capability == "AVX512" and not wider)


@pytest.mark.parametrize("with_onednn", [True, False])
@pytest.mark.parametrize("by_rows", [True, False])
def test_a_weight_has_a_form_for_each_number_of_rows(with_onednn, by_rows, monkeypatch):
    torch.manual_seed(1)
    monkeypatch.setattr(product, "has_wide_mkl", lambda: by_rows)
    weight, bias = torch.randn(8, LARGE // 32).t(), torch.randn(LARGE // 32)  # stored turned, as an engine has it
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: with_onednn)
    for each, wanted in [
        (Product.of(weight, bias, anywhere=True), lambda x: x @ weight.t() + bias),
        (Product.of(weight, None, anywhere=True), lambda x: x @ weight.t()),
    ]:
        assert each.form(1, False).t().is_contiguous(), "along its longer side"
        assert is_by_rows(3) == by_rows
        assert each.form(3, False).t().is_contiguous() == by_rows
        assert each.form(MANY, False).t().is_contiguous()
        assert each.form(4, True).is_mkldnn == with_onednn
        assert with_onednn or each.form(4, True).t().is_contiguous() == by_rows
        for rows in (1, 3, 4, MANY):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(each.forward(x), wanted(x))
    assert Product.of(weight.t(), None).form(1, False).is_contiguous(), "along its longer side"


def test_parts_of_wider_matrices_are_taken_out_of_them():
    """oneDNN would compute with them as they are, a thousand times slower."""
    wider = torch.randn(6, 8)
    for matrix in (wider, wider.t(), product.pack_weight(wider, anywhere=True)):
        assert product.whole(matrix) is matrix
    for part in (wider[:, :4], wider.t()[:4], wider[:1].expand(6, 8)):
        assert product.whole(part).is_contiguous()
        assert torch.equal(product.whole(part), part)
