"""Laws are found again in data made from them."""

import math

import pytest

from regard.study.fit import crossings, find_law, fit_exponent, fit_line


@pytest.mark.parametrize("exponent", [-1, 0, 0.5, 1, 2])
def test_the_exponent_of_a_power(exponent):
    found = fit_exponent([(n, 3e-4 * n**exponent) for n in (8192, 512, 1024, 4096, 2048)])
    assert (found.exponent, found.last) == (pytest.approx(exponent), pytest.approx(exponent))


def test_a_constant_part_counts_least_at_the_end():
    found = fit_exponent([(n, 1e6 + n**2) for n in (100, 1000, 10000)])
    assert found.exponent < found.last < 2


def test_noise_hardly_moves_it():
    noise = [1.1, 0.9, 1.05, 0.95, 1.1]
    points = [(n, n**2 * factor) for n, factor in zip((512, 1024, 2048, 4096, 8192), noise, strict=True)]
    assert fit_exponent(points).exponent == pytest.approx(2, abs=0.05)


def test_one_size_has_no_exponent():
    with pytest.raises(ValueError, match="two different sizes"):
        fit_exponent([(5, 1), (5, 2)])


def test_crossings_lie_where_both_are_equal():
    square = {n: n**2 for n in (64, 128, 256, 512)}
    line = {n: 200 * n for n in (64, 128, 256, 512, 1024)}
    assert crossings(square, line) == [pytest.approx(200)]
    assert crossings(line, square) == [pytest.approx(200)]
    assert crossings(square, {n: 2 * cost for n, cost in square.items()}) == []
    assert crossings({1: 1, 2: 4, 4: 1}, {1: 2, 2: 2, 4: 2}) == pytest.approx([2**0.5, 4 / 2**0.5])


@pytest.mark.parametrize(
    ("letter", "name", "count"),
    [
        ("k", "n/k", lambda n, k: math.ceil((n - 1) / (k - 1))),
        ("k", "log_k n", lambda n, k: math.ceil(math.log(n) / math.log(k) - 1e-9)),
        ("r", "n/r", lambda n, r: math.ceil(2 * (n - 1) / r)),
        ("r", "1", lambda n, r: 1),
        ("", "1", lambda n, p: 1),
        ("", "n", lambda n, p: n),
        ("", "log n", lambda n, p: round(3 * math.log(n))),
    ],
)
def test_laws(letter, name, count):
    counts = [(n, p, count(n, p)) for n in (16, 32, 64, 128) for p in ((3, 5, 9) if letter else (0,))]
    assert find_law(counts, letter).name == name


def test_the_constant_of_a_law():
    law = find_law([(n, 8, 2 * n // 8) for n in (16, 32)] + [(16, 16, 2)], "r")
    assert (law.name, law.constant, law.deviation) == ("n/r", pytest.approx(2), pytest.approx(0))


def test_a_line():
    assert fit_line([(n, 6 + 7 * n) for n in (64, 128, 256)]) == (pytest.approx(6), pytest.approx(7))
