"""What all adapters share: a lean training step, and the two jobs that are measured.

A peer is treated kindly: it gets ready tensors, the fused Adam, and no loader, log or checkpoint to pay for.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.made import load_batches, pad, typical
from benchmarks.measure import Figures, Job, forget_peak, memory, rate
from benchmarks.shapes import SHAPES, Shape

Rows = Sequence[Any]
IGNORED = -100  # label of padding
Loss = Callable[[Any], Tensor]  # what `prepare` made of a batch → summed loss
Prepare = Callable[[Rows, Rows], Any]  # sources, targets → a batch as the toolkit wants it
Search = Callable[[Rows, int, int], Sequence[Sequence[Any]]]  # sources, beam, length → outputs


def labels(targets: Rows, end: int) -> Tensor:
    """What the decoder should say, padding marked."""
    return torch.as_tensor(pad(targets, IGNORED, None, end))


def smoothed(logits: Tensor, wanted: Tensor, shape: Shape) -> Tensor:
    """Summed cross-entropy with smoothed labels."""
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED, label_smoothing=shape.smoothing, reduction="sum"
    )


def train(job: Job, build: Callable[[Shape], tuple[nn.Module, Prepare, Loss]]) -> Figures:
    """Tokens per second over whole passes of the batches, after one pass to warm up."""
    start(job)
    shape = SHAPES[job["shape"]]
    rows = load_batches(Path(job["batches"]))
    tokens = sum(len(row) + 1 for batch in rows for side in batch for row in side)
    counts = [sum(len(row) + 1 for row in targets) for _, targets in rows]
    model, prepare, loss = build(shape)
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    batches = [prepare(*batch) for batch in rows]
    del rows
    model.train()
    losses: list[float] = []

    def once() -> None:
        for batch, count in zip(batches, counts, strict=True):
            mean = loss(batch) / count
            mean.backward()
            nn.utils.clip_grad_norm_(parameters, shape.clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append(float(mean.detach()))

    built = memory("VmRSS")
    forget_peak()
    speed = rate(once, tokens, job["seconds"], least=1)
    if not math.isfinite(losses[-1]):
        raise RuntimeError(f"the loss is {losses[-1]}")
    return {
        "tokens_per_second": speed,
        "memory": memory("VmHWM") - built,
        "peak": memory("VmHWM"),
        "parameters": sum(each.numel() for each in parameters),
        "loss": losses[-1],
    }


def decode(job: Job, build: Callable[[Shape], Search]) -> Figures:
    """Target tokens per second for each (batch, beam), every output exactly `length` tokens long."""
    start(job)
    shape, length = SHAPES[job["shape"]], job["length"]
    search = build(shape)
    figures: Figures = {}
    for batch, beam in job["cases"]:
        sources = typical(batch, job["seed"], shape.vocabulary)
        once = partial(search, sources, beam, length)
        if {len(output) for output in once()} != {length}:
            raise RuntimeError("an output is not as long as it must be")
        figures[f"{batch}x{beam}"] = rate(once, batch * length, job["seconds"])
    return figures


def start(job: Job) -> None:
    """Threads and seed."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])


def refill(model: nn.Module) -> None:
    """Start values for toolkits that leave them to their training program."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif "norm" in name and name.endswith("weight"):
            nn.init.ones_(parameter)
        else:
            nn.init.zeros_(parameter)
