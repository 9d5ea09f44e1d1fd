"""One update of the weights, as a pure function of (weights, optimiser, batches, seed, step).

Before update s all generators are seeded from (seed, s, rank), so that nothing of the steps before is needed to
repeat it. Gradients are those of the mean loss over all target tokens of the update's batches, then clipped by
their global norm.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from regard.config import Train
from regard.data.batch import Batch
from regard.memory import keep_memory
from regard.training.optim import make_optimiser, rate, set_rate
from regard.training.parts import Computed, Parts

LARGE = 12_000_000  # parameters; with more, the gradients of every thread and memory that is kept would be too much
TRAINING, VALIDATION = 0, 1  # separate streams of random numbers


class Objective(Protocol):
    """What is trained: a model, and how bad it is on a batch."""

    @property
    def model(self) -> nn.Module:
        """The module whose parameters are trained and saved."""
        ...

    def loss(self, batch: Batch) -> tuple[Tensor, int]:
        """The sum of the loss over the real target tokens, and the number of these tokens."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What an update did; its numbers are on the device until somebody reads them."""

    step: int
    batches: Sequence[Batch]
    tokens: int
    rate: float
    numbers: Tensor  # sum of the loss over the tokens; norm of the gradient before clipping

    def read(self) -> tuple[float, float]:
        """Loss and norm, waiting for the device. Where one is not finite, the weights are as before."""
        loss, norm = self.numbers.tolist()
        return loss, norm


def seed_generators(seed: int, step: int, device: torch.device, stream: int = TRAINING, rank: int = 0) -> None:
    """Seed torch, Python and numpy from (seed, step, rank)."""
    words = np.random.SeedSequence([seed, step, stream, rank]).generate_state(8)
    if device.type == "cpu":
        torch.default_generator.manual_seed(joined(words))  # 300 times faster than seeding every kind of device
    else:
        torch.manual_seed(joined(words))
    random.seed(joined(words[2:]))
    np.random.seed(words[4:])  # noqa: NPY002 (a model may use the old generator)


def joined(words: np.ndarray) -> int:
    """The first two words of 32 bits as one number."""
    return int(words[0]) << 32 | int(words[1])


class Updater:
    """Forward, backward, clipping and the optimiser's step."""

    def __init__(self, objective: Objective, options: Train, width: int, seed: int) -> None:
        self.model = objective.model
        self.optimiser = make_optimiser(self.model, options)
        self._options = options
        self._width = width
        self._seed = seed
        self._parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self._device = self._parameters[0].device
        self._half = chooses_bfloat16(options, self._device)
        self._parts: Parts | None = None
        self._loss: Callable[[Batch], tuple[Tensor, int]] = objective.loss
        if chooses_compile(options, self._device):
            self._loss = torch.compile(objective.loss, dynamic=True)
        elif self._device.type == "cpu" and getattr(objective.model, "in_parts", False) and self._is_small:
            keep_memory()  # threads that ask for pages side by side wait for each other
            self._parts = Parts(self._compute, width, torch.get_num_threads())

    @property
    def _is_small(self) -> bool:
        return sum(parameter.numel() for parameter in self._parameters) <= LARGE

    def update(self, batches: Sequence[Batch], step: int, scale: float = 1.0) -> Outcome:
        """Update the weights by the batches of step `step`, unless the loss or the gradient is not finite.

        That is decided on the device, so that nobody waits for it here.
        """
        seed_generators(self._seed, step, self._device)
        self.optimiser.zero_grad(set_to_none=True)
        total, tokens = self._backward(batches, step)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = get_total_norm(gradients, foreach=True).float() / max(1, tokens)
        numbers = torch.stack([total.float(), norm])
        torch._foreach_mul_(gradients, self._shrink(norm) / max(1, tokens))  # pyright: ignore
        present = rate(step, self._options, self._width, scale)
        set_rate(self.optimiser, present)
        self._apply(numbers.isfinite().all())
        self.optimiser.zero_grad(set_to_none=True)
        return Outcome(step, batches, tokens, present, numbers)

    def time_update(self, batches: Sequence[Batch]) -> float:
        """Seconds a batch takes, measured without changing anything; the first batch only warms up."""
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        times = [time.perf_counter()]
        for batch in [batches[0], *batches]:
            self._backward([batch], 0)[0].item()
            self.optimiser.zero_grad(set_to_none=True)
            times.append(time.perf_counter())
        for buffer, before in buffers:
            buffer.copy_(before)
        return (times[-1] - times[1]) / len(batches)

    def _backward(self, batches: Sequence[Batch], step: int) -> tuple[Tensor, int]:
        """Sum of the loss and tokens of the batches; the gradients are with the parameters."""
        if self._parts is None:
            total, tokens = torch.zeros((), device=self._device), 0
            for batch in batches:
                loss, count = self._forward(batch)
                loss.backward()
                total, tokens = total + loss.detach(), tokens + count
            return total, tokens
        loss, tokens, gradients = self._parts.sum(batches, np.random.SeedSequence([self._seed, step, TRAINING, 0]))
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        return loss, tokens

    def _forward(self, batch: Batch) -> tuple[Tensor, int]:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._half):
            return self._loss(batch)

    def _compute(self, batch: Batch) -> Computed:
        loss, tokens = self._forward(batch)
        return loss.detach(), tokens, [*torch.autograd.grad(loss, self._parameters, allow_unused=True)]

    def _apply(self, finite: Tensor) -> None:
        """The optimiser's step, if it is `finite`."""
        if self.optimiser.defaults.get("fused"):
            self.optimiser.found_inf = (~finite).float()  # pyright: ignore (how a fused optimiser is told to do nothing)
            self.optimiser.step()
        elif finite:
            self.optimiser.step()

    def _shrink(self, norm: Tensor) -> Tensor:
        clip = self._options.clip
        return (clip / (norm + 1e-6)).clamp_max(1.0) if clip else torch.ones_like(norm)


def chooses_bfloat16(options: Train, device: torch.device) -> bool:
    """Are matrix products done in bfloat16? "auto": where the device is fast at it."""
    if options.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return options.precision == "bfloat16"


def chooses_compile(options: Train, device: torch.device) -> bool:
    """Is the loss compiled? "auto": on CUDA only; on CPUs it loses."""
    return options.compile == "on" or (options.compile == "auto" and device.type == "cuda")
