"""Path lengths and sequential operations, exact for small networks."""

import math

import pytest
import torch

from regard.nn import self_attention
from regard.study.path import longest_chain, path_length, positions_seen, sequential_operations
from regard.study.subject import SUBJECTS, Layer, Size, Subject


@pytest.mark.parametrize("n", [2, 3, 9, 16])
def test_self_attention_joins_all_positions_at_once(n):
    assert path_length("attention", Size(n, 2)) == path_length("unfused", Size(n, 2)) == 1


@pytest.mark.parametrize("cell", ["vanilla", "gru", "lstm"])
@pytest.mark.parametrize("n", [2, 5, 16])
def test_a_recurrence_takes_a_step_for_every_position(n, cell):
    assert path_length("recurrence", Size(n, 2, cell=cell)) == n


@pytest.mark.parametrize(("n", "k"), [(2, 2), (9, 2), (9, 3), (10, 3), (16, 5), (16, 17)])
def test_convolutions_add_their_windows(n, k):
    assert path_length("convolution", Size(n, 2, kernel=k)) == math.ceil((n - 1) / (k - 1))


@pytest.mark.parametrize(("n", "k", "layers"), [(8, 2, 3), (9, 2, 4), (9, 3, 2), (10, 3, 3), (27, 3, 3), (25, 5, 2)])
def test_dilated_convolutions_multiply_them(n, k, layers):
    assert path_length("dilated", Size(n, 2, kernel=k)) == layers


@pytest.mark.parametrize(("n", "r"), [(9, 2), (9, 4), (10, 4), (16, 8), (16, 32)])
@pytest.mark.parametrize("block", [4, 32])  # in blocks, and as a mask on the square
def test_restricted_attention_adds_its_radius(n, r, block, monkeypatch):
    monkeypatch.setattr(self_attention, "BLOCK", block)
    assert path_length("restricted", Size(n, 2, neighbourhood=r)) == math.ceil((n - 1) / (r // 2))


def test_what_joins_nothing_is_an_error(monkeypatch):
    still = Subject("still", lambda size, depth: Layer(torch.nn.Identity(), lambda x: x * 1), "", {}, "", "")
    monkeypatch.setitem(SUBJECTS, "still", still)
    monkeypatch.setattr("regard.study.path.MOST_LAYERS", 4)
    with pytest.raises(RuntimeError, match="still: 4 layers do not join 3 positions"):
        path_length("still", Size(3, 2))


def test_positions_seen():
    x = torch.ones(3, 3, 1, requires_grad=True)
    assert positions_seen(x, x.cumsum(1)).tolist() == torch.ones(3, 3).tril().bool().tolist()


@pytest.mark.parametrize("name", ["attention", "restricted", "convolution", "dilated"])
def test_most_layers_do_all_positions_at_once(name):
    counts = {sequential_operations(name, Size(n, 4, neighbourhood=8)) for n in (40, 80, 160)}
    assert len(counts) == 1


@pytest.mark.parametrize("cell", ["vanilla", "gru", "lstm"])
def test_a_recurrence_does_them_one_after_another(cell):
    counts = [sequential_operations("recurrence", Size(n, 4, cell=cell)) for n in (10, 20, 30)]
    assert counts[2] - counts[1] == counts[1] - counts[0] >= 10


def test_the_longest_chain_counts_operations():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    assert longest_chain((y + (y * 3).exp()).grad_fn) == 4  # times, times, exp, plus
    assert longest_chain(y.grad_fn) == 1
    for _ in range(3000):  # deeper than Python's stack
        y = y + 1
    assert longest_chain(y.grad_fn) == 3001
