import math
import random
import time
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import metrics
from regard.errors import ConfigError, DataError
from regard.metrics import METRICS, by_length, choose_bins, compute, confidence, edit_distance, paired_bootstrap

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "big", "small", "red", "blue", ",", "."]


def make_lines(number, seed=1, longest=14):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(1, longest))) for _ in range(number)]


def spoil(lines, share, seed=2):
    generator = random.Random(seed)
    change = lambda word: generator.choice(WORDS) if generator.random() < share else word  # noqa: E731
    return [" ".join(change(word) for word in line.split()) for line in lines]


def multi_bleu(hypotheses, references):
    """Papineni et al. 2002 as multi-bleu.perl -lc computes it, written independently of sacreBLEU."""
    right, total, length, closest = [0] * 4, [0] * 4, 0, 0
    for hypothesis, alternatives in zip(hypotheses, references, strict=True):
        words = hypothesis.lower().split()
        lines = [line.lower().split() for line in alternatives]
        length += len(words)
        closest += min((abs(len(line) - len(words)), len(line)) for line in lines)[1]
        for n in range(1, 5):
            grams = lambda line, n=n: Counter(tuple(line[i : i + n]) for i in range(len(line) - n + 1))  # noqa: E731
            most = Counter()
            for line in lines:
                most |= grams(line)
            right[n - 1] += sum((grams(words) & most).values())
            total[n - 1] += sum(grams(words).values())
    if 0 in right:
        return 0.0
    precision = sum(math.log(r / t) for r, t in zip(right, total, strict=True)) / 4
    return 100 * math.exp(min(0, 1 - closest / length) + precision)


# BLEU and chrF


def test_bleu_by_hand():
    # 1-grams 5/6, 2-grams 4/5, 3-grams 3/4, 4-grams 2/3; equal lengths
    score = metrics.bleu(["the cat sat on the rug"], ["the cat sat on the mat"])
    assert score.value == pytest.approx(100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25)
    assert score.details["hypothesis_length"] == score.details["reference_length"] == 6
    assert score.label == "BLEU sacreBLEU 13a cased"
    assert "tok:13a" in score.signature
    assert "case:mixed" in score.signature
    assert score.label in str(score)
    assert score.signature in str(score)


def test_bleu_brevity_by_hand():
    score = metrics.bleu(["the cat sat on"], ["the cat sat on the mat"])
    assert score.value == pytest.approx(100 * math.exp(1 - 6 / 4))


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "intl", "char", "none"])
def test_bleu_is_sacrebleu(tokenize, lowercase):
    import sacrebleu

    references = [line.capitalize() for line in make_lines(50)]
    hypotheses = spoil(references, 0.2)
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenize, lowercase=lowercase, force=True)
    score = metrics.bleu(hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    assert score.value == pytest.approx(expected.score)
    assert ("lower-case" in score.label) == lowercase


@pytest.mark.parametrize("share", [0.0, 0.2, 0.95])
def test_tokenised_bleu_is_multi_bleu(share):
    references = [list(pair) for pair in zip(make_lines(40, 1), spoil(make_lines(40, 1), 0.3, 5), strict=True)]
    hypotheses = [line.upper() for line in spoil([lines[0] for lines in references], share)]
    score = metrics.tokenised_bleu(hypotheses, references)
    assert score.value == pytest.approx(multi_bleu(hypotheses, references))
    assert score.label == "BLEU tokenised lower-case"


def test_bleu_of_one_line():
    assert metrics.sentence_bleu("a cat", "a cat") == pytest.approx(100), "there are no 4-grams to be missed"
    assert metrics.sentence_bleu("A cat", "a cat") < 100
    assert metrics.sentence_bleu("A cat", "a cat", lowercase=True) == pytest.approx(100)
    near, far = (metrics.sentence_bleu(line, "the cat sat on the mat") for line in ("the cat sat", "on mat the"))
    assert near > far > 0


def test_tokenised_bleu_does_not_smooth():
    assert metrics.tokenised_bleu(["a b c"], ["a b d"]).value == 0
    assert metrics.tokenised_bleu(["l' été , a"], ["L' été , A"]).value == pytest.approx(100)


def test_chrf_is_sacrebleu():
    import sacrebleu

    references = make_lines(30)
    hypotheses = spoil(references, 0.3)
    for order in (0, 2):
        expected = sacrebleu.corpus_chrf(hypotheses, [references], word_order=order).score
        assert metrics.chrf(hypotheses, references, word_order=order).value == pytest.approx(expected)
    assert metrics.chrf(hypotheses, references, word_order=2).label.startswith("chrF2++")


def test_several_references():
    import sacrebleu

    first, second = make_lines(30, 1), make_lines(30, 2)
    hypotheses = [pair[index % 2] for index, pair in enumerate(zip(first, second, strict=True))]
    references = list(zip(first, second, strict=True))
    expected = sacrebleu.corpus_bleu(hypotheses, [first, second], force=True).score
    assert metrics.bleu(hypotheses, references).value == pytest.approx(expected) == pytest.approx(100)
    assert metrics.chrf(hypotheses, references).value == pytest.approx(100)
    assert metrics.exact_match(hypotheses, references).value == 1
    assert metrics.wer(hypotheses, references).value == 0
    assert "nrefs:2" in metrics.bleu(hypotheses, references).signature


def test_varying_number_of_references():
    hypotheses, references = ["a b c d", "e f g h"], [["a b c d"], ["x y z w", "e f g h"]]
    assert metrics.bleu(hypotheses, references).value == pytest.approx(100)
    assert "nrefs:var" in metrics.bleu(hypotheses, references).signature


# Edit distance, error rates, exact match, perplexity


def brute_force(first, second):
    @cache
    def distance(i, j):
        if i == 0 or j == 0:
            return i + j
        change = distance(i - 1, j - 1) + (first[i - 1] != second[j - 1])
        return min(change, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    return distance(len(first), len(second))


@settings(deadline=None)
@given(st.text("abc", max_size=12), st.text("abcd", max_size=12))
def test_edit_distance_is_the_recursion(first, second):
    assert edit_distance(first, second) == brute_force(first, second)


def test_edit_distance_beyond_a_machine_word():
    generator = random.Random(1)
    for _ in range(20):
        first, second = ("".join(generator.choices("abcd", k=generator.randint(60, 150))) for _ in range(2))
        assert edit_distance(first, second) == edit_distance(second, first) == brute_force(first, second)


def test_wer_counts_over_the_corpus():
    score = metrics.wer(["a b c", "x"], ["a b d e", "x"])
    assert score.value == pytest.approx(2 / 5)
    assert score.details == {"edits": 2, "reference_length": 5}
    assert not score.higher_is_better
    assert str(score) == "word error rate: 40.00 %"


def test_wer_may_exceed_one():
    assert metrics.wer(["a b c d"], ["x"]).value == 4


def test_empty_lines():
    assert metrics.wer(["", ""], ["", "a b"]).value == 1
    assert metrics.wer(["a", "a b"], ["", "a b"]).value == pytest.approx(1 / 2)
    assert metrics.wer([""], [""]).value == metrics.cer([""], [""]).value == 0
    assert metrics.wer(["a b"], [""]).value == 2
    assert metrics.exact_match(["", "a"], ["", ""]).value == 0.5
    for name in METRICS:
        assert math.isfinite(METRICS[name](["", "", "a b c d"], ["", "a", "a b c d"]).value)


def test_cer_counts_characters_and_spaces():
    assert metrics.cer(["ab cd"], ["abcd"]).value == pytest.approx(1 / 4)
    assert metrics.cer(["äb"], ["ab"]).value == pytest.approx(1 / 2)
    assert metrics.cer([" ab "], ["ab"]).value == 0


def test_exact_match_and_word_error():
    hypotheses, references = ["k æ t", "d ɔ g", "x"], ["k æ t", "d o g", "x"]
    assert metrics.exact_match(hypotheses, references).value == pytest.approx(2 / 3)
    assert metrics.word_error(hypotheses, references).value == pytest.approx(1 / 3)
    assert not metrics.word_error(hypotheses, references).higher_is_better


def test_error_rates_are_fast():
    generator = np.random.default_rng(1)
    lines = [" ".join(map(str, generator.integers(50, size=100))) for _ in range(2000)]
    start = time.process_time()
    metrics.wer(lines, lines[::-1])
    assert time.process_time() - start < 4  # 10k lines of 100 tokens in < 20 s on a busy machine


def test_perplexity():
    assert metrics.perplexity(-10 * math.log(7), 10).value == pytest.approx(7)
    assert metrics.perplexity(0.0, 3).value == 1
    assert metrics.perplexity(-1e9, 1).value == math.inf
    assert not metrics.perplexity(-1.0, 1).higher_is_better
    with pytest.raises(DataError, match="at least one token"):
        metrics.perplexity(0.0, 0)


# The table


def test_compute_and_its_errors():
    scores = compute(METRICS, ["a b c d e"], ["a b c d e"])
    assert list(scores) == list(METRICS)
    for name, score in scores.items():
        assert score.name == name
        assert score.higher_is_better == METRICS[name].higher_is_better
        best = 100 if name.endswith(("bleu", "chrf")) else int(score.higher_is_better)
        assert score.value == pytest.approx(best)
    with pytest.raises(ConfigError, match=r"'blue'.*bleu.*exact_match"):
        compute(["blue"], ["a"], ["a"])
    with pytest.raises(ConfigError, match="13a"):
        metrics.bleu(["a"], ["a"], tokenize="13b")
    with pytest.raises(DataError, match="2 hypotheses but 3 references"):
        compute(["wer"], ["a", "b"], ["a", "b", "c"])
    with pytest.raises(DataError, match="no lines"):
        compute(["bleu"], [], [])
    with pytest.raises(DataError, match="line 2 has no reference"):
        compute(["bleu"], ["a", "b"], [["a"], []])


# By length


@settings(deadline=None)
@given(st.lists(st.integers(0, 60) | st.integers(0, 3000), min_size=1, max_size=400))
def test_length_bins_hold_every_line_once(lengths):
    lines = [str(index) for index in range(len(lengths))]
    rows = by_length("exact_match", lengths, lines, lines)
    assert sum(row.count for row in rows) == len(lengths)
    for row in rows:
        assert row.count == sum(row.first <= length <= row.last for length in lengths)
        assert row.value == 1
    assert len(rows) <= 10
    if len(rows) > 1:
        assert min(row.count for row in rows) >= min(20, len(lengths) // 8)


def test_length_bins_of_a_usual_corpus():
    lengths = np.random.default_rng(1).poisson(12, 1000) + 1
    rows = by_length("exact_match", lengths.tolist(), ["a"] * 1000, ["a"] * 1000)
    assert 5 <= len(rows) <= 9
    assert min(row.count for row in rows) >= 25
    assert choose_bins([5] * 30) == [5]


def test_given_bins_and_values():
    lengths = [1, 5, 6, 10, 11, 40]
    hypotheses, references = list("aabbcd"), list("axbbxx")
    rows = by_length("exact_match", lengths, hypotheses, references, bins=[5, 10, 20])
    assert [(row.first, row.last, row.count, row.value) for row in rows] == [
        (1, 5, 2, 0.5),
        (6, 10, 2, 1.0),
        (11, 20, 1, 0.0),
        (21, 40, 1, 0.0),
    ]
    with pytest.raises(DataError, match="5 source lengths but 6 hypotheses"):
        by_length("wer", lengths[:5], hypotheses, references)


@pytest.mark.parametrize("name", METRICS)
def test_a_length_bin_scores_its_lines(name):
    references = make_lines(60, longest=30)
    hypotheses = spoil(references, 0.2)
    lengths = [len(line.split()) for line in references]
    for row in by_length(name, lengths, hypotheses, references, bins=[10, 20]):
        inside = [index for index, length in enumerate(lengths) if row.first <= length <= row.last]
        part = METRICS[name]([hypotheses[index] for index in inside], [references[index] for index in inside])
        assert row.value == pytest.approx(part.value)


# Bootstrap


@pytest.mark.parametrize("name", METRICS)
def test_equal_systems_do_not_differ(name):
    references = make_lines(80)
    system = spoil(references, 0.3)
    result = paired_bootstrap(name, system, system, references, samples=100)
    assert (result.difference, result.low, result.high, result.p_value) == (0, 0, 0, 1)


@pytest.mark.parametrize("name", METRICS)
def test_clearly_different_systems_differ(name):
    references = make_lines(150)
    bad, good = spoil(references, 0.6, 3), spoil(references, 0.02, 4)
    result = paired_bootstrap(name, bad, good, references, samples=200, seed=7)
    sign = 1 if METRICS[name].higher_is_better else -1
    assert sign * result.difference > 0
    assert min(sign * result.low, sign * result.high) > 0
    assert result.low < result.difference < result.high
    assert result.p_value < 0.01
    assert result.a == pytest.approx(METRICS[name](bad, references).value)
    assert result == paired_bootstrap(name, bad, good, references, samples=200, seed=7)
    assert result != paired_bootstrap(name, bad, good, references, samples=200, seed=8)
    mirrored = paired_bootstrap(name, good, bad, references, samples=200, seed=7)
    assert mirrored.difference == pytest.approx(-result.difference)
    assert mirrored.p_value == result.p_value


def test_systems_of_the_same_quality_are_rarely_called_different():
    references = make_lines(100)
    chances = [
        paired_bootstrap(
            "exact_match", spoil(references, 0.1, seed), spoil(references, 0.1, seed + 50), references, 200
        )
        for seed in range(30)
    ]
    assert sum(chance.p_value < 0.05 for chance in chances) <= 5


@pytest.mark.parametrize("name", METRICS)
def test_confidence_holds_the_score(name):
    references = make_lines(100)
    system = spoil(references, 0.15)
    result = confidence(name, system, references, samples=200, seed=3)
    assert result.low < result.value < result.high
    assert result == confidence(name, system, references, samples=200, seed=3)


def test_bootstrap_is_fast_and_checks_its_input():
    references = make_lines(1000)
    first, second = spoil(references, 0.2, 3), spoil(references, 0.2, 4)
    start = time.process_time()
    paired_bootstrap("bleu", first, second, references, samples=1000)
    assert time.process_time() - start < 5
    with pytest.raises(DataError, match="999 hypotheses but 1000 references"):
        paired_bootstrap("bleu", first[1:], second, references)
    with pytest.raises(ConfigError, match="at least one sample"):
        confidence("bleu", first, references, samples=0)
