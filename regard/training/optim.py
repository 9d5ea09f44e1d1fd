"""Optimisers and learning-rate schedules.

A schedule is a pure function of the step (counted from 1), so that a resumed run needs no state for it; only
`plateau` depends on the validations, by a factor that the state of the run holds. `noam` is the schedule of
"Attention Is All You Need", section 5.3:  rate × D^-0.5 × min(step^-0.5, step × warmup^-1.5).
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Train
from regard.errors import ConfigError, ModelError


def rate(step: int, options: Train, width: int, scale: float = 1.0) -> float:
    """The learning rate of update `step`; `scale` is the factor of the plateau schedule."""
    warmup = max(1, options.warmup)
    if options.schedule == "noam":
        return options.rate * width**-0.5 * min(step**-0.5, step * warmup**-1.5)
    if step <= options.warmup:
        return options.rate * step / warmup
    if options.schedule == "inverse_sqrt":
        return options.rate * math.sqrt(warmup / step)
    if options.schedule == "cosine":
        done = min(1.0, (step - options.warmup) / max(1, options.max_steps - options.warmup))
        return options.minimum_rate + (options.rate - options.minimum_rate) * 0.5 * (1 + math.cos(math.pi * done))
    if options.schedule == "plateau":
        return max(options.minimum_rate, options.rate * scale)
    return options.rate


def make_optimiser(model: nn.Module, options: Train) -> torch.optim.Optimizer:
    """The optimiser, fused where it and the device can; biases, norms and other vectors are not decayed."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ConfigError("the model has no parameters to train")
    groups = [
        {"params": [item for item in parameters if item.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [item for item in parameters if item.dim() <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if options.optimiser == "adadelta":  # has no fused kernel
        return torch.optim.Adadelta(groups, lr=options.rate, rho=options.decay, eps=options.epsilon)
    if options.optimiser in ("sgd", "nesterov"):
        kind = torch.optim.SGD
        own: dict[str, Any] = {"momentum": options.momentum, "nesterov": options.optimiser == "nesterov"}
    else:
        kind = torch.optim.AdamW if options.optimiser == "adamw" else torch.optim.Adam
        own = {"betas": options.betas, "eps": options.epsilon}
    try:
        optimiser = kind(groups, lr=options.rate, fused=True, **own)
    except RuntimeError:  # this device or type has no fused kernel
        optimiser = kind(groups, lr=options.rate, **own)
    if own.get("momentum"):  # zeros, since a first step that is skipped would leave them undefined
        for parameter in parameters:
            optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter, requires_grad=False)
    return optimiser


def set_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    """Use this learning rate from now on."""
    for group in optimiser.param_groups:
        group["lr"] = value


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state under flat names: `<parameter>/exp_avg`, `…/exp_avg_sq`, `…/step`."""
    return {
        f"{name}/{key}": value
        for name, parameter in _trained(model)
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """The reverse of `optimiser_tensors`. A parameter that was never updated has no state."""
    parameters = dict(_trained(model))
    fused = bool(optimiser.param_groups[0].get("fused"))
    optimiser.state.clear()
    for flat, tensor in tensors.items():
        name, _, key = flat.rpartition("/")
        if name not in parameters:
            raise ModelError(f"optimiser state of an unknown parameter '{name}'")
        parameter = parameters[name]
        if key == "step":
            value = tensor.clone() if not fused else tensor.to(parameter.device, copy=True)
        elif tensor.shape != parameter.shape:
            raise ModelError(f"optimiser state '{flat}': found {list(tensor.shape)}, expected {list(parameter.shape)}")
        else:
            value = torch.zeros_like(parameter, memory_format=torch.preserve_format, requires_grad=False)
            value.copy_(tensor)
        optimiser.state[parameter][key] = value


def _trained(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
