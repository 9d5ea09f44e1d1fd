"""Non-autoregressive Transformer (Gu, Bradbury, Xiong, Li and Socher 2018, "Non-Autoregressive Neural Machine
Translation").

Idea: all words of the output at once. Which of the many good outputs they are to make together is settled beforehand by
fertilities, how many output words each source word has; source words are copied so often, and the decoder, which sees
all places, turns the copies into the output.

    p(y|x) = Σ_f Π_s p(f_s | x) · Π_t p(y_t | x copied by f)
    loss   = − Σ_s log p(f_s | x) − Σ_t log p(y_t | x copied by f)        f from a word aligner

The decoder's self-attention does not look at itself; positional attention looks from place to place. Total fertility 0
makes one place. Differs from the paper by option only: pre-norm.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Positive
from regard.data.batch import Batch
from regard.models.base import Memory
from regard.models.parallel import Canvas, Parallel, copied
from regard.models.transformer import Sizes, Transformer
from regard.nn.chance import gumbel
from regard.nn.product import Linear


class NonAutoregressive(Parallel):
    """Encoder, fertilities, and a decoder of copied words."""

    needs = ("fertility",)

    class Config(Sizes):
        tie: Literal["none", "all"] = "all"  # whether source and output share a table (target words are never read)
        most: Positive = 50  # fertilities are below this (L)

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        whole = Transformer.Config(**options.model_dump(exclude={"most"}))
        super().__init__(whole, (source_vocabulary, target_vocabulary), itself=False, positional=True)
        self.options = options
        self.fertility = Linear(options.width, options.most)
        none = torch.full((options.most,), -math.inf)
        none[0] = 0
        self.none: Tensor
        self.register_buffer("none", none, persistent=False)  # no fertility for sure

    def fertilities(self, memory: Memory) -> Float[Tensor, "B S L"]:
        """Log-probabilities of the fertilities of each source token; padding has none for sure."""
        prices = self.fertility(memory.values).float().log_softmax(-1)
        return torch.where(memory.mask[:, :, None], prices, self.none)

    def propose(
        self, memory: Memory, number: int, generators: Sequence[Any] | None = None, mean: bool = False
    ) -> Canvas:
        prices = self.fertilities(memory)
        chosen = [self.mean(prices) if mean else prices.argmax(-1)]
        for candidate in range(1, number):
            assert generators is not None
            chosen.append(drawn(prices, memory.mask, [each[candidate - 1] for each in generators]))
        return self.canvas_of(memory, prices, torch.stack(chosen, 1).flatten(0, 1))

    def canvas_of(self, memory: Memory, prices: Float[Tensor, "B S L"], fertility: Int[Tensor, "N S"]) -> Canvas:
        """The places that fertilities make; N = B × K, the candidates of a sentence one after the other."""
        assert memory.tokens is not None
        candidates, source = len(fertility) // len(prices), memory.tokens
        if candidates > 1:
            source, prices = (each.repeat_interleave(candidates, 0) for each in (source, prices))
        price = prices.gather(-1, fertility.clamp_max(self.options.most - 1)[:, :, None]).squeeze(-1).sum(1)
        return Canvas(*copied(source, fertility), price, fertility)

    @staticmethod
    def mean(prices: Float[Tensor, "B S L"]) -> Int[Tensor, "B S"]:
        """The rounded mean fertility of each source token."""
        return (prices.exp() * torch.arange(prices.size(-1), device=prices.device)).sum(-1).round().long()

    def teach(self, batch: Batch, memory: Memory) -> tuple[Canvas, Tensor]:
        prices, words = self.fertilities(memory), batch.target_length - 1
        known = batch.extra.get("fertility")
        fertility = fitted(prices.argmax(-1), words, memory.mask) if known is None else known
        canvas = self.canvas_of(memory, prices, fertility)
        return canvas, -canvas.price.sum()


def drawn(prices: Float[Tensor, "B S L"], mask: Tensor, generators: Sequence[Any]) -> Int[Tensor, "B S"]:
    """Fertilities by chance; a sentence's own generator makes the same ones in every batch."""
    noise = torch.full_like(prices, 0.5, device="cpu")
    for row, (length, generator) in enumerate(zip(mask.sum(1).tolist(), generators, strict=True)):
        noise[row, :length] = torch.rand(length, prices.size(-1), generator=generator)
    return (prices + gumbel(noise).to(prices)).argmax(-1)


def fitted(fertility: Int[Tensor, "B S"], total: Int[Tensor, "B"], mask: Tensor) -> Int[Tensor, "B S"]:
    """Fertilities brought to the given sums, each row in proportion and with the least change."""
    size = fertility.sum(1, keepdim=True)
    shares = torch.where(size > 0, fertility, mask.long()).double()  # nothing to go by: spread evenly
    ends = shares.cumsum(1) / shares.sum(1, keepdim=True) * total[:, None]
    return ends.round().long().diff(dim=1, prepend=torch.zeros_like(size))
