"""The layers that are measured are those of the project, at the sizes that are said."""

import pytest
import torch

from regard.nn.convolution import Convolution
from regard.study.subject import ALONE, SUBJECTS, WHOLE, Size, build_layers, make_operation

SIZE = Size(40, 8, 2, 3, 4, 2)


@pytest.mark.parametrize("name", SUBJECTS)
def test_an_operation_keeps_the_shape_of_its_inputs(name):
    operation = make_operation(name, SIZE)
    assert operation.function(*operation.inputs).shape == operation.inputs[0].shape
    assert operation.inputs[0].shape == ((2, 2, 40, 4) if name in ALONE else (2, 40, 8))
    assert len(operation.inputs) == (3 if name in ALONE else 1)
    assert bool(operation.weights) == (name in WHOLE)


@pytest.mark.parametrize("cell", ["vanilla", "gru", "lstm"])
def test_every_cell_can_be_measured(cell):
    operation = make_operation("recurrence", Size(5, 4, cell=cell))
    assert operation.function(*operation.inputs).shape == (1, 5, 4)


def test_operations_are_the_same_every_time_and_leave_the_generator_alone():
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    first, second = (make_operation("attention", SIZE) for _ in range(2))
    assert torch.equal(torch.rand(3), wanted)
    assert torch.equal(first.function(*first.inputs), second.function(*second.inputs))


@pytest.mark.parametrize(("fused", "unfused"), [("attention", "unfused"), ("attention alone", "unfused alone")])
def test_unfused_attention_is_the_same_attention(fused, unfused):
    first, second = (make_operation(name, SIZE) for name in (fused, unfused))
    torch.testing.assert_close(first.function(*first.inputs), second.function(*second.inputs), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("length", "dilations"), [(28, [1, 3, 9, 27, 1]), (27, [1, 3, 9, 1, 3]), (2, [1, 1, 1, 1, 1])])
def test_dilations_stay_within_the_sequence(length, dilations):
    layers = build_layers("dilated", Size(length, 2), 5)
    found = []
    for layer in layers:
        assert isinstance(layer.module, Convolution)
        found.append(layer.module.convolution.dilation[0])
    assert found == dilations


def test_a_stack_begins_like_a_smaller_one():
    short, long = build_layers("convolution", SIZE, 1), build_layers("convolution", SIZE, 3)
    x = torch.ones(1, 40, 8)
    assert torch.equal(short[0].function(x), long[0].function(x))
