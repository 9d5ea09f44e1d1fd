"""What is measured: the layers of Table 1 of Vaswani et al. 2017, as this project builds them.

    self-attention               n² · d        every position looks at every other
    restricted self-attention    r · n · d     only at the r/2 positions on either side
    recurrence                   n · d²        one step after another
    convolution                  k · n · d²    k positions side by side
    dilated convolution          k · n · d²    k positions, k^i apart in layer i

A whole layer has its projections, which cost n · d² and are no part of the table; so attention is also measured
alone, with queries, keys and values given. Unfused attention writes out its weights, as it does when they are recorded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.nn.convolution import Convolution
from regard.nn.recurrent import CellKind, Recurrent
from regard.nn.self_attention import SelfAttention

SEED = 1


@dataclass(frozen=True)
class Size:
    """The numbers a cost depends on."""

    length: int  # n
    width: int  # d
    heads: int = 1
    kernel: int = 3  # k
    neighbourhood: int = 32  # r
    batch: int = 1
    cell: CellKind = "lstm"


@dataclass(frozen=True)
class Layer:
    """One layer: its weights, and what it makes of its inputs."""

    module: nn.Module
    function: Callable[..., Tensor]


@dataclass(frozen=True)
class Subject:
    """A kind of layer, and what the paper says of it."""

    title: str
    build: Callable[[Size, int], Layer]  # for a place in a stack, counted from 0
    cost: str  # operations, by the paper
    law: Mapping[str, float]  # their exponents
    steps: str  # operations that must follow one another, by the paper
    path: str  # longest path between two positions, by the paper
    causal: bool = False  # a position sees itself and those before it; else all
    alone: bool = False  # without projections: the inputs are queries, keys and values


@dataclass(frozen=True)
class Operation:
    """A layer with inputs, ready to run."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]


def build_attention(size: Size, depth: int, fused: bool = True, radius: int = 0) -> Layer:
    """Self-attention of all positions, or of those near."""
    module = SelfAttention(size.width, size.heads, radius=radius)
    module.fused = fused
    return Layer(module, lambda x: module(x)[0])


def build_alone(size: Size, depth: int, fused: bool = True, radius: int = 0) -> Layer:
    """The same without projections."""
    module = SelfAttention(size.width, size.heads, radius=radius)
    module.fused = fused
    return Layer(module, lambda query, keys, values: module.attend(query, keys, values, None))


def build_recurrence(size: Size, depth: int) -> Layer:
    """A recurrent layer, all steps by torch's kernel."""
    module = Recurrent(size.cell, size.width, size.width, 1, 0.0)
    state = first_state(size)
    return Layer(module, lambda x: module(x, state)[0])


def first_state(size: Size, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """What a recurrence starts from."""
    zeros = torch.zeros(size.batch, 1, size.width, dtype=dtype)
    return (zeros, zeros) if size.cell == "lstm" else (zeros,)


def build_convolution(size: Size, depth: int, dilated: bool = False) -> Layer:
    """A convolution over a position and those before it, as decoders have it.

    Dilations grow until they would leave the sequence, and then begin again.
    """
    dilations = [1]
    while dilated and dilations[-1] * size.kernel < size.length:
        dilations.append(dilations[-1] * size.kernel)
    module = Convolution(size.width, size.width, size.kernel, dilations[depth % len(dilations)])
    return Layer(module, lambda x: module.behind(x, None)[0])


SQUARE = {"n": 2.0, "d": 1.0}
BAND = {"n": 1.0, "d": 1.0, "r": 1.0}
STEPS = {"n": 1.0, "d": 2.0}
WINDOW = {"n": 1.0, "d": 2.0, "k": 1.0}
SUBJECTS = {
    "attention": Subject("self-attention", build_attention, "n² · d", SQUARE, "1", "1"),
    "unfused": Subject(
        "self-attention, unfused", lambda size, depth: build_attention(size, depth, False), "n² · d", SQUARE, "1", "1"
    ),
    "restricted": Subject(
        "restricted self-attention",
        lambda size, depth: build_attention(size, depth, radius=size.neighbourhood // 2),
        "r · n · d", BAND, "1", "n/r",
    ),
    "recurrence": Subject("recurrence", build_recurrence, "n · d²", STEPS, "n", "n", True),
    "convolution": Subject("convolution", build_convolution, "k · n · d²", WINDOW, "1", "n/k", True),
    "dilated": Subject(
        "dilated convolution",
        lambda size, depth: build_convolution(size, depth, True),
        "k · n · d²", WINDOW, "1", "log_k n", True,
    ),
    "attention alone": Subject("self-attention alone", build_alone, "n² · d", SQUARE, "1", "1", alone=True),
    "unfused alone": Subject(
        "self-attention alone, unfused",
        lambda size, depth: build_alone(size, depth, False),
        "n² · d", SQUARE, "1", "1", alone=True,
    ),
    "restricted alone": Subject(
        "restricted self-attention alone",
        lambda size, depth: build_alone(size, depth, radius=size.neighbourhood // 2),
        "r · n · d", BAND, "1", "n/r", alone=True,
    ),
}  # fmt: skip
WHOLE = [name for name, subject in SUBJECTS.items() if not subject.alone]
ALONE = [name for name, subject in SUBJECTS.items() if subject.alone]


def build_layers(name: str, size: Size, number: int) -> list[Layer]:
    """So many layers of a kind for a stack, with weights from a fixed seed; the caller's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return [SUBJECTS[name].build(size, depth) for depth in range(number)]


def make_operation(name: str, size: Size) -> Operation:
    """A layer and random inputs; a dilated convolution is the second of its stack, as the first has no gaps."""
    layer = build_layers(name, size, 2)[1]
    generator = torch.Generator().manual_seed(SEED)
    if SUBJECTS[name].alone:
        shape, number, weights = (size.batch, size.heads, size.length, size.width // size.heads), 3, ()
    else:
        shape, number, weights = (size.batch, size.length, size.width), 1, tuple(layer.module.parameters())
    inputs = tuple(torch.randn(shape, generator=generator).requires_grad_() for _ in range(number))
    return Operation(layer.function, inputs, weights)
