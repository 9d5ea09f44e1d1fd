"""The tensors of a model as plain dictionaries: taken, put back, lent for a while, averaged.

Only what is saved is handled: parameters and persistent buffers, each once, so that tied weights stay tied.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.errors import ModelError


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name (the model's own tensors, not copies); a shared one occurs once."""
    saved = model.state_dict(keep_vars=True).keys()
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach() for name, tensor in named if name in saved}


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors with memory of their own."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors into the model; names and shapes must be exactly its own."""
    own = model_tensors(model)
    if strange := sorted(own.keys() ^ tensors.keys()):
        kind = "missing" if strange[0] in own else "unknown"
        raise ModelError(f"weights do not fit the model: {kind} tensor '{strange[0]}' ({len(strange)} names differ)")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            found, expected = list(tensors[name].shape), list(tensor.shape)
            raise ModelError(f"weights do not fit the model: '{name}' is {found}, expected {expected}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


@contextmanager
def lent(model: nn.Module, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """The model holds `tensors` inside the block, and its own weights again after it, whatever happens."""
    own = copied(model_tensors(model))
    try:
        load_model(model, tensors)
        yield
    finally:
        load_model(model, own)


def mean(sets: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several weights, in double precision, cast back; whole numbers are taken from the last set."""
    total: dict[str, Tensor] = {}
    last: Mapping[str, Tensor] = {}
    count = 0
    for last in sets:
        count += 1
        for name, tensor in last.items():
            if tensor.is_floating_point():
                total[name] = total[name].add_(tensor) if name in total else tensor.double().clone()
    return {name: (total[name] / count).to(tensor.dtype) if name in total else tensor for name, tensor in last.items()}


class MovingAverage:
    """Exponential moving average of the trained parameters (the buffers are the model's own).

    ema ← d × ema + (1 − d) × weights with d = min(decay, (1 + n) / (10 + n)) at update n, so that the random
    weights of the beginning are forgotten soon.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.own = {name: item.detach() for name, item in model.named_parameters() if item.requires_grad}
        self.tensors = copied(self.own)

    def update(self, step: int) -> None:
        """Take in the weights after update `step`."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages, weights = list(self.tensors.values()), list(self.own.values())
        torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from saved averages."""
        if tensors.keys() != self.tensors.keys():
            raise ModelError("the saved moving average does not fit the model")
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])
