import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.view.curves import Line, draw_chart, number, thin, ticks


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
