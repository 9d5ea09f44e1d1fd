"""Recurrent layers with states that are batch first.

    vanilla   s = tanh(W x + U s')
    GRU       s = (1−z) ⊙ n + z ⊙ s',   n = tanh(W x + r ⊙ (U s'))     (Cho 2014, gate r after U as torch has it)
    LSTM      c = f ⊙ c' + i ⊙ g,  s = o ⊙ tanh(c)

The weights are those of torch's own layers, whose kernels run whole sequences. Where the input of a step
depends on the step before, only that part is computed step by step: W x of what is known beforehand is made for
all steps in one product, and the gradient of the weights used at every step is made once, at the end.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.attention import padding_mask
from regard.nn.blocks import Dropout
from regard.nn.product import linear, multiply, weight_gradient

CellKind = Literal["vanilla", "gru", "lstm"]
LAYERS = {"vanilla": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
KERNELS = {"vanilla": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}

RecurrentState = tuple[Tensor, ...]  # (s,) or (s, c), each [B, layers, width]
Product = Callable[[Tensor, Tensor], Tensor]  # x [B,I], b [B,O] or [O] → x Wᵀ + b
Uses = list[tuple[Tensor, Tensor]]  # of the same weights: inputs, and the gradients of the outputs


class _Once(torch.autograd.Function):
    """Hands weights on; its backward runs after that of all their uses, and makes their gradient in one product."""

    @staticmethod
    def forward(context: Any, weight: Tensor, uses: Uses) -> Tensor:
        context.uses = uses
        context.set_materialize_grads(False)
        return weight.contiguous().view_as(weight)  # by itself, as products want it

    @staticmethod
    def backward(context: Any, _: None) -> tuple[Tensor, None]:  # type: ignore[override]
        inputs, gradients = (torch.cat(rows) for rows in zip(*context.uses, strict=True))
        context.uses.clear()
        return weight_gradient(gradients, inputs), None


class _Use(torch.autograd.Function):
    """x Wᵀ + b, whose backward notes what the gradient of W needs and leaves it to `_Once`."""

    @staticmethod
    def forward(context: Any, x: Tensor, plus: Tensor, weight: Tensor, uses: Uses) -> Tensor:
        context.save_for_backward(x, weight)
        context.uses, context.bias = uses, plus.dim() == 1
        return multiply(x, weight).add_(plus)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = context.saved_tensors
        context.uses.append((x, gradient))
        return multiply(gradient, weight.t()), gradient.sum(0) if context.bias else gradient, None, None


def repeated(weight: Tensor) -> Product:
    """The product with a matrix that is used at every step of a recurrence."""
    plain = torch.compiler.is_compiling() or torch.is_autocast_enabled(weight.device.type)
    if torch.is_grad_enabled() and weight.requires_grad and not plain:
        uses: Uses = []
        shared = _Once.apply(weight, uses)
        return lambda x, plus: _Use.apply(x, plus, shared, uses)  # type: ignore[return-value]
    return lambda x, plus: torch.addmm(plus, x, weight.t())


def vanilla(given: Tensor, past: Product, bias: Tensor, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The state after a step, from W x + b and the product with U."""
    return (past(before[0], given).tanh(),)


def gru(given: Tensor, past: Product, bias: Tensor, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The same; U s' is needed by itself, with its own bias."""
    width = before[0].size(-1)
    gates, new = given.split([2 * width, width], -1)
    past_gates, past_new = past(before[0], bias).split([2 * width, width], -1)
    r, z = (gates + past_gates).sigmoid().chunk(2, -1)
    return (torch.lerp(torch.addcmul(new, r, past_new).tanh(), before[0], z),)


def lstm(given: Tensor, past: Product, bias: Tensor, before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The same, with a cell beside the state."""
    i, f, g, o = past(before[0], given).chunk(4, -1)
    cell = torch.addcmul(f.sigmoid() * before[1], i.sigmoid(), g.tanh())
    return o.sigmoid() * cell.tanh(), cell


CELLS = {"vanilla": vanilla, "gru": gru, "lstm": lstm}


def has_bfloat16() -> bool:
    """Whether oneDNN can compute in bfloat16 on this processor."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def run(cell: CellKind, inputs: Tensor, weights: list[Tensor], before: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """One layer over whole sequences by torch's kernel: outputs [B,T,D], and the state after them.

    In bfloat16 that is oneDNN's, which has none for the gradients of processors without units for it.
    """
    if torch.is_autocast_enabled("cpu") and inputs.device.type == "cpu" and not has_bfloat16():
        with torch.autocast("cpu", enabled=False):
            return run(cell, inputs.float(), weights, [part.float() for part in before])
    first = [part[None].contiguous() for part in before]
    outputs, *last = KERNELS[cell](
        inputs, first if cell == "lstm" else first[0], weights, True, 1, 0.0, torch.is_grad_enabled(), False, True
    )
    return outputs, *(part[0] for part in last)


class Recurrent(nn.Module):
    """A stack of recurrent layers, in one direction."""

    def __init__(self, cell: CellKind, inputs: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.cell: CellKind = cell
        self.layers = LAYERS[cell](inputs, width, layers, batch_first=True)
        self.dropout = Dropout(dropout)

    def forward(
        self, inputs: Float[Tensor, "B T I"], state: RecurrentState
    ) -> tuple[Float[Tensor, "B T D"], RecurrentState]:
        """All steps at once when the inputs are known beforehand."""
        if inputs.size(1) == 1:  # torch's kernels for whole sequences are slow to start
            walk = self.walk(inputs, state)
            return walk.step(0, inputs[:, 0, :0])[:, None], walk.state
        after = []
        for layer, weights in enumerate(self.layers.all_weights):
            inputs = self.dropout(inputs) if layer else inputs
            inputs, *last = run(self.cell, inputs, weights, [part[:, layer] for part in state])
            after.append(last)
        return inputs, tuple(torch.stack(parts, 1) for parts in zip(*after, strict=True))

    def walk(self, known: Float[Tensor, "B T K"], state: RecurrentState) -> "Walk":
        """Step by step, where only the first K of the inputs are known beforehand."""
        return Walk(self, known, state)


class Walk:
    """The way through a sequence, one step at a time."""

    def __init__(self, stack: Recurrent, known: Tensor, state: RecurrentState) -> None:
        self._cell = CELLS[stack.cell]
        self._dropout = stack.dropout
        weights = stack.layers.all_weights
        self._biases = [(b, c) if stack.cell == "gru" else (b + c, c) for _, _, b, c in weights]
        first, width = weights[0][0], known.size(-1)
        self._known = linear(known, first[:, :width], self._biases[0][0]).unbind(1)
        self._inputs = [repeated(first[:, width:]), *(repeated(layer[0]) for layer in weights[1:])]
        self._past = [repeated(layer[1]) for layer in weights]
        self._states = [[part[:, layer] for part in state] for layer in range(len(weights))]

    def step(self, number: int, rest: Float[Tensor, "B R"]) -> Float[Tensor, "B D"]:
        """The top layer's state after step `number`, whose input is what was known and `rest`."""
        x = rest
        for layer, (product, past, (b, c)) in enumerate(zip(self._inputs, self._past, self._biases, strict=True)):
            given = product(self._dropout(x), b) if layer else product(x, self._known[number])
            self._states[layer] = list(self._cell(given, past, c, self._states[layer]))
            x = self._states[layer][0]
        return x

    @property
    def state(self) -> RecurrentState:
        """Of all layers after the last step."""
        return tuple(torch.stack(parts, 1) for parts in zip(*self._states, strict=True))


class RecurrentEncoder(nn.Module):
    """Reads a padded batch in one or both directions; padding never enters a state that counts."""

    def __init__(
        self, cell: CellKind, inputs: int, width: int, layers: int, bidirectional: bool, dropout: float
    ) -> None:
        super().__init__()
        self.cell: CellKind = cell
        self.directions = 2 if bidirectional else 1
        self.layers = LAYERS[cell](inputs, width, layers, batch_first=True, bidirectional=bidirectional)
        self.dropout = Dropout(dropout)

    def forward(
        self, inputs: Float[Tensor, "B S I"], lengths: Tensor
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B directions D"]]:
        """Annotations of all positions (zero on padding), and the top layer's last state of each direction."""
        mask = padding_mask(lengths, inputs.size(1))
        turned = backwards(lengths, mask)
        zeros = [inputs.new_zeros(len(inputs), self.layers.hidden_size)] * (2 if self.cell == "lstm" else 1)
        weights = self.layers.all_weights  # of each layer, of each direction
        forth = back = inputs
        for number in range(0, len(weights), self.directions):
            read = self.dropout(inputs) if number else inputs
            inputs = forth = run(self.cell, read, weights[number], zeros)[0]
            if self.directions == 2:
                back = take(run(self.cell, take(read, turned), weights[number + 1], zeros)[0], turned)
                inputs = torch.cat([forth, back], -1)
        ends = [take(forth, turned[:, 0]), back[:, 0]][: self.directions]
        return inputs.masked_fill(~mask[:, :, None], 0), torch.stack(ends, 1)


def backwards(lengths: Tensor, mask: Tensor) -> Int[Tensor, "B S"]:
    """Which of the B·S vectors of a batch stands at each place when the real part of every row is turned around."""
    places = torch.arange(mask.size(1), device=mask.device)
    turned = torch.where(mask, lengths[:, None] - 1 - places, places)
    return turned + mask.size(1) * torch.arange(len(mask), device=mask.device)[:, None]


def take(x: Float[Tensor, "B S D"], numbers: Int[Tensor, "*N"]) -> Float[Tensor, "*N D"]:
    """The vectors of these numbers among all B·S."""
    return x.flatten(0, 1).index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
