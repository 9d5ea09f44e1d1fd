import math

import pytest
import torch

from regard.nn.position import Learned, Sinusoidal, sinusoidal


@pytest.mark.parametrize("width", [8, 7, 1])
def test_sinusoidal_is_the_papers_formula(width):
    table = sinusoidal(50, width)
    for place in (0, 1, 17, 49):
        for i in range(width):
            angle = place / 10000 ** ((i - i % 2) / width)
            wanted = math.cos(angle) if i % 2 else math.sin(angle)
            assert table[place, i].item() == pytest.approx(wanted, abs=1e-6)


def test_sinusoidal_is_exact_far_out():
    """Angles are computed in double precision: in single precision they are off by 1e-4 at position 20,000."""
    angle = 20_000 / 10000 ** (2 / 8)
    assert sinusoidal(20_001, 8)[20_000, 2].item() == pytest.approx(math.sin(angle), abs=1e-6)


def test_sinusoidal_grows_on_demand_and_is_not_saved():
    positions = Sinusoidal(6, 4)
    assert torch.equal(positions(2, 2), sinusoidal(4, 6)[2:])
    assert torch.equal(positions(3, 10), sinusoidal(13, 6)[3:])
    assert torch.equal(positions(0, 4), sinusoidal(4, 6))
    assert positions.state_dict() == {}


def test_a_table_that_grew_in_a_search_serves_training():
    positions = Sinusoidal(6, 4)
    with torch.inference_mode():
        positions(0, 20)
    x = torch.ones(20, 6, requires_grad=True)
    (x + positions(0, 20)).square().sum().backward()
    assert x.grad.isfinite().all()


def test_learned_gives_rows_of_its_table():
    positions = Learned(6, 10)
    assert torch.equal(positions(3, 4), positions.table[3:7])
    assert torch.equal(positions(0, 10), positions.table)
    assert [name for name, _ in positions.named_parameters()] == ["table"]


def test_learned_refuses_what_is_beyond_its_table():
    with pytest.raises(ValueError, match="position 11 is beyond the learned table of 10"):
        Learned(6, 10)(8, 3)


def test_it_serves_a_product_too():
    positions = Sinusoidal(4, length=2)
    with torch.inference_mode():
        positions(0, 9)
    weight = torch.ones(4, requires_grad=True)
    (positions(0, 9) * weight).sum().backward()
    assert weight.grad is not None
