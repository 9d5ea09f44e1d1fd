"""Matrix products by the faster of the two libraries torch has on a CPU.

    y = x Wᵀ + b        ∂x = ∂y W        ∂W = ∂yᵀ x        ∂b = Σ ∂y

Torch asks MKL for them, which leaves the widest vector units of AMD's processors idle: there oneDNN, which torch
brings too, takes less than half of the time for the same float32 sums. Torch has it under private names, which its own
compiler uses. (There is a setting for all products at once, but it reaches those inside the attention kernel, which are
so small that they get many times slower.) Small products stay with MKL, whose calls cost less; so do other processors.

oneDNN writes code for each size of a product and keeps that of the last thousand. Batches are of ever other sizes, so
vectors are filled up to a multiple of GRAIN; those of a gradient of weights that are left over go to MKL.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LARGE = 2**20  # multiplications from which a call of oneDNN costs less than it saves
GRAIN = 64  # rows
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


def is_wide(x: Tensor, multiplications: int) -> bool:
    """Whether a product with x of so many multiplications is one for oneDNN."""
    return multiplications >= LARGE and x.dtype == torch.float32 and x.device.type == "cpu" and has_wider_units()


def multiply(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "M N"]:
    """x Wᵀ + b, for gradients that are made by hand."""
    if not is_wide(x, x.numel() * len(weight)):
        return F.linear(x, weight, bias)
    rows, more = len(x), -len(x) % GRAIN
    return by_onednn(F.pad(x, (0, 0, 0, more)) if more else x, weight, bias)[:rows]


def by_onednn(x: Float[Tensor, "M K"], weight: Tensor, bias: Tensor | None = None) -> Float[Tensor, "M N"]:
    """x Wᵀ + b; the weight may be packed."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def outer(gradient: Float[Tensor, "M N"], x: Float[Tensor, "M K"]) -> Float[Tensor, "N K"]:
    """∂yᵀ x, the gradient of a weight."""
    return add_outer(x.new_zeros(gradient.size(1), x.size(1)), gradient, x)


def add_outer(total: Float[Tensor, "N K"], gradient: Float[Tensor, "M N"], x: Float[Tensor, "M K"]) -> Tensor:
    """Add ∂yᵀ x to `total`, in place."""
    whole = len(x) - len(x) % GRAIN
    if whole and is_wide(x, x.numel() * gradient.size(1)):
        first, second = gradient[:whole].t(), x[:whole].t()
        is_long = len(first) > len(second)  # faster by up to 1.4 with the longer side inside
        total.add_(by_onednn(second, first).t() if is_long else by_onednn(first, second))
        gradient, x = gradient[whole:], x[whole:]
    return total.addmm_(gradient.t(), x) if len(x) else total


def pack(weight: Float[Tensor, "N K"], anywhere: bool = False) -> Tensor:
    """A weight that does not change any more, as oneDNN reads it fastest: where its units are wider, or anywhere."""
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    if fits and (anywhere or has_wider_units()):
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
    return weight


class Linear(nn.Linear):
    """torch's linear layer by the faster library."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        return linear(input, self.weight, self.bias)


def linear(x: Float[Tensor, "*B K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None) -> Tensor:
    """x Wᵀ + b of all vectors, with gradients."""
    plain = torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type)
    if plain or not is_wide(x, x.numel() * len(weight)):
        return F.linear(x, weight, bias)
    return _Product.apply(x.reshape(-1, x.size(-1)), weight, bias).unflatten(0, x.shape[:-1])  # pyright: ignore


class _Product(torch.autograd.Function):
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
            outer(gradient, x) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )
