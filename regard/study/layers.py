"""Table 1 of Vaswani et al. 2017, measured: what each kind of layer costs, and how far apart it leaves positions.

Five sweeps change one number at a time: the length n of attention alone, the length n, the width d and the kernel k of
whole layers, and the neighbourhood r of restricted attention. Exponents are fitted to them. Counts that need no clock,
the sequential operations and the path lengths, are taken from gradient graphs of small networks.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from pydantic import Field, model_validator

from regard.config import Options, Positive
from regard.nn.attention import MultiHead
from regard.nn.recurrent import CellKind
from regard.nn.self_attention import band
from regard.study.cost import MODES, Case, Cost, Mode, measure, split_by_memory
from regard.study.fit import find_law, fit_exponent, fit_line
from regard.study.path import path_length, sequential_operations
from regard.study.subject import ALONE, SUBJECTS, WHOLE, Size, Subject, make_operation

COUNTED = ("attention", "restricted", "recurrence", "convolution", "dilated")  # unfused attention has the same graph
LETTERS = {"restricted": "r", "convolution": "k", "dilated": "k"}
SMALL = 2  # width of the networks whose gradients are only asked whether they are zero
Tick = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


class Settings(Options):
    """What is measured; everything else follows."""

    lengths: tuple[Positive, ...] = (64, 128, 256, 512, 1024, 2048, 4096)  # of whole layers
    operator_lengths: tuple[Positive, ...] = (512, 1024, 2048, 4096, 8192)  # of attention alone
    key_width: Positive = 64  # d_k of attention alone, which has one head
    width: Positive = 256  # of whole layers, where n, k or r changes
    heads: Positive = 4
    kernel: Positive = 3
    neighbourhood: Positive = 32  # r: half of it on either side
    batch: Positive = 1
    cell: CellKind = "lstm"
    length: Positive = 512  # where d or k changes; four times that where r does
    kernels: tuple[Positive, ...] = (3, 5, 9, 17)
    neighbourhoods: tuple[Positive, ...] = (32, 64, 128, 256)
    repeat: Positive = 5  # rounds
    least_seconds: float = Field(default=0.02, gt=0)  # of one timing; a shorter operation is repeated within it
    path_lengths: tuple[Positive, ...] = (16, 32, 64, 128)
    path_kernels: tuple[Positive, ...] = (3, 5, 9)
    path_neighbourhoods: tuple[Positive, ...] = (8, 16, 32)
    step_lengths: tuple[Positive, ...] = (64, 128, 256)  # where sequential operations are counted

    @model_validator(mode="after")
    def _check(self) -> "Settings":
        for name, values in self:
            if isinstance(values, tuple) and (len(values) < 2 or any(a >= b for a, b in pairwise(values))):
                told = ", ".join(map(str, values))
                raise ValueError(f"{name} must be two or more ascending numbers, found {told or 'none'}")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided into {self.heads} heads")
        if self.neighbourhood % 2:
            raise ValueError(f"neighbourhood must be even, half on either side, found {self.neighbourhood}")
        if self.kernel < 2:
            raise ValueError(f"kernel must be above 1, found {self.kernel}: it would see nothing but one position")
        return self

    @property
    def widths(self) -> list[int]:
        """From a quarter of the width to twice the width, each divisible by the heads."""
        quarters = [part * self.width // 4 // self.heads * self.heads for part in (1, 2, 4, 8)]
        return sorted({max(width, self.heads) for width in quarters})


QUICK: dict[str, Any] = {  # the same in seconds, too small for the exponents to mean much
    "lengths": (32, 64, 128),
    "operator_lengths": (128, 256, 512),
    "width": 32,
    "length": 64,
    "kernels": (3, 5),
    "neighbourhoods": (32, 64),
    "repeat": 2,
    "least_seconds": 0.001,
    "path_lengths": (8, 16, 32),
    "path_neighbourhoods": (8, 16),
    "step_lengths": (64, 128),
}


@dataclass(frozen=True)
class Sweep:
    """Cases in which one number changes."""

    by: str  # its letter: n, d, k or r
    subjects: Sequence[str]
    sizes: dict[int, Size]  # by that number

    @property
    def cases(self) -> list[Case]:
        """All of them, small ones first."""
        return [Case(subject, size) for size in self.sizes.values() for subject in self.subjects]


def plan(settings: Settings) -> dict[str, Sweep]:
    """The five sweeps."""
    size = Size(
        settings.length, settings.width, settings.heads, settings.kernel, settings.neighbourhood, settings.batch,
        settings.cell,
    )  # fmt: skip
    alone = replace(size, width=settings.key_width, heads=1)
    far = replace(size, length=4 * settings.length)
    return {
        "operator": Sweep("n", ALONE, {n: replace(alone, length=n) for n in settings.operator_lengths}),
        "length": Sweep("n", WHOLE, {n: replace(size, length=n) for n in settings.lengths}),
        "width": Sweep("d", [*WHOLE, *ALONE], {d: replace(size, width=d) for d in settings.widths}),
        "kernel": Sweep("k", ["convolution", "dilated"], {k: replace(size, kernel=k) for k in settings.kernels}),
        "neighbourhood": Sweep(
            "r", ["restricted", "restricted alone"],
            {r: replace(far, neighbourhood=r) for r in settings.neighbourhoods},
        ),
    }  # fmt: skip


def study(settings: Settings, tick: Tick) -> dict[str, Any]:
    """Everything that is measured, as plain values."""
    sweeps = plan(settings)
    every = list(dict.fromkeys(case for sweep in sweeps.values() for case in sweep.cases))
    fitting, skipped = split_by_memory(every)
    total = len(fitting) * len(MODES) * (settings.repeat + 1)
    done = iter(range(1, total + 1))
    costs = measure(
        fitting, settings.repeat, settings.least_seconds, lambda: tick("time and memory", next(done), total)
    )
    return {
        "settings": settings.model_dump(mode="json"),
        "layers": {name: describe(subject) for name, subject in SUBJECTS.items()},
        "sweeps": {name: tell_sweep(sweep, costs) for name, sweep in sweeps.items()},
        "skipped": [{"layer": case.subject, **asdict(case.size)} for case in skipped],
        "difference": masked_difference(sweeps["operator"], [case.size for case in skipped]),
        "steps": count_steps(settings, tick),
        "paths": count_paths(settings, tick),
    }


def describe(subject: Subject) -> dict[str, Any]:
    """What the paper says of a layer."""
    about = asdict(subject)
    return {key: about[key] for key in ("title", "cost", "law", "steps", "path")}


def tell_sweep(sweep: Sweep, costs: dict[Case, dict[Mode, Cost]]) -> dict[str, Any]:
    """What was measured of every layer at every size, and the exponents."""
    layers = {}
    for subject in sweep.subjects:
        found = {x: costs[case] for x, size in sweep.sizes.items() if (case := Case(subject, size)) in costs}
        layers[subject] = {mode: _tell_mode({x: cost[mode] for x, cost in found.items()}) for mode in MODES}
    return {"by": sweep.by, "layers": layers}


def _tell_mode(costs: dict[int, Cost]) -> dict[str, Any]:
    points = [
        {"at": x, "seconds": cost.seconds, "spread": cost.spread, "rounds": list(cost.rounds), "bytes": cost.bytes}
        for x, cost in costs.items()
    ]
    told: dict[str, Any] = {"points": points, "time": None, "memory": None}
    if len(points) > 1:
        told["time"] = asdict(fit_exponent([(x, cost.seconds) for x, cost in costs.items()]))
        told["memory"] = asdict(fit_exponent([(x, cost.bytes) for x, cost in costs.items()]))
    return told


def masked_difference(sweep: Sweep, too_large: Sequence[Size]) -> dict[str, Any]:
    """Largest difference between restricted attention and full attention behind a mask, output and gradients alike."""
    lengths, largest = [], 0.0
    for n, size in sweep.sizes.items():
        if size not in too_large:
            lengths.append(n)
            largest = max(largest, _difference(size))
    return {"largest": largest, "lengths": lengths}


def _difference(size: Size) -> float:
    restricted = make_operation("restricted alone", size)
    square = MultiHead(size.width, size.heads)
    square.fused = False
    radius = size.neighbourhood // 2
    pattern = band(size.length, size.length, 0, radius, radius)
    query, keys, values = restricted.inputs
    outputs = [restricted.function(query, keys, values), square.attend(query, keys, values, None, pattern)]
    weights = torch.linspace(-1, 1, outputs[0].numel()).view_as(outputs[0])
    both = [[output, *torch.autograd.grad(output, restricted.inputs, weights)] for output in outputs]
    return max(float((one - other).abs().max().detach()) for one, other in zip(*both, strict=True))


def count_steps(settings: Settings, tick: Tick) -> dict[str, Any]:
    """Sequential operations of one layer at several lengths, and how they grow."""
    found = {}
    for place, name in enumerate(COUNTED):
        tick("sequential operations", place + 1, len(COUNTED))
        counts = []
        for n in settings.step_lengths:
            size = Size(n, 2 * SMALL, kernel=settings.kernel, neighbourhood=8, cell=settings.cell)
            counts.append((n, sequential_operations(name, size)))
        constant, slope = fit_line(counts)
        law = find_law([(n, 0, count) for n, count in counts])
        found[name] = {"counts": counts, "constant": constant, "slope": slope, "law": law.name}
    return found


def count_paths(settings: Settings, tick: Tick) -> dict[str, Any]:
    """Longest paths at several lengths, kernels and neighbourhoods, and the law they follow."""
    parameters = {"k": settings.path_kernels, "r": settings.path_neighbourhoods, "": (0,)}
    found = {}
    for place, name in enumerate(COUNTED):
        tick("path lengths", place + 1, len(COUNTED))
        letter = LETTERS.get(name, "")
        counts = []
        for parameter in parameters[letter]:
            chosen: dict[str, int] = {"": {}, "k": {"kernel": parameter}, "r": {"neighbourhood": parameter}}[letter]
            for n in settings.path_lengths:
                size = Size(n, SMALL, cell=settings.cell, **chosen)  # type: ignore[arg-type]
                counts.append((n, parameter, path_length(name, size)))
        found[name] = {"letter": letter, "counts": counts, "law": asdict(find_law(counts, letter))}
    return found
