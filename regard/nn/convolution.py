"""Convolutions over sequences [B,T,C], with weight normalisation (Salimans & Kingma 2016): w = g · v / ‖v‖."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class Normed(nn.Module):
    """A linear map of one position, weight-normalised; output of the scale of the input for dropout `dropout`."""

    def __init__(self, inputs: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        nn.init.normal_(self.linear.weight, std=math.sqrt((1 - dropout) / inputs))
        nn.init.zeros_(self.linear.bias)
        weight_norm(self.linear)

    def forward(self, x: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        return self.linear(x)


class GatedConvolution(nn.Module):
    """Dauphin et al. 2016: [a; b] = a convolution of `kernel` positions, y = a ⊙ σ(b)."""

    def __init__(self, width: int, kernel: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.kernel = kernel
        self.convolution = nn.Conv1d(width, 2 * width, kernel)
        nn.init.normal_(self.convolution.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * width)))
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]
        weight_norm(self.convolution)

    def forward(self, x: Float[Tensor, "B R C"]) -> Float[Tensor, "B T C"]:
        """R = T + kernel − 1 positions in, T out."""
        return F.glu(self.convolution(x.transpose(1, 2)), 1).transpose(1, 2)

    def around(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Every position sees as many positions after it as before it; there are zeros beyond the ends."""
        before = (self.kernel - 1) // 2
        return self(F.pad(x, (0, 0, before, self.kernel - 1 - before)))

    def behind(
        self, x: Float[Tensor, "B T C"], past: Float[Tensor, "B P C"] | None
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B P C"]]:
        """Every position sees itself and those before it; `past` are the last kernel − 1 inputs before x."""
        if past is None:
            past = x.new_zeros(len(x), self.kernel - 1, x.size(-1))
        seen = torch.cat([past, x], 1)
        return self(seen), seen[:, seen.size(1) - self.kernel + 1 :]


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """x as it is, with its gradient multiplied by `factor`."""
    return x * factor + x.detach() * (1 - factor) if x.requires_grad else x
