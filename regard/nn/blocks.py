"""The small parts around attention: dropout, feed-forward, residual connection with layer norm."""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.chance import choose_places
from regard.nn.product import Linear


class _PlaceDropout(torch.autograd.Function):
    """Dropout that knows which elements are zero: on a CPU, drawing for every element is what dropout costs."""

    @staticmethod
    def forward(context: Any, x: Tensor, rate: float) -> Tensor:
        places = choose_places(x.numel(), rate)
        context.scale = 1 / (1 - rate)
        context.save_for_backward(places.to(torch.int32) if x.numel() < 2**31 else places)
        return scaled_but(x, context.scale, places)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (places,) = context.saved_tensors
        return scaled_but(gradient, context.scale, places.long()), None


def scaled_but(x: Tensor, scale: float, places: Tensor) -> Tensor:
    """The tensor times the scale, and zero at the places."""
    scaled = (x * scale).contiguous()
    scaled.view(-1).index_fill_(0, places, 0)
    return scaled


def drop(x: Tensor, rate: float) -> Tensor:
    """A share of the elements is set to zero, the others grow so that the mean stays."""
    return _PlaceDropout.apply(x, rate) if x.device.type == "cpu" else F.dropout(x, rate)


class Dropout(nn.Module):
    """`drop` in training, nothing otherwise."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.rate) if self.training and self.rate else x

    def extra_repr(self) -> str:
        return f"{self.rate}"


Activation = Literal["relu", "gelu", "swiglu"]


class FeedForward(nn.Module):
    """Vaswani et al. 2017, 3.3: W2 · max(0, W1 x); or GELU; or SwiGLU, (SiLU(W x) ⊙ V x) W2 (Shazeer 2020)."""

    def __init__(self, width: int, inner: int, activation: Activation, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = activation
        self.inner = Linear(width, 2 * inner if activation == "swiglu" else inner)
        self.outer = Linear(inner, width)
        self.dropout = Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.outer(self.dropout(activate(self.inner(x), self.activation)))


def activate(inner: Tensor, activation: str) -> Tensor:
    """What is between the two products."""
    if activation == "relu":
        return F.relu(inner)
    if activation == "gelu":
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
