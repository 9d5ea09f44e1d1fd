"""Matrix products by the faster of the two libraries torch has on a CPU.

    y = x Wᵀ + b        ∂x = ∂y W        ∂W = ∂yᵀ x        ∂b = Σ ∂y

Torch asks MKL for them, which leaves the widest vector units of AMD's processors idle: there oneDNN, which torch
brings too, takes half of the time for the same float32 sums. Torch has it under private names, which its own
compiler uses. (There is a setting for all products at once, but it reaches those inside the attention kernel, which are
so small that they get many times slower.) Small products stay with MKL, whose calls cost less; so do other processors.

oneDNN writes code for each size of a product and keeps that of the last thousand. Batches are of ever other sizes, so
vectors are filled up to a multiple of ROWS; those of a gradient of weights that are left over go to MKL.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LARGE = 2**20  # multiplications from which a call of oneDNN costs less than it saves
FEW, ROWS = 8, 64  # a product has a multiple of ROWS rows, with fewer of FEW; with fewer than that it is MKL's
THIN = 16  # numbers; a product with vectors shorter than that, as the scores of additive attention, is MKL's
MANY = 64  # rows from which MKL's product is done by rows without AVX-512, where the weight does not change
CPU_FACTS = Path("/proc/cpuinfo")


@cache
def has_wider_units() -> bool:
    """Whether oneDNN uses vector units of this processor that MKL does not."""
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        return "AuthenticAMD" in CPU_FACTS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return False


def has_wide_mkl() -> bool:
    """Whether MKL uses AVX-512, with which few rows, too, are multiplied faster by rows than by columns."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and not has_wider_units()


def is_by_rows(rows: int) -> bool:
    """Whether MKL multiplies so many rows, more than one, faster by rows, where the weight does not change."""
    return rows >= MANY or has_wide_mkl()


def is_wide(x: Tensor, outputs: int) -> bool:
    """Whether a product that makes so many outputs of each row of x is one for oneDNN."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    rows, inputs = x.numel() // max(1, x.size(-1)), x.size(-1)
    if min(inputs, outputs) < THIN or rows < FEW or rows * inputs * outputs < LARGE:
        return False
    return x.dtype == torch.float32 and has_wider_units()


def multiply(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "M N"]:
    """x Wᵀ + b, for gradients that are made by hand."""
    if not is_wide(x, len(weight)):
        return F.linear(x, weight, bias)
    rows, more = len(x), -len(x) % (ROWS if len(x) >= ROWS else FEW)
    y = by_onednn(F.pad(x, (0, 0, 0, more)) if more else x, weight, bias)
    return y.resize_(rows, len(weight)) if more else y  # not a view of it, which nobody could change in place


def by_onednn(x: Float[Tensor, "M K"], weight: Tensor, bias: Tensor | None = None) -> Float[Tensor, "M N"]:
    """x Wᵀ + b; the weight may be packed."""
    return torch.ops.mkldnn._linear_pointwise(whole(x), whole(weight), bias, "none", [], "")


def whole(matrix: Tensor) -> Tensor:
    """A matrix by itself, stored as it is or turned: with a part of a wider one oneDNN is a thousand times slower."""
    if matrix.is_mkldnn or matrix.is_contiguous() or matrix.t().is_contiguous():
        return matrix
    return matrix.contiguous()


def weight_gradient(gradient: Float[Tensor, "M N"], x: Float[Tensor, "M K"]) -> Float[Tensor, "N K"]:
    """∂yᵀ x."""
    return add_weight_gradient(x.new_zeros(gradient.size(1), x.size(1)), gradient, x)


def add_weight_gradient(
    total: Float[Tensor, "N K"], gradient: Float[Tensor, "M N"], x: Float[Tensor, "M K"]
) -> Float[Tensor, "N K"]:
    """Add ∂yᵀ x to `total`, in place."""
    done = len(x) - len(x) % ROWS if is_wide(x, gradient.size(1)) else 0
    if done:
        first, second = gradient[:done].t(), x[:done].t()
        is_long = len(first) > len(second)  # faster by up to 1.4 with the longer side inside
        total.add_(by_onednn(second, first).t() if is_long else by_onednn(first, second))
    return total if done == len(x) else total.addmm_(gradient[done:].t(), x[done:])


def pack_weight(weight: Float[Tensor, "N K"], anywhere: bool = False) -> Tensor:
    """A weight that does not change any more, as oneDNN reads it fastest: where its units are wider, or anywhere."""
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    if fits and (anywhere or has_wider_units()):
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
    return weight


@dataclass(frozen=True)
class Product:
    """A weight for products with any number of rows, for as long as it does not change."""

    weight: Float[Tensor, "N K"]
    turned: Float[Tensor, "N K"]  # the same stored as [in, out]
    packed: Tensor  # the same as oneDNN reads it, where that is used
    bias: Float[Tensor, " N"] | None

    @classmethod
    @torch.no_grad()
    def of(cls, weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None, anywhere: bool = False) -> "Product":
        """From weight and bias; packed where oneDNN is the faster library, or wherever it is."""
        weight = weight.contiguous()
        return cls(weight, weight.t().contiguous().t(), pack_weight(weight, anywhere), bias)

    @property
    def size(self) -> int:
        """Numbers in the weight."""
        return self.weight.numel()

    def form(self, rows: int, wide: bool) -> Tensor:
        """The form of the weight that suits so many rows; `wide`: if oneDNN can do it, it is to do it."""
        if wide and self.packed.is_mkldnn:
            return self.packed
        outputs, inputs = self.weight.shape
        by_rows = outputs > inputs if rows == 1 else is_by_rows(rows)  # a single row reads along the longer side
        return self.turned if by_rows else self.weight

    def forward(self, x: Float[Tensor, "M K"]) -> Float[Tensor, "M N"]:
        """Weight times each row, with the bias."""
        weight = self.form(len(x), len(x) * self.size >= LARGE)
        if weight.is_mkldnn:
            return by_onednn(x, weight, self.bias)
        columns = torch.mm(x, weight.t()).t() if is_by_rows(len(x)) else torch.mm(weight, x.t())
        return (columns if self.bias is None else columns.add_(self.bias[:, None])).t()


class Linear(nn.Linear):
    """torch's linear layer by the faster library."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        return linear(input, self.weight, self.bias)


def linear(x: Float[Tensor, "*B K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None) -> Tensor:
    """x Wᵀ + b of all vectors, with gradients."""
    if not is_wide(x, len(weight)):
        return F.linear(x, weight, bias)
    y: Any = _Linear.apply(x.reshape(-1, x.size(-1)), weight, bias)
    return y.view(*x.shape[:-1], len(weight))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        context.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = context.saved_tensors
        of_x, of_weight, of_bias = context.needs_input_grad
        return (
            multiply(gradient, weight.t()) if of_x else None,
            weight_gradient(gradient, x) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )
