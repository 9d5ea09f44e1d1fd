"""A stack of layers over the positions of one short row: the operations themselves, one after the other.

For a single sentence it takes longer to come from one operation to the next than to compute it. So the layers are gone
through once, and what torch has seen (a trace) is run from then on: nothing is asked any more, no list is looked into.
What is written here is what `sweep.all_parts` does where nothing is behind a mask.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.blocks import activate
from regard.nn.step import norm

EXAMPLE = 4  # positions of the row that is gone through; others have as many as they like
Single = Callable[[Tensor, Tensor, list[Tensor], list[Tensor], list[Tensor]], Tensor]  # as `one_row`, less its weights


def trace_row(
    parts: Sequence[str], weights: list[list[list[Tensor]]], heads: int, pre: bool, activation: str, epsilon: float
) -> Single:
    """`one_row` with all but its first five arguments settled."""
    scale = weights[0][-1][0]  # of the first layer norm
    example, layers = scale.new_zeros(EXAMPLE, len(scale)), max(1, parts.count("memory"), parts.count("places"))
    scores = scale.new_zeros(heads, EXAMPLE, EXAMPLE)
    row = example.unflatten(1, (heads, -1)).transpose(0, 1)
    settled = [[[each.detach() for each in product] for product in own] for own in weights]
    run = partial(one_row, parts=parts, weights=settled, heads=heads, pre=pre, activation=activation, epsilon=epsilon)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that it is old, though nothing else does it without a compiler
        traced: Any = torch.jit.trace(
            lambda *given: run(*given),
            (example, scores, [scores] * layers, [row] * layers, [row] * layers),
            check_trace=False,
        )
    return traced


def one_row(
    x: Float[Tensor, "T D"],
    others: Float[Tensor, "H T T"],  # added to scores: −∞ where a position would look at itself
    glances: list[Float[Tensor, "H T T"]],  # weights of each positional attention
    keys: list[Float[Tensor, "H S d"]],  # of each attention to a memory
    values: list[Float[Tensor, "H S d"]],
    *,
    parts: Sequence[str],
    weights: list[list[list[Tensor]]],  # of each part: those of its products, then those of its layer norm
    heads: int,
    pre: bool,
    activation: str,
    epsilon: float,
) -> Float[Tensor, "T D"]:
    """All positions through all parts."""
    to_places, to_memory = iter(glances), iter(zip(keys, values, strict=True))
    for part, own in zip(parts, weights, strict=True):
        *products, (scale, shift) = own
        y = norm(x, scale, shift, epsilon) if pre else x
        if part == "forward":
            y = activate(affine(products[0], y), activation)
        elif part == "places":
            y = joined(torch.bmm(next(to_places), split(affine(products[1], y), heads)))
        elif part == "memory":
            y = look(split(affine(products[0], y), heads), *next(to_memory))
        else:
            query, key, value = split(affine(products[0], y), 3 * heads).chunk(3)
            y = look(query, key, value, others if part == "others" else None)
        y = affine(products[-1], y).add_(x)
        x = y if pre else norm(y, scale, shift, epsilon)
    return x


def affine(product: list[Tensor], x: Tensor) -> Tensor:
    """Rows of x [T,K] times a weight [K,V], with the bias → [T,V]; few rows do not need the packed form."""
    weight, _, bias = product
    return torch.addmm(bias, x, weight)


def look(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """What queries [H,T,d], which are scaled, find in a memory [H,S,d] → [T,D]."""
    turned = keys.transpose(1, 2)
    scores = torch.bmm(query, turned) if bias is None else torch.baddbmm(bias, query, turned)
    return joined(torch.bmm(scores.softmax(-1), values))


def split(x: Tensor, heads: int) -> Tensor:
    """Vectors [T,D] → [H,T,d]."""
    return x.unflatten(1, (heads, -1)).transpose(0, 1)


def joined(heads: Tensor) -> Tensor:
    """Vectors [H,T,d] → [T,D]."""
    return heads.transpose(0, 1).flatten(1)
