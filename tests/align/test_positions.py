"""Models 1 and 2 against all alignments of tiny sentences, one by one."""

import itertools

import numpy as np
import pytest

from regard.align.positions import Diagonal, Uniform


def tiny(seed: int, steps: int = 3, rows: int = 2, size: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Emissions [T,B,S+1] and target lengths, the second pair shorter than the first."""
    emission = np.random.default_rng(seed).random((steps, rows, size + 1)) + 0.01
    lengths = np.array([steps, steps - 1])[:rows]
    emission[lengths[1] :, 1] = 0
    return emission, lengths


def enumerate_links(emission: np.ndarray, prior: np.ndarray) -> tuple[float, np.ndarray]:
    """Likelihood and expected links of one pair, from the sum over all (S+1)^T alignments."""
    steps, width = emission.shape
    total, links = 0.0, np.zeros((steps, width))
    for path in itertools.product(range(width), repeat=steps):
        share = np.prod([prior[step, place] * emission[step, place] for step, place in enumerate(path)])
        total += share
        for step, place in enumerate(path):
            links[step, place] += share
    return total, links / total


def diagonal_prior(steps: int, size: int, tension: float, null: float) -> np.ndarray:
    weights = np.array(
        [[np.exp(-tension * abs(s / size - t / steps)) for s in range(1, size + 1)] for t in range(1, steps + 1)]
    )
    return np.concatenate([np.full((steps, 1), null), (1 - null) * weights / weights.sum(1, keepdims=True)], axis=1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["uniform", "diagonal"])
def test_all_alignments(kind, seed):
    emission, lengths = tiny(seed)
    model = Uniform() if kind == "uniform" else Diagonal(null=0.15, tension=2.5)
    posterior, likelihood = model.expect(emission.copy(), lengths)
    expected = 0.0
    for row, length in enumerate(lengths):
        uniform = np.full((length, 3), 1 / 3)
        prior = uniform if kind == "uniform" else diagonal_prior(length, 2, 2.5, 0.15)
        total, links = enumerate_links(emission[:length, row], prior)
        expected += np.log(total)
        np.testing.assert_allclose(posterior[:length, row], links)
        assert not posterior[length:, row].any()
        path = model.decode(emission, lengths)[:length, row]
        np.testing.assert_array_equal(path, (prior * emission[:length, row]).argmax(1))
    assert likelihood == pytest.approx(expected)


def test_the_slope_of_the_tension():
    """Against the expected log-likelihood at two tensions nearby, and its maximum is found."""
    emission, lengths = tiny(5, steps=6, size=4)
    model = Diagonal(null=0.1, tension=1.0)
    posterior, _ = model.expect(emission.copy(), lengths)
    slope, curvature = model.slope, model.curvature

    def value(tension: float) -> float:
        prior = Diagonal(0.1, tension).prior(emission, lengths)
        return float((posterior * np.log(prior)).sum())

    step = 1e-4
    assert slope == pytest.approx((value(1 + step) - value(1 - step)) / (2 * step), rel=1e-5)
    assert -curvature == pytest.approx((value(1 + step) - 2 * value(1) + value(1 - step)) / step**2, rel=1e-3)
    model.update()
    assert value(model.tension) >= value(1.0)
    assert model.slope == model.curvature == 0


def test_the_tension_stays_within_bounds():
    model = Diagonal(0.1, 0.11)
    model.slope, model.curvature = -1e6, 1.0
    model.update()
    assert model.tension == Diagonal.LOWEST
    model.tension = 40.0
    model.slope, model.curvature = 1e6, 1.0
    model.update()
    assert model.tension == Diagonal.HIGHEST
    model.update()  # nothing was seen, as for one source token only: nothing changes
    assert model.tension == Diagonal.HIGHEST
