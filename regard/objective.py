"""What training makes smaller: the likelihood of the targets, or for fine-tuning what a teacher thinks of the outputs.

A frozen teacher belongs to the objective. It is no part of the model and is never saved with it.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.data.batch import EOS, PAD, Batch
from regard.models.base import Autoregressive, Memory, Model, shift_right
from regard.models.nonautoregressive import NonAutoregressive
from regard.models.parallel import Canvas
from regard.nn.attention import padding_mask
from regard.nn.chance import gumbel, uniform


@dataclass(frozen=True)
class LikelihoodObjective:
    """Maximum likelihood with label smoothing: what most models are trained for."""

    model: Model
    smoothing: float

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Summed loss and number of target tokens."""
        return self.model.loss(batch, self.smoothing)


@dataclass(frozen=True)
class ReverseObjective:
    """Fine-tuning by a teacher's view of the model's own outputs (Gu et al. 2018, section 4.2).

    With ŷ the likeliest words under the fertilities f, and p_AR the teacher reading ŷ from left to right:

        R(f)  = − Σ_t Σ_v p(y_t = v | x, f) · log p_AR(v | ŷ_<t, x) − log p_AR(end | ŷ, x)
        loss  = λ · (E_f~p [R(f) − R(f̄)] + R(f of the aligner)) + (1 − λ) · what it was trained for

    f̄ are the mean fertilities. The end counts, since otherwise fewer words would always be better. The first term
    reaches the fertilities by REINFORCE, the second one the words.
    """

    model: NonAutoregressive
    teacher: Autoregressive
    smoothing: float
    weight: float  # λ

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """Summed loss and number of target tokens."""
        learned, count = self.model.loss(batch, self.smoothing)
        batch = self.model.tensors(batch)
        memory = self.model.encode(batch)
        with torch.no_grad():
            judge = self.teacher.encode(batch)
        words = self.reverse(self.model.teach(batch, memory)[0], memory, judge)
        prices = self.model.fertilities(memory)
        fertility = (prices.detach() + gumbel(uniform(prices.shape, prices.device))).argmax(-1)
        drawn = self.model.canvas_of(memory, prices, fertility)
        with torch.no_grad():
            mean = self.model.canvas_of(memory, prices, self.model.mean(prices))
            worse = self.reverse(drawn, memory, judge) - self.reverse(mean, memory, judge)
        own = (worse * drawn.price).sum() + words.sum()
        return self.weight * own + (1 - self.weight) * learned, count

    def reverse(self, canvas: Canvas, memory: Memory, judge: Memory) -> Float[Tensor, "B"]:
        """R for each sentence; words behind the longest output the teacher can read do not count."""
        length = canvas.length.clamp_max((self.teacher.limit or int(canvas.length.max()) + 1) - 1)
        mask = padding_mask(length, canvas.tokens.size(1))
        logits = self.model.output(self.model.fill(canvas, memory)[mask]).float()
        with torch.no_grad():
            tokens = torch.full_like(canvas.tokens, PAD).masked_scatter(mask, logits.argmax(-1))
            read = F.pad(tokens, (0, 1), value=PAD)[:, : int(length.max()) + 1]  # and the end
            hidden, _ = self.teacher.decode(shift_right(read), judge)
            reading = padding_mask(length + 1, read.size(1))
            prices = self.teacher.output(hidden[reading]).float().log_softmax(-1)
            is_word = padding_mask(length, read.size(1))[reading]
            wanted, ending = prices[is_word], prices[~is_word, EOS]
        costs = -(F.softmax(logits, -1) * wanted).sum(-1)
        return costs.new_zeros(mask.shape).masked_scatter(mask, costs).sum(1) - ending
