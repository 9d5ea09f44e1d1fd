"""Local attention (Luong et al. 2015, section 3.2): look only at the 2D + 1 positions around a place p_t.

    monotonic    local-m: p_t = t
    predictive   local-p: p_t = S · sigmoid(v · tanh(W s_t)), and the weights are multiplied by
                 exp(−(s − p_t)² / 2σ²), σ = D/2: they sum to less than one, and p_t can be learned

Differs from the paper: in local-m an output longer than its source goes on looking at the end of it (p_t ≤ S − 1).
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.nn.attention import Attention, fold, masked_softmax
from regard.nn.product import Linear

LocalKind = Literal["none", "monotonic", "predictive"]


class Local(nn.Module):
    """Where an attention may look at each step."""

    def __init__(self, kind: Literal["monotonic", "predictive"], query: int, reach: int) -> None:
        super().__init__()
        self.reach = reach  # D
        self.inner = self.outer = None
        if kind == "predictive":
            self.inner = Linear(query, query, bias=False)  # W_p
            self.outer = Linear(query, 1, bias=False)  # v_p

    def over(
        self, attention: Attention, keys: Tensor, values: Tensor, mask: Bool[Tensor, "B S"], position: int
    ) -> Callable[[Tensor], Tensor]:
        """A function from the queries of the steps position, position + 1, … to their contexts."""

        def look(query: Float[Tensor, "N T Q"]) -> Tensor:
            nonlocal position
            folded, unfold = fold(query, len(values), attention.tap is not None)
            steps = position + torch.arange(query.size(1), device=query.device)
            position += query.size(1)
            centre = self.centre(folded, steps.repeat(folded.size(1) // len(steps)), mask.sum(1, keepdim=True))
            distance = torch.arange(keys.size(1), device=query.device) - centre[:, :, None]  # [B,K·T,S]
            near = mask[:, None] & (distance.abs() <= self.reach)
            weights = masked_softmax(attention.scores(folded, keys), near)
            if self.inner is not None:
                weights = weights * torch.exp(-2 * (distance / self.reach) ** 2)  # σ = D/2
            return unfold(attention.gather(weights, values))

        return look

    def centre(self, query: Float[Tensor, "B T Q"], steps: Tensor, length: Tensor) -> Float[Tensor, "B T"]:
        """p_t of every query."""
        if self.inner is None or self.outer is None:
            return torch.minimum(steps[None], length - 1).to(query.dtype)
        return length * torch.sigmoid(self.outer(torch.tanh(self.inner(query)))).squeeze(-1)
