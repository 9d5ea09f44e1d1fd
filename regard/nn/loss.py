"""Output layer and cross-entropy in one, a chunk of positions at a time.

    logits z = h Wᵀ + b      loss = Σ −(1−ε) log p(y) − ε/V Σ_v log p(v)        (ε: label smoothing)

The logits of a whole batch are the largest tensor of a training step. Here a chunk's logits live in cache,
their gradient  p − (1−ε) onehot(y) − ε/V  is made at once in the forward pass, and only the gradients of h, W
and b are kept: memory grows with the chunk, not with batch × vocabulary. Each pass over a chunk [M,V] counts,
so only  e = exp(z − max)  is made in full, as a power of 2, which torch computes in a third of the time; all that
is constant along a row or a column is applied to the thin matrices instead:

    Σ_v z_v = h · Σ_v W_v + Σ_v b_v        p W = (e W) / Σe        pᵀ h = eᵀ (h / Σe)

Where no logit can be so large that its power overflows (|z| ≤ |h| |W_v| + |b_v|) the maximum is not needed either.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

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
        chunk = max(ROWS, CHUNK // len(weight) // ROWS * ROWS)
        is_safe = hidden.device.type == "cpu" and largest_logit(hidden, weight, bias) < SAFE  # elsewhere one would wait
        for start in range(0, len(hidden), chunk):
            part = slice(start, start + chunk)
            rows = hidden[part]
            logits = multiply(rows * BITS, weight)
            if bias is not None:
                logits.add_(bias, alpha=BITS)
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


def largest_logit(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """No logit is farther from zero than this."""
    if not len(hidden):
        return 0.0
    most = hidden.norm(dim=1).amax() * weight.norm(dim=1).amax() + (0 if bias is None else bias.abs().amax())
    return float(most)
