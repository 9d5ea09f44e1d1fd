"""Mask-predict (Ghazvininejad, Levy, Liu and Zettlemoyer 2019, "Mask-Predict: Parallel Decoding of Conditional Masked
Language Models").

Idea: a decoder that sees both sides fills hidden words of the output from the others. To begin with all are hidden;
then the least certain ones are hidden again and filled anew, a constant number of passes whatever the length.

    loss   = − log p(length | x) − Σ_{t hidden} log p(y_t | x, words that are not hidden)
             the number of hidden words is drawn evenly from 1 … T, and which they are too
    length by a softmax over the mean of the encoder's output; with beam K the K likeliest are tried

Differs from the paper: it has a token whose encoding says the length, where we take the mean; and of several lengths
the best is chosen with log p(length) added, not by the words alone.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import Positive
from regard.data.batch import BOS, PAD, Batch
from regard.models.base import Memory
from regard.models.parallel import Canvas, Refining
from regard.models.transformer import Sizes, Transformer
from regard.nn.attention import padding_mask
from regard.nn.chance import draw, uniform
from regard.nn.product import Linear

HIDDEN = BOS  # never stands inside an output


class MaskPredict(Refining):
    """Encoder, length, and a decoder that fills what is hidden."""

    copies = False

    class Config(Sizes):
        tie: Literal["none", "output", "embeddings", "all"] = "all"  # which of source, target, output share a table
        longest: Positive = 256  # words of an output

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        whole = Transformer.Config(**options.model_dump(exclude={"longest"}))
        super().__init__(whole, (source_vocabulary, target_vocabulary))
        self.options = options
        self.limit = options.longest + 1
        self.length = Linear(options.width, options.longest)

    def lengths(self, memory: Memory) -> Float[Tensor, "B L"]:
        """Log-probabilities of 1, 2, … words."""
        mean = memory.values.sum(1) / memory.mask.sum(1, keepdim=True)  # nothing is behind the mask
        return self.length(mean).float().log_softmax(-1)

    def propose(
        self, memory: Memory, number: int, generators: Sequence[Any] | None = None, mean: bool = False
    ) -> Canvas:
        best = self.lengths(memory).topk(min(number, self.options.longest), -1)
        rest = number - best.indices.size(1)  # more candidates than lengths: the last one again
        chosen, price = (torch.cat([each, each[:, -1:].expand(-1, rest)], 1) for each in (best.indices, best.values))
        return self._blank(chosen.flatten() + 1, price.flatten())

    def teach(self, batch: Batch, memory: Memory) -> tuple[Canvas, Tensor]:
        words = (batch.target_length - 1).clamp_min(1)
        price = self.lengths(memory).gather(1, words[:, None] - 1)[:, 0]
        return self._blank(words, price), -price.sum()

    def lesson(self, batch: Batch, memory: Memory) -> tuple[Canvas, Tensor]:
        canvas, loss = self.teach(batch, memory)
        if not self.training:
            return canvas, loss
        number = (uniform(canvas.length.shape, canvas.length.device) * canvas.length).long() + 1
        hidden = draw(canvas.mask, number)
        words = batch.target[:, : hidden.size(1)]
        return self.hide(canvas, words, hidden), loss

    def hide(self, canvas: Canvas, tokens: Int[Tensor, "N T"], hidden: Tensor) -> Canvas:
        shown = tokens.masked_fill(hidden, HIDDEN).masked_fill(~canvas.mask, PAD)
        return Canvas(shown, canvas.length, canvas.price, asked=hidden)

    @staticmethod
    def _blank(length: Int[Tensor, "N"], price: Float[Tensor, "N"]) -> Canvas:
        """So many hidden words."""
        places = padding_mask(length, int(length.amax()))
        return Canvas(torch.where(places, HIDDEN, PAD), length, price)
