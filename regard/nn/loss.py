"""Output layer and cross-entropy in one, a chunk of positions at a time.

    logits z = h Wᵀ + b      loss = Σ −(1−ε) log p(y) − ε/V Σ_v log p(v)        (ε: label smoothing)

The logits of a whole batch are the largest tensor of a training step. Here a chunk's logits live in cache,
their gradient  p − (1−ε) onehot(y) − ε/V  is made at once in the forward pass, and only the gradients of h, W
and b are kept: memory grows with the chunk, not with batch × vocabulary. Each pass over a chunk [M,V] counts,
so only  e = exp(z − max)  is made in full, as a power of 2, which torch computes in a third of the time; all that
is constant along a row or a column is applied to the thin matrices instead:

    Σ_v z_v = h · Σ_v W_v + Σ_v b_v        p W = (e W) / Σe        pᵀ h = eᵀ (h / Σe)

Where no logit can be so large that its power overflows (|z| ≤ |h| |W_v| + |b_v|) the maximum is not needed either.

Where several tokens are asked for at every position, and what is made of their log-probabilities is not known here
(`token_prices`), the gradient is made in the backward pass from logits that are computed a second time.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.product import ROWS, add_weight_gradient, multiply

BITS = 1 / math.log(2)  # e^z = 2^(BITS z)
SAFE = 70.0  # e^±70, and the sum of a million of them, are normal float32
CHUNK = 2**22  # logits at a time: half or twice as many measured alike, far fewer or more are slower


def token_loss(
    hidden: Float[Tensor, "M D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " M"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Sum of the label-smoothed cross-entropy over M positions, in nats."""
    learn = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    with torch.autocast(hidden.device.type, enabled=False):  # logits are float32, whatever the layers are
        return _ChunkedLoss.apply(hidden, weight, bias, labels, smoothing, learn)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        learn: bool,
    ) -> Tensor:
        share = smoothing / len(weight)
        column = weight.sum(0)
        loss = hidden.new_zeros(())
        if smoothing:
            loss -= share * ((hidden @ column).sum() + (0 if bias is None else bias.sum() * len(hidden)))
        hidden_gradient = torch.empty_like(hidden) if learn else None
        weight_gradient = torch.zeros_like(weight) if learn else None
        bias_gradient = torch.zeros_like(bias) if learn and bias is not None else None
        is_safe = never_overflows(hidden, weight, bias)
        for part in chunks(hidden, weight):
            rows = hidden[part]
            logits = in_bits(rows, weight, bias)
            loss -= (1 - smoothing) / BITS * logits.gather(1, labels[part, None]).sum()
            if not is_safe:
                highest = logits.amax(1, keepdim=True)
                logits.sub_(highest)
                loss += highest.sum() / BITS
            powers = logits.exp2_()
            total = powers.sum(1, keepdim=True)
            loss += total.log().sum()
            if hidden_gradient is None or weight_gradient is None:
                continue
            torch.div(multiply(powers, weight.t()), total, out=hidden_gradient[part])
            add_weight_gradient(weight_gradient, powers, rows / total)
            if bias_gradient is not None:
                bias_gradient.addmv_(powers.t(), 1 / total[:, 0])
        if hidden_gradient is not None and weight_gradient is not None:
            hidden_gradient.sub_(weight.index_select(0, labels), alpha=1 - smoothing)
            weight_gradient.index_add_(0, labels, hidden, alpha=smoothing - 1)
            if bias_gradient is not None:
                bias_gradient.sub_(labels.bincount(minlength=len(weight)), alpha=1 - smoothing)
            if smoothing:
                hidden_gradient.sub_(column, alpha=share)
                weight_gradient.sub_(hidden.sum(0), alpha=share)
                if bias_gradient is not None:
                    bias_gradient.sub_(share * len(hidden))
            context.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        return loss

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        hidden, weight, bias = context.saved_tensors  # in place: a second backward is refused by torch
        of_bias = None if bias is None else bias.mul_(gradient)
        return hidden.mul_(gradient), weight.mul_(gradient), of_bias, None, None, None


def token_prices(
    hidden: Float[Tensor, "M D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    asked: Int[Tensor, "M Z"],
    never: Sequence[int] = (),
) -> tuple[Float[Tensor, "M Z"], Float[Tensor, " M"]]:
    """Log-probabilities of the tokens that are asked for at each position, among all but those that never come.

    Beside them that of the likeliest token, which has no gradient.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        return _ChunkedPrices.apply(hidden, weight, bias, asked, never)


class _ChunkedPrices(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, asked: Tensor, never: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        context.save_for_backward(hidden, weight, bias, asked)
        context.never = never
        prices, best = hidden.new_empty(asked.shape), hidden.new_empty(len(hidden))
        for part in chunks(hidden, weight):
            logits = below_highest(hidden[part], weight, bias, never)
            chosen = logits.gather(1, asked[part])
            total = logits.exp2_().sum(1, keepdim=True).log()
            prices[part], best[part] = chosen / BITS - total, -total[:, 0]
        context.mark_non_differentiable(best)
        return prices, best

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor, _: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        (hidden, weight, bias, asked), never = context.saved_tensors, context.never
        of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        of_bias = None if bias is None else torch.zeros_like(bias)
        for part in chunks(hidden, weight):
            powers = below_highest(hidden[part], weight, bias, never).exp2_()
            own, total = gradient[part], powers.sum(1, keepdim=True)
            powers.mul_(-own.sum(1, keepdim=True) / total).scatter_add_(1, asked[part], own)  # ∂z = g − p Σg
            of_hidden[part] = multiply(powers, weight.t())
            add_weight_gradient(of_weight, powers, hidden[part])
            if of_bias is not None:
                of_bias += powers.sum(0)
        return of_hidden, of_weight, of_bias, None, None


def chunks(hidden: Tensor, weight: Tensor) -> Iterator[slice]:
    """Positions that are computed together."""
    size = max(ROWS, CHUNK // len(weight) // ROWS * ROWS)
    return (slice(start, start + size) for start in range(0, len(hidden), size))


def in_bits(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logits whose powers of 2 are wanted."""
    logits = multiply(rows * BITS, weight)
    return logits if bias is None else logits.add_(bias, alpha=BITS)


def below_highest(rows: Tensor, weight: Tensor, bias: Tensor | None, never: Sequence[int]) -> Tensor:
    """The same less the highest of each row, −∞ for tokens that never come: no power is above one."""
    logits = in_bits(rows, weight, bias)
    for token in never:
        logits[:, token] = -math.inf
    return logits.sub_(logits.amax(1, keepdim=True))


def never_overflows(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether powers of all logits are normal numbers; on other devices than a CPU nobody waits for the answer."""
    return hidden.device.type == "cpu" and largest_logit(hidden, weight, bias) < SAFE


def largest_logit(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """No logit is farther from zero than this."""
    if not len(hidden):
        return 0.0
    most = hidden.norm(dim=1).amax() * weight.norm(dim=1).amax() + (0 if bias is None else bias.abs().amax())
    return float(most)
