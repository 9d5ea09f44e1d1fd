"""The small parts around attention: dropout, feed-forward, residual connection with layer norm."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class _ByteDropout(torch.autograd.Function):
    """Dropout with one random byte per element: on a CPU making random numbers is what dropout costs."""

    @staticmethod
    def forward(context: Any, x: Tensor, rate: float) -> Tensor:
        threshold = min(round(rate * 256), 255)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
        context.scale = 256 / (256 - threshold)
        context.save_for_backward(kept)
        return (x * context.scale).mul_(kept)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (kept,) = context.saved_tensors
        return (gradient * context.scale).mul_(kept), None


class Dropout(nn.Module):
    """Sets a share of the elements to zero in training; on the CPU the rate is rounded to 1/256."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type == "cpu" and round(self.rate * 256) > 0:
            return _ByteDropout.apply(x, self.rate)  # type: ignore[return-value]
        return F.dropout(x, self.rate)

    def extra_repr(self) -> str:
        return f"{self.rate}"


Activation = Literal["relu", "gelu", "swiglu"]


class FeedForward(nn.Module):
    """Vaswani et al. 2017, 3.3: W2 · max(0, W1 x); or GELU; or SwiGLU, (SiLU(W x) ⊙ V x) W2 (Shazeer 2020)."""

    def __init__(self, width: int, inner: int, activation: Activation, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = activation
        self.inner = nn.Linear(width, 2 * inner if activation == "swiglu" else inner)
        self.outer = nn.Linear(inner, width)
        self.dropout = Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.outer(self.dropout(self.activate(self.inner(x))))

    def activate(self, inner: Tensor) -> Tensor:
        """What is between the two products."""
        if self.activation == "relu":
            return F.relu(inner)
        if self.activation == "gelu":
            return F.gelu(inner)
        gate, value = inner.chunk(2, -1)
        return F.silu(gate) * value


Norm = Literal["pre", "post", "none"]


class Residual(nn.Module):
    """A sub-layer with residual connection, dropout and layer norm: after the sum, or before the sub-layer.

    post (Vaswani 2017): norm(x + drop(f(x)))        pre (Wang 2019): x + drop(f(norm(x)))
    Without the residual connection there is no x in the sum.
    """

    def __init__(self, width: int, norm: Norm, dropout: float, residual: bool = True) -> None:
        super().__init__()
        self.pre = norm == "pre"
        self.residual = residual
        self.norm = nn.Identity() if norm == "none" else nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B T D"]:
        y = self.dropout(sublayer(self.norm(x) if self.pre else x))
        y = x + y if self.residual else y
        return y if self.pre else self.norm(y)


class Skip(nn.Module):
    """In the place of the residual connection around a sub-layer that is not there."""

    def forward(self, x: Float[Tensor, "B T D"], sublayer: object) -> Float[Tensor, "B T D"]:
        return x
