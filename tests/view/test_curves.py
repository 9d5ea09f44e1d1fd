import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.view.curves import Line, draw_chart, number, own_marks, powers, series, thin, ticks


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_enclose(low, size):
    found = ticks(low, low + size)
    assert found[0] <= low + size * 1e-3
    assert found[-1] >= low + size - size * 1e-3
    assert 2 <= len(found) <= 9


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12000, "12,000"), (0.35, "0.35"), (1.5e-5, "1.5e−5"), (-2.5, "−2.5"), (0.1 + 0.2, "0.3")],
)
def test_number(value, text):
    assert number(value) == text


def test_thin_keeps_the_mean_and_the_end():
    points = [(float(x), float(x % 2)) for x in range(1000)]
    thinned = thin(points, 100)
    assert len(thinned) == 100
    assert thinned[-1][0] == 999
    assert all(y == 0.5 for _, y in thinned)


@pytest.mark.parametrize("points", [[(1, 0)], [(5, 2.0), (5, 2.0)], [(0, -1.0), (1, -1.0)], [(1, 1e-30)]])
def test_degenerate_lines_are_drawn(points):
    assert "<polyline" in draw_chart("x", [Line("y", points)])


def test_nothing_to_draw():
    assert draw_chart("x", [Line("y", [])]) == ""


def test_a_long_name_of_the_axis_stands_on_no_number():
    drawn = draw_chart("x", [Line("y", [(0, 1.0), (10, 2.0)])], "source words in the test")
    labels = re.findall(r'<text x="([\d.]+)" y="241" text-anchor="(\w+)">([^<]*)<', drawn)
    assert [label for _, _, label in labels] == ["0", "2", "4", "source words in the test 10"]


def test_every_model_has_its_own_line():
    assert len({series(number) for number in range(18)}) == 18


def test_a_power_is_a_straight_line_on_logarithmic_axes():
    chart = draw_chart("x", [Line("square", [(n, n**2) for n in (4, 8, 16, 32)])], "n", logarithmic=True)
    (places,) = re.findall(r'points="([^"]*)"', chart)
    x, y = zip(*(map(float, place.split(",")) for place in places.split()), strict=True)
    slopes = [(y[i + 1] - y[i]) / (x[i + 1] - x[i]) for i in range(3)]
    assert slopes == pytest.approx([slopes[0]] * 3, rel=0.01)
    for mark in (">4<", ">8<", ">n 32<", ">10<", ">10,000<"):
        assert mark in chart


def test_what_has_no_logarithm_is_not_drawn():
    assert draw_chart("x", [Line("y", [(0, 1), (-1, 1), (1, 0)])], logarithmic=True) == ""
    chart = draw_chart("x", [Line("y", [(0, 1), (5, 5)])], logarithmic=True)
    assert chart.count('class="touch"') == 1


@given(st.floats(1e-9, 1e9), st.floats(1, 1e6), st.sampled_from([2, 10]))
def test_powers_enclose(low, factor, base):
    found = powers(low, low * factor, base)
    assert found[0] <= low * 1.001
    assert found[-1] >= low * factor * 0.999
    assert len(found) >= 2


def test_few_sizes_are_named_themselves():
    assert own_marks([5, 3, 5, 9]) == [3, 5, 9]
    assert own_marks([3, 3]) == []
    assert own_marks(range(20)) == []
