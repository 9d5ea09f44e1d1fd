"""Where a token stands: vectors for positions, since attention by itself sees a set.

sinusoidal (Vaswani 2017, 3.5)   p(t, 2i) = sin(t / 10000^(2i/D)),  p(t, 2i+1) = cos(same)
learned                          a table of `limit` vectors
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def angles(position: Tensor, width: int) -> Float[Tensor, "T half"]:
    """t / 10000^(2i/D) of each position, in double precision."""
    return position.double()[:, None] * torch.exp(
        torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width)
    )


def sinusoidal(length: int, width: int, first: int = 0) -> Float[Tensor, "T D"]:
    """The table of sines and cosines of the positions first, first + 1, …"""
    angle = angles(torch.arange(first, first + length), width)
    table = torch.empty(length, width, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : width // 2]
    return table.float()


class Sinusoidal(nn.Module):
    """Sinusoidal positions; the table grows on demand and is never saved."""

    limit = None  # no longest length

    def __init__(self, width: int, length: int = 512) -> None:
        super().__init__()
        self.width = width
        self.table: Tensor
        self.register_buffer("table", sinusoidal(length, width), persistent=False)

    def forward(self, start: int, length: int) -> Float[Tensor, "T D"]:
        """Vectors of the positions start … start + length − 1."""
        table = self.table  # of this call: another thread may let it grow meanwhile
        if start + length > len(table):
            with torch.inference_mode(False):  # a table that grew in a search must serve training too
                self.table = table = sinusoidal(2 * (start + length), self.width).to(table)
        return table[start : start + length]


class Learned(nn.Module):
    """A learned vector for each of `limit` positions."""

    def __init__(self, width: int, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.table = nn.Parameter(torch.empty(limit, width))
        nn.init.normal_(self.table, std=width**-0.5)

    def forward(self, start: int, length: int) -> Float[Tensor, "T D"]:
        """Vectors of the positions start … start + length − 1."""
        if start + length > self.limit:
            raise ValueError(f"position {start + length} is beyond the learned table of {self.limit}")
        return self.table[start : start + length]
