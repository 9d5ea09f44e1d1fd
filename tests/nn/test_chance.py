"""Random numbers of training: each thread its own, and places chosen with the chance one asks for."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.nn import chance
from regard.nn.chance import choose_places, draw, drawing_from, gumbel, uniform

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
def test_places_are_chosen_with_their_chance_and_independently(rate):
    torch.manual_seed(0)
    chosen = torch.zeros(1_000_000)
    chosen[choose_places(1_000_000, rate)] = 1
    sigma = (rate * (1 - rate)) ** 0.5
    assert chosen.mean().item() == pytest.approx(rate, abs=5 * sigma / 1000)
    for gap in (1, 2, 7, 64):  # whether one is chosen says nothing about another
        both = (chosen[:-gap] * chosen[gap:]).mean().item()
        assert both == pytest.approx(rate**2, abs=6 * sigma / 1000)
    blocks = chosen.view(1000, 1000).sum(1)  # a binomial number in each
    assert blocks.std().item() == pytest.approx((1000 * rate * (1 - rate)) ** 0.5, rel=0.1)


@given(st.integers(0, 3000), st.floats(1e-9, 1, exclude_max=True))
def test_places_ascend_and_lie_within(number, rate):
    places = choose_places(number, rate)
    assert ((places >= 0) & (places < number)).all()
    assert (places.diff() > 0).all()


def test_more_is_drawn_where_the_first_guess_was_too_small(monkeypatch):
    monkeypatch.setattr(chance.math, "sqrt", lambda number: -(number**0.5))
    torch.manual_seed(0)
    chosen = torch.zeros(100_000)
    chosen[choose_places(100_000, 0.3)] = 1
    assert chosen[-20_000:].mean().item() == pytest.approx(0.3, abs=0.02)


def test_a_thread_draws_from_its_own_generator():
    def draw(seed: int) -> torch.Tensor:
        with drawing_from(torch.Generator().manual_seed(seed)):
            return torch.cat([uniform((3,), CPU), choose_places(100, 0.5)[:5]])

    alone = [draw(seed) for seed in range(8)]
    torch.manual_seed(0)
    before = torch.default_generator.get_state()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(draw, range(8)))
    assert all(map(torch.equal, alone, together))
    assert torch.equal(torch.default_generator.get_state(), before)
    assert len({tuple(each.tolist()) for each in alone}) == 8
    torch.manual_seed(5)
    first = uniform((3,), CPU)
    torch.manual_seed(5)
    assert torch.equal(first, torch.rand(3))


def test_the_largest_with_gumbel_noise_is_a_draw():
    torch.manual_seed(0)
    wanted = torch.tensor([0.5, 0.3, 0.2])
    drawn = (wanted.log() + gumbel(torch.rand(20_000, 3))).argmax(-1)
    torch.testing.assert_close(drawn.bincount() / 20_000, wanted, atol=0.015, rtol=0)


def test_so_many_places_are_drawn_each_with_the_same_chance():
    torch.manual_seed(0)
    among = torch.tensor([True, False, True, True, True, False]).expand(20_000, -1)
    drawn = draw(among, torch.full((20_000,), 2))
    assert drawn.sum(1).eq(2).all()
    assert drawn.double().mean(0).tolist() == pytest.approx([0.5, 0, 0.5, 0.5, 0.5, 0], abs=0.02)
    assert draw(among[:3], torch.tensor([0, 4, 9])).sum(1).tolist() == [0, 4, 4]  # never more than there are
