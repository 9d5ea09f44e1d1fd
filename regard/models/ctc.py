"""All words at once by CTC (Libovický and Helcl 2018, "End-to-End Non-Autoregressive Neural Machine Translation with
Connectionist Temporal Classification"), with glancing training (Qian et al. 2021, "Glancing Transformer").

Idea: the decoder has more places than any output needs, k for each source token. Each place holds a word or nothing;
equal neighbours are one word. So neither a length nor fertilities have to be known, and the loss does not mind where
a word stands, only in which order words come.

    loss     = − log Σ_paths Π_t p(place t | x)                  paths: all ways to write y into the places (nn/ctc.py)
    output   = the likeliest token of every place, blanks and repetitions taken out
    glance   places are filled once without a gradient; of the words on the best path for y `glance` × the share
             of wrong places are shown to the decoder, and the loss is that of a second filling

Differs from the papers: places begin with the source word's vector, not with a k-fold projection of its encoding; what
is shown are words, never blanks, and the share stays the same (theirs falls from 0.5 to 0.3). No label smoothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor

from regard.config import Fraction, Several
from regard.data.batch import BOS, EOS, PAD, Batch
from regard.models.base import Memory
from regard.models.parallel import Canvas, Filled, Parallel, copied
from regard.models.transformer import Sizes, Transformer
from regard.nn.attention import padding_mask
from regard.nn.chance import draw
from regard.nn.ctc import NEVER, best_path, collapse, ctc_log_probability, path_prices
from regard.nn.loss import token_prices

BLANK = BOS  # never stands inside an output


class CTC(Parallel):
    """Encoder, and a decoder of k places for each source token."""

    blank = BLANK
    never = (PAD, EOS)

    class Config(Sizes):
        tie: Literal["none", "all"] = "all"  # whether source and output share a table (target words are never read)
        stretch: Several = 3  # places for each source token (k)
        glance: Fraction = 0.0  # × the share of wrong places: of the words so many are shown in training

        @model_validator(mode="after")
        def _check(self) -> "CTC.Config":
            if self.glance and self.tie == "none":
                raise ValueError("glance shows target words to the decoder, which needs tie = 'all'")
            return self

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        whole = Transformer.Config(**options.model_dump(exclude={"stretch", "glance"}))
        super().__init__(whole, (source_vocabulary, target_vocabulary))
        self.options = options

    def propose(
        self, memory: Memory, number: int, generators: Sequence[Any] | None = None, mean: bool = False
    ) -> Canvas:
        return self._places(memory)  # there is only this one

    def teach(self, batch: Batch, memory: Memory) -> tuple[Canvas, Tensor]:
        return self._places(memory), memory.values.new_zeros(())

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        batch = self.tensors(batch)
        memory = self.encode(batch)
        canvas = self._places(memory)
        words, length = batch.target[:, :-1], batch.target_length - 1
        if self.training and self.options.glance:
            canvas = self._glance(canvas, memory, words, length)
        prices, _ = self._prices(self.fill(canvas, memory), canvas, words, length)
        found = ctc_log_probability(prices, words, canvas.length, length)
        fits = found > NEVER / 2  # a target that has too few places teaches nothing, and is not counted
        return -found.masked_fill(~fits, 0).sum(), int(batch.target_length[fits].sum())

    def read(self, tokens: Sequence[int]) -> list[int]:
        return collapse(tokens, BLANK)

    def told(self, batch: Batch, canvas: Canvas, hidden: Float[Tensor, "N T D"]) -> Filled:
        """Words stand at their first places on the best path; the rest of that path is the price."""
        words, length = batch.target[:, :-1], batch.target_length - 1
        prices, _ = self._prices(hidden, canvas, words, length)
        path = best_path(prices, words, canvas.length, length)
        states = 2 * torch.arange(words.size(1), device=path.device) + 1
        there, real = path[:, :, None] == states, padding_mask(length, words.size(1))
        places = there.int().argmax(1)
        steps = prices.gather(2, path[:, :, None])[:, :, 0].masked_fill(~canvas.mask, 0)
        price = steps.sum(1) - steps.gather(1, places).masked_fill(~real, 0).sum(1)
        fits = (there.any(1) | ~real).all(1)
        return Filled(hidden, places, price.clamp_max(0).masked_fill(~fits, NEVER))

    def output(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """No place is filled with what never fills one."""
        logits = super().output(hidden)
        never = torch.tensor(self.never, device=logits.device)
        return logits.index_fill(-1, never, torch.finfo(logits.dtype).min)

    def _places(self, memory: Memory) -> Canvas:
        assert memory.tokens is not None
        tokens, length = copied(memory.tokens, memory.mask.long() * self.options.stretch)
        return Canvas(tokens, length, memory.values.new_zeros(len(length)))

    def _prices(
        self,
        hidden: Float[Tensor, "N T D"],
        canvas: Canvas,
        words: Int[Tensor, "N L"],
        length: Int[Tensor, "N"],
    ) -> tuple[Float[Tensor, "N T Z"], Float[Tensor, "N T"]]:
        """Log-probability of every state of the paths, and of the likeliest token of every place."""
        mask, asked = canvas.mask, with_blank(words)
        index = asked[:, None].expand(-1, mask.size(1), -1)[mask]
        chosen, best = token_prices(hidden[mask].float(), *self.output_weights(), index, self.never)
        prices = chosen.new_zeros(*mask.shape, asked.size(1)).masked_scatter(mask[:, :, None], chosen)
        likeliest = chosen.new_zeros(mask.shape).masked_scatter(mask, best)
        return path_prices(prices[:, :, 1:], prices[:, :, 0], length), likeliest

    @torch.no_grad()
    def _glance(self, canvas: Canvas, memory: Memory, words: Int[Tensor, "N L"], length: Int[Tensor, "N"]) -> Canvas:
        """The canvas with some words of the target: of them `glance` times the share of places that are wrong."""
        prices, likeliest = self._prices(self.fill(canvas, memory), canvas, words, length)
        path = best_path(prices, words, canvas.length, length)
        is_word: Bool[Tensor, "N T"] = (path % 2 == 1) & canvas.mask
        written = with_blank(words).gather(1, torch.where(is_word, path // 2 + 1, 0))
        wrong = ((prices.gather(2, path[:, :, None])[:, :, 0] < likeliest) & canvas.mask).sum(1)
        share = self.options.glance * wrong / canvas.length
        shown = draw(is_word, (share * is_word.sum(1)).long())
        return replace(canvas, tokens=torch.where(shown, written, canvas.tokens))


def with_blank(words: Int[Tensor, "N L"]) -> Int[Tensor, "N M"]:
    """All tokens of the paths of a target: the blank, then its words."""
    return torch.cat([words.new_full((len(words), 1), BLANK), words], 1)
