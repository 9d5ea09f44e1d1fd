"""How far apart positions are, and what must wait for what: found in the gradient graphs of real networks.

Maximum path length: the number of layers, or of steps of a recurrence, between the input and the output position
that are farthest apart. A stack is made deeper until the gradient of every output position reaches every input
position it may see: a gradient of exactly zero says that there is no path. In a recurrence, written out step by step,
the shortest way through the gradient graph from the last state to the first input is counted in steps.

Sequential operations: the longest chain of operations in the gradient graph, each of which needs the result of the one
before. The graph is the record of what was executed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.nn.recurrent import Recurrent
from regard.study.subject import SEED, SUBJECTS, Size, build_layers, first_state

MOST_LAYERS = 4096  # more would be a layer that lets nothing pass
Node = Any  # of the gradient graph: torch has no public type


def path_length(name: str, size: Size) -> int:
    """The longest path between an input and an output position."""
    if name == "recurrence":
        return _steps_between(size)
    outputs = [_rows(size)]  # the input, and the output of every layer
    depth = 0
    while not _all_seen(name, outputs):
        if depth >= MOST_LAYERS:
            raise RuntimeError(f"{SUBJECTS[name].title}: {depth} layers do not join {size.length} positions")
        layers = build_layers(name, size, max(1, 2 * depth))
        for layer in layers[depth:]:  # those before are the same again
            layer.module.double()
            outputs.append(layer.function(outputs[-1]))
        depth = len(layers)
    low, high = depth // 2, depth  # a window never shrinks with depth, and half of them were too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _all_seen(name, outputs[: middle + 1]) else (middle, high)
    return high


def _rows(size: Size) -> Tensor:
    """The same sequence once for every output position, to differentiate each by itself in one pass.

    In double precision: a gradient through a hundred layers is small, and must not become zero for that.
    """
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(1, size.length, size.width, generator=generator, dtype=torch.float64)
    return x.repeat(size.length, 1, 1).requires_grad_()


def _all_seen(name: str, outputs: Sequence[Tensor]) -> bool:
    """Whether every input position has a part in every position of the last output that may see it."""
    if len(outputs) == 1:
        return False
    seen = positions_seen(outputs[0], outputs[-1])
    return bool((seen | torch.ones_like(seen).triu(1)).all() if SUBJECTS[name].causal else seen.all())


def positions_seen(x: Tensor, output: Tensor) -> Tensor:
    """[n,n]: True where an output position (row) has a gradient to an input position; row t is taken from row t."""
    own = output.diagonal(dim1=0, dim2=1)  # [D,n]: position t of row t
    (gradient,) = torch.autograd.grad(own.sum(), x, retain_graph=True)
    return gradient.ne(0).any(-1)


def _steps_between(size: Size) -> int:
    """Steps on the shortest way from the last state back to the first input."""
    first, last, step_of = _written_out(size)
    waiting, seen, passed = [(last, size.length - 1)], set(), 1
    while waiting:  # one step farther back in every round
        near, far = waiting, []
        while near:
            node, step = near.pop()
            if node is first:
                return passed
            if node not in seen:
                seen.add(node)
                for before in inputs_of(node):
                    there = step_of.get(before, step)
                    (near if there == step else far).append((before, there))
        waiting, passed = far, passed + 1
    raise RuntimeError("the last state of the recurrence does not depend on the first input")


def _written_out(size: Size) -> tuple[Node, Node, dict[Node, int]]:
    """A recurrence step by step: the first input, the last output, and which step made which part of a state."""
    recurrent = build_layers("recurrence", size, 1)[0].module
    assert isinstance(recurrent, Recurrent)
    inputs = [torch.ones(size.batch, size.width, requires_grad=True) * 1 for _ in range(size.length)]  # a node for each
    walk = recurrent.walk(torch.empty(size.batch, size.length, 0), first_state(size))  # nothing is known beforehand
    step_of: dict[Node, int] = {}
    output = inputs[0]
    for number, x in enumerate(inputs):
        output = walk.step(number, x)
        for stacked in walk.state:  # the parts of a state, each of one layer
            step_of |= dict.fromkeys(inputs_of(stacked.grad_fn), number)
    return inputs[0].grad_fn, output.grad_fn, step_of


def sequential_operations(name: str, size: Size) -> int:
    """Operations of one layer that must follow one another."""
    if name == "recurrence":
        return longest_chain(_written_out(size)[1])
    layer = build_layers(name, size, 1)[0]
    x = torch.ones(size.batch, size.length, size.width, requires_grad=True)
    return longest_chain(layer.function(x).grad_fn)


def inputs_of(node: Node) -> Iterable[Node]:
    """The nodes whose results an operation took."""
    return [before for before, _ in node.next_functions if before is not None]


def longest_chain(last: Node) -> int:
    """Operations on the longest way back from a result; inputs and weights are none."""
    depth: dict[Node, int] = {}
    waiting = [last]
    while waiting:  # not by recursion: a recurrence is deeper than Python's stack
        node = waiting[-1]
        before = inputs_of(node)
        missing = [each for each in before if each not in depth]
        if missing:
            waiting.extend(missing)
            continue
        waiting.pop()
        is_leaf = hasattr(node, "variable")  # accumulates the gradient of an input or a weight
        depth[node] = 0 if is_leaf else 1 + max((depth[each] for each in before), default=0)
    return depth[last]
