"""Time grows as Table 1 says, by the clock (`make learn`): the machine should have nothing else to do."""

import pytest

from regard.study.cost import MODES, Case, measure
from regard.study.fit import fit_exponent
from regard.study.layers import Settings, plan

pytestmark = [pytest.mark.learn, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def costs():
    return measure(plan(Settings())["operator"].cases, 5, 0.02, lambda: None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "low", "high"), [("restricted alone", 0, 1.15), ("unfused alone", 1.8, 9), ("attention alone", 1.8, 9)]
)
def test_time_of_attention_alone(name, low, high, mode, costs):
    sizes = plan(Settings())["operator"].sizes
    points = [(n, costs[Case(name, size)][mode].seconds) for n, size in sizes.items()]
    assert low <= fit_exponent(points).exponent <= high


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "low", "high"), [("restricted alone", 0, 1.15), ("unfused alone", 1.8, 9)])
def test_memory_of_attention_alone(name, low, high, mode, costs):
    sizes = plan(Settings())["operator"].sizes
    points = [(n, costs[Case(name, size)][mode].bytes) for n, size in sizes.items()]
    assert low <= fit_exponent(points).exponent <= high
