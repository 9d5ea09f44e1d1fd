"""What was traced with one row is what is written there, for rows of all lengths; `test_sweep` has the layers."""

import pytest
import torch

from regard.models.parallel import PARTS, ParallelLayer
from regard.models.transformer import Transformer
from regard.nn.single import EXAMPLE, one_row, trace_row
from regard.nn.sweep import Stack, apart

WIDTH, HEADS = 16, 4


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
@torch.no_grad()
def test_a_trace_serves_rows_and_memories_of_all_lengths(norm, activation):
    torch.manual_seed(1)
    options = Transformer.Config(width=WIDTH, heads=HEADS, feed_forward=24, norm=norm, activation=activation)
    stack = Stack.of([ParallelLayer(options, itself=False, positional=True).eval() for _ in range(2)], PARTS)
    assert stack is not None
    settled = (stack.parts, stack.weights, HEADS, stack.pre, stack.activation, stack.epsilon)
    traced = trace_row(*settled)
    names = ("parts", "weights", "heads", "pre", "activation", "epsilon")
    for length, seen in ((EXAMPLE, EXAMPLE), (2, 9), (11, 1), (30, 17)):
        x = torch.randn(length, WIDTH)
        others = apart(length, x).expand(HEADS, -1, -1)
        glances = [torch.rand(HEADS, length, length) for _ in range(2)]
        keys, values = ([torch.randn(HEADS, seen, WIDTH // HEADS) for _ in range(2)] for _ in range(2))
        before = x.clone()
        wanted = one_row(x, others, glances, keys, values, **dict(zip(names, settled, strict=True)))
        for _ in range(3):  # torch changes a trace after it has run for the first time
            found = traced(x, others, glances, keys, values)
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        assert torch.equal(x, before)
