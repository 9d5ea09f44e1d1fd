"""Convolutions over sequences [B,T,C].

weight normalisation (Salimans & Kingma 2016)     w = g · v / ‖v‖
gated linear unit (Dauphin et al. 2016)           [a; b] = W x,  y = a ⊙ σ(b)
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from regard.nn.product import Linear


class Normed(nn.Module):
    """A linear map of one position, weight-normalised; output of the scale of the input for dropout `dropout`."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs)
        nn.init.normal_(self.linear.weight, std=math.sqrt((1 - dropout) / inputs))
        nn.init.zeros_(self.linear.bias)
        weight_norm(self.linear)

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return self.linear(x)


class Convolution(nn.Module):
    """Each output sees `kernel` positions, `dilation` apart."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.reach = (kernel - 1) * dilation  # from the first to the last of them
        self.convolution = nn.Conv1d(inputs, outputs, kernel, dilation=dilation)

    def forward(self, x: Float[Tensor, "B R C"]) -> Float[Tensor, "B T D"]:
        """R = T + reach positions in, T out."""
        return self.convolution(x.transpose(1, 2)).transpose(1, 2)

    def around(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T D"]:
        """Every position sees as many positions after it as before it; there are zeros beyond the ends."""
        return self(F.pad(x, (0, 0, self.reach // 2, self.reach - self.reach // 2)))

    def behind(
        self, x: Float[Tensor, "B T C"], past: Float[Tensor, "B P C"] | None
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B P C"]]:
        """Every position sees itself and those before it; `past` are the last `reach` inputs before x."""
        if past is None:
            past = x.new_zeros(len(x), self.reach, x.size(-1))
        seen = torch.cat([past, x], 1)
        return self(seen), seen[:, seen.size(1) - self.reach :]


class GatedConvolution(Convolution):
    """With a gated linear unit and weight normalisation; start values keep the variance for dropout `dropout`."""

    def __init__(self, width: int, kernel: int, dropout: float = 0.0) -> None:
        super().__init__(width, 2 * width, kernel)
        nn.init.normal_(self.convolution.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * width)))
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]
        weight_norm(self.convolution)

    def forward(self, x: Float[Tensor, "B R C"]) -> Float[Tensor, "B T C"]:
        return F.glu(super().forward(x), -1)


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x as it is, with its gradient multiplied by `factor`."""
    return x * factor + x.detach() * (1 - factor) if x.requires_grad else x
