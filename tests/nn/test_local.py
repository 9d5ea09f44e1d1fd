"""Local attention against the equations of Luong 2015, section 3.2, written as loops."""

import math

import pytest
import torch

from regard.nn.attention import General, padding_mask
from regard.nn.local import Local

STEPS, KEYS, WIDTH, MEMORY = 7, 9, 4, 6
LENGTHS = torch.tensor([9, 1, 5])


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make(kind: str, reach: int):
    torch.manual_seed(0)
    attention, local = General(WIDTH, MEMORY), Local(kind, WIDTH, reach)
    for parameter in local.parameters():
        parameter.data *= 2
    memory, mask = randn(3, KEYS, MEMORY), padding_mask(LENGTHS, KEYS)
    return attention, local, (attention.keys(memory), memory, mask), memory


@pytest.mark.parametrize("reach", [1, 2, 4])
@pytest.mark.parametrize("kind", ["monotonic", "predictive"])
@torch.no_grad()
def test_weights_and_contexts_are_those_of_the_paper(kind, reach):
    attention, local, (keys, values, mask), memory = make(kind, reach)
    queries, start, seen = randn(3, STEPS, WIDTH, seed=1), 1, []
    attention.tap = seen.append
    found = local.over(attention, keys, values, mask, start)(queries)
    for row, length in enumerate(LENGTHS.tolist()):
        for t in range(STEPS):
            s_t = queries[row, t]
            centre = min(start + t, length - 1)
            if kind == "predictive":
                centre = length / (1 + math.exp(-(local.outer.weight[0] @ torch.tanh(local.inner.weight @ s_t))))
            inside = [s for s in range(length) if abs(s - centre) <= reach]
            powers = {s: math.exp(s_t @ (attention.memory.weight @ memory[row, s])) for s in inside}
            wanted = torch.zeros(KEYS)
            for s in inside:
                wanted[s] = powers[s] / sum(powers.values())
                if kind == "predictive":
                    wanted[s] *= math.exp(-((s - centre) ** 2) / (2 * (reach / 2) ** 2))
            torch.testing.assert_close(seen[0][row, 0, t], wanted, atol=1e-5, rtol=0)
            torch.testing.assert_close(found[row, t], wanted @ memory[row], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["monotonic", "predictive"])
@torch.no_grad()
def test_step_by_step_and_with_beams_it_looks_at_the_same_places(kind):
    attention, local, memory, _ = make(kind, 2)
    queries = randn(6, STEPS, WIDTH, seed=1)  # two beams for each sentence
    repeated = [tensor.repeat_interleave(2, 0) for tensor in memory]
    wanted = local.over(attention, *repeated, 0)(queries)
    torch.testing.assert_close(local.over(attention, *memory, 0)(queries), wanted)
    look = local.over(attention, *memory, 0)
    torch.testing.assert_close(torch.cat([look(part) for part in queries.split([1, 2, 1, 3], 1)], 1), wanted)


def test_the_place_is_learned():
    attention, local, memory, _ = make("predictive", 3)
    local.over(attention, *memory, 0)(randn(3, STEPS, WIDTH, seed=1)).square().sum().backward()
    assert all(parameter.grad.any() for parameter in local.parameters())
