"""Recurrent layers with states that are batch first.

    vanilla   s = tanh(W x + U s')
    GRU       s = (1−z) ⊙ n + z ⊙ s',   n = tanh(W x + r ⊙ (U s'))     (Cho 2014, gate r after U as torch has it)
    LSTM      c = f ⊙ c' + i ⊙ g,  s = o ⊙ tanh(c)

The weights are those of torch's own layers, whose kernels run whole sequences; one step uses the same
weights through torch's cells.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CellKind = Literal["vanilla", "gru", "lstm"]
LAYERS = {"vanilla": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS = {"vanilla": torch.rnn_tanh_cell, "gru": torch.gru_cell, "lstm": torch.lstm_cell}

RecurrentState = tuple[Tensor, ...]  # (s,) or (s, c), each [B, layers, width]


class Recurrent(nn.Module):
    """A stack of recurrent layers, in one direction."""

    def __init__(self, cell: CellKind, inputs: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.cell = cell
        self.dropout = dropout
        self.layers = LAYERS[cell](inputs, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)

    def forward(
        self, inputs: Float[Tensor, "B T I"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B T D"], RecurrentState]:
        """All steps at once when the inputs are known beforehand."""
        if inputs.size(1) == 1:
            output, state = self.step(inputs[:, 0], state)
            return output[:, None], state
        first = tuple(part.transpose(0, 1).contiguous() for part in state)
        outputs, last = self.layers(inputs, first if self.cell == "lstm" else first[0])
        parts = last if isinstance(last, tuple) else (last,)
        return outputs, tuple(part.transpose(0, 1) for part in parts)

    def step(self, inputs: Float[Tensor, "B I"], state: RecurrentState) -> tuple[Float[Tensor, "B D"], RecurrentState]:
        """One step through all layers."""
        cell = CELLS[self.cell]
        after: list[tuple[Tensor, ...]] = []
        for layer, weights in enumerate(self.layers.all_weights):
            if layer and self.training and self.dropout:
                inputs = F.dropout(inputs, self.dropout)
            before = tuple(part[:, layer] for part in state)
            result = cell(inputs, before if self.cell == "lstm" else before[0], *weights)
            after.append(result if isinstance(result, tuple) else (result,))
            inputs = after[-1][0]
        return inputs, tuple(torch.stack(parts, 1) for parts in zip(*after, strict=True))


class RecurrentEncoder(nn.Module):
    """Reads a padded batch in one or both directions; padding never enters a state."""

    def __init__(
        self, cell: CellKind, inputs: int, width: int, layers: int, bidirectional: bool, dropout: float
    ) -> None:
        super().__init__()
        self.directions = 2 if bidirectional else 1
        self.layers = LAYERS[cell](
            inputs,
            width,
            layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
        )

    def forward(
        self, inputs: Float[Tensor, "B S I"], lengths: Tensor
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B directions D"]]:
        """Annotations of all positions (zero on padding), and the top layer's last state of each direction."""
        packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, last = self.layers(packed)
        annotations, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.size(1))
        final = last[0] if isinstance(last, tuple) else last  # [layers · directions, B, D]
        return annotations, final[-self.directions :].transpose(0, 1)
