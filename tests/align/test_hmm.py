"""The HMM against all paths of tiny sentences, one by one: likelihood, links, jumps, the best path, the M-step."""

import itertools
from collections import Counter

import numpy as np
import pytest

from regard.align.hmm import Jumps

NULL, SMOOTHING = 0.2, 0.15


def model(seed: int, longest: int = 4) -> Jumps:
    jumps = Jumps(longest, NULL, SMOOTHING)
    jumps.weights = np.random.default_rng(seed).random(len(jumps.weights)) + 0.05
    return jumps


def tiny(seed: int, size: int, lengths: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    emission = np.random.default_rng(seed).random((lengths[0], len(lengths), size + 1)) + 0.01
    for row, length in enumerate(lengths):
        emission[length:, row] = 0
    return emission, np.array(lengths)


def enumerate_paths(jumps: Jumps, emission: np.ndarray):
    """Every path of one pair, with its probability and with the part that the weights have in each of its jumps."""
    steps, width = emission.shape
    size = width - 1

    def weight(distance: int) -> float:
        return jumps.weights[distance + jumps.reach]

    for path in itertools.product(range(width), repeat=steps):
        share, place, moves = 1.0, 0, list[tuple[int, int, float]]()
        for step, chosen in enumerate((*path, size + 1)):
            if chosen == 0:
                share *= NULL * emission[step, 0]
                continue
            learned = weight(chosen - place) / sum(weight(other - place) for other in range(1, size + 2))
            total = (1 - SMOOTHING) * learned + SMOOTHING / (size + 1)
            share *= (1 - NULL) * total * (emission[step, chosen] if step < steps else 1)
            moves.append((place, chosen, (1 - SMOOTHING) * learned / total))
            place = chosen
        yield path, share, moves


@pytest.mark.parametrize(("size", "lengths"), [(3, (4, 3, 1)), (2, (5, 5)), (1, (3, 2)), (4, (1,))])
def test_all_paths(size, lengths):
    for seed in range(2):
        jumps, (emission, counts) = model(seed), tiny(seed, size, lengths)
        posterior, likelihood = jumps.expect(emission, counts)
        best = jumps.decode(emission, counts)
        expected, moved, left = 0.0, np.zeros_like(jumps.jumps), np.zeros_like(jumps.leaving)
        for row, length in enumerate(lengths):
            paths = list(enumerate_paths(jumps, emission[:length, row]))
            total = sum(share for _, share, _ in paths)
            expected += np.log(total)
            links = np.zeros((length, size + 1))
            for path, share, moves in paths:
                links[np.arange(length), path] += share / total
                for place, chosen, part in moves:
                    moved[chosen - place + jumps.reach] += part * share / total
                    left[size, place] += part * share / total
            np.testing.assert_allclose(posterior[:length, row], links, atol=1e-12)
            assert not posterior[length:, row].any()
            assert tuple(best[:length, row]) == max(paths, key=lambda each: each[1])[0]
            assert not best[length:, row].any()
        assert likelihood == pytest.approx(expected)
        np.testing.assert_allclose(jumps.jumps, moved, atol=1e-12)
        np.testing.assert_allclose(jumps.leaving, left, atol=1e-12)


def test_long_sentences_stay_finite():
    emission, lengths = tiny(1, 300, (400, 399))
    emission *= 1e-6
    jumps = model(1, longest=300)
    posterior, likelihood = jumps.expect(emission, lengths)
    assert np.isfinite(likelihood)
    np.testing.assert_allclose(posterior[:399].sum(2), 1)


def expected_value(jumps: Jumps, counts: Counter) -> float:
    """Σ N log (c / Z) over counted jumps (size, from, to)."""
    value = 0.0
    for (size, origin, place), count in counts.items():
        every = sum(jumps.weights[other - origin + jumps.reach] for other in range(1, size + 2))
        value += count * np.log(jumps.weights[place - origin + jumps.reach] / every)
    return value


def test_the_new_weights_are_the_best():
    """No small change of any weight makes the counted jumps more probable; plain shares of jumps would not do."""
    generator, counts = np.random.default_rng(3), Counter()
    for _ in range(400):
        size = int(generator.integers(1, 5))
        origin = int(generator.integers(0, size + 1))
        counts[size, origin, int(generator.integers(1, size + 2))] += float(generator.random())
    jumps = Jumps(4, NULL, SMOOTHING)
    for (size, origin, place), count in counts.items():
        jumps.jumps[place - origin + jumps.reach] += count
        jumps.leaving[size, origin] += count
    shares = jumps.jumps / jumps.jumps.sum()
    before = expected_value(jumps, counts)
    for _ in range(20):
        kept = jumps.jumps.copy(), jumps.leaving.copy()
        jumps.update()
        after = expected_value(jumps, counts)
        assert after >= before - 1e-9
        before, (jumps.jumps, jumps.leaving) = after, kept
    best = jumps.weights.copy()
    for place, factor in itertools.product(range(len(best)), (0.98, 1.02)):
        jumps.weights = best.copy()
        jumps.weights[place] *= factor
        assert expected_value(jumps, counts) <= after + 1e-7
    jumps.weights = np.maximum(shares, 1e-12)
    assert expected_value(jumps, counts) < after - 1e-3


def test_nothing_seen_changes_nothing():
    jumps = model(2)
    before = jumps.weights.copy()
    jumps.update()
    np.testing.assert_array_equal(jumps.weights, before)
