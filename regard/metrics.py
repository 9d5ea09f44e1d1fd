"""One door to the scorers: BLEU and chrF (sacreBLEU), exact match, word and character error, perplexity.

Every corpus metric here counts a few numbers per line and makes the score from their sums over lines
(BLEU: matches and totals of n-grams and two lengths; WER: edits and reference words). So one table of
counts gives the score of the corpus, of the lines of one length, and of a bootstrap sample.

Hypotheses are a list of lines. References are a list of as many items, each a line or a list of lines
(several references of that line; not sacreBLEU's list of reference files).
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from regard.errors import ConfigError, DataError

References = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class Score:
    """A value and everything needed to print it honestly."""

    name: str  # key in METRICS
    value: float  # BLEU and chrF: 0–100; rates: 0–1 (error rates may exceed 1)
    label: str  # the kind, as printed: "BLEU tokenised lower-case"
    signature: str = ""  # sacreBLEU's
    details: Mapping[str, Any] = field(default_factory=dict)  # counts the value was made from
    higher_is_better: bool = True
    rate: bool = False  # printed in per cent

    def __str__(self) -> str:
        value = f"{100 * self.value:.2f} %" if self.rate else f"{self.value:.2f}"
        return f"{self.label}: {value}" + (f" [{self.signature}]" if self.signature else "")


@dataclass(frozen=True)
class Counts:
    """What a metric counts, a row of numbers per line, and the score of summed rows."""

    rows: np.ndarray  # [lines, numbers], float64 (exact for counts)
    finish: Callable[[list[float]], Score]

    def score(self, weights: np.ndarray | None = None) -> Score:
        """The score of all lines, or with each line taken as often as its weight says."""
        sums = self.rows.sum(0) if weights is None else weights @ self.rows
        return self.finish(sums.tolist())


@dataclass(frozen=True)
class Metric:
    """A corpus metric: called with hypotheses and references it gives a `Score`."""

    measure: Callable[[list[str], list[list[str]]], Counts]
    higher_is_better: bool = True

    def count(self, hypotheses: Sequence[str], references: References) -> Counts:
        """The counts per line, after a check that both sides belong together."""
        return self.measure(list(hypotheses), _align(hypotheses, references))

    def __call__(self, hypotheses: Sequence[str], references: References) -> Score:
        return self.count(hypotheses, references).score()


def _align(hypotheses: Sequence[str], references: References) -> list[list[str]]:
    """References as a list of alternatives per line."""
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} hypotheses but {len(references)} references: the lines do not correspond")
    if not hypotheses:
        raise DataError("nothing to score: no lines")
    alternatives = [[item] if isinstance(item, str) else list(item) for item in references]
    for number, lines in enumerate(alternatives, 1):
        if not lines:
            raise DataError(f"line {number} has no reference")
    return alternatives


# BLEU and chrF


def _count_with(
    scorer: Any, finish: Callable[[Any, str], Score], lines: list[str], references: list[list[str]]
) -> Counts:
    """Sufficient statistics by a sacreBLEU scorer; `finish` gets its result and its signature."""
    most = max(len(alternatives) for alternatives in references)
    streams = [[line[index] if index < len(line) else None for line in references] for index in range(most)]
    rows = np.array(scorer._extract_corpus_statistics(lines, streams), dtype=np.float64)
    signature = str(scorer.get_signature())
    return Counts(rows, lambda sums: finish(scorer._compute_score_from_stats(sums), signature))


def _measure_bleu(
    hypotheses: list[str], references: list[list[str]], tokenize: str = "13a", lowercase: bool = False
) -> Counts:
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"unknown BLEU tokenizer '{tokenize}'; known: {', '.join(BLEU.TOKENIZERS)}")
    label = f"BLEU sacreBLEU {tokenize} {'lower-case' if lowercase else 'cased'}"
    finish = partial(_finish_bleu, "lower_bleu" if lowercase else "bleu", label)
    return _count_with(BLEU(tokenize=tokenize, lowercase=lowercase), finish, hypotheses, references)


def _measure_tokenised_bleu(hypotheses: list[str], references: list[list[str]]) -> Counts:
    from sacrebleu.metrics.bleu import BLEU

    scorer = BLEU(tokenize="none", lowercase=True, force=True, smooth_method="none")
    finish = partial(_finish_bleu, "tokenised_bleu", "BLEU tokenised lower-case")
    return _count_with(scorer, finish, hypotheses, references)


def _finish_bleu(name: str, label: str, result: Any, signature: str) -> Score:
    details = {
        "precisions": [float(value) for value in result.precisions],
        "brevity_penalty": float(result.bp),
        "hypothesis_length": int(result.sys_len),
        "reference_length": int(result.ref_len),
    }
    return Score(name, float(result.score), label, signature, details)


def _measure_chrf(
    hypotheses: list[str], references: list[list[str]], word_order: int = 0, lowercase: bool = False
) -> Counts:
    from sacrebleu.metrics.chrf import CHRF

    label = "chrF2" + "+" * word_order + (" lower-case" if lowercase else " cased")
    details = {"character_order": 6, "word_order": word_order, "beta": 2}

    def finish(result: Any, signature: str) -> Score:
        return Score("lower_chrf" if lowercase else "chrf", float(result.score), label, signature, details)

    return _count_with(CHRF(word_order=word_order, lowercase=lowercase), finish, hypotheses, references)


# Exact match and edit distance


def _measure_exact(name: str, hypotheses: list[str], references: list[list[str]]) -> Counts:
    rows = [(float(line in right), 1.0) for line, right in zip(hypotheses, references, strict=True)]

    def finish(sums: list[float]) -> Score:
        right, lines = sums
        details = {"right": int(right), "lines": int(lines)}
        if name == "word_error":
            return Score(name, 1 - right / lines, "word error (lines not right)", "", details, False, True)
        return Score(name, right / lines, "exact match", "", details, True, True)

    return Counts(np.array(rows), finish)


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Levenshtein distance; a whole column of the table is one big integer (Myers 1999, Hyyrö 2003)."""
    if not first:
        return len(second)
    where: dict[Hashable, int] = {}
    for index, item in enumerate(first):
        where[item] = where.get(item, 0) | 1 << index
    full, last = (1 << len(first)) - 1, 1 << (len(first) - 1)
    up, down, distance = full, 0, len(first)  # bit i: cell i+1 is one more, or one less, than cell i
    for item in second:
        equal = where.get(item, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up = down | (full & ~(diagonal | up))
        right_down = up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up, right_down = right_up << 1 | 1, right_down << 1
        up = full & (right_down | ~(equal | down | right_up))
        down = full & right_up & (equal | down)
    return distance


def _measure_edits(
    name: str, label: str, split: Callable[[str], Sequence[str]], hypotheses: list[str], references: list[list[str]]
) -> Counts:
    """Edits and reference length per line; of several references the one with the lowest rate."""

    def count(hypothesis: str, alternatives: list[str]) -> tuple[int, int]:
        words = split(hypothesis)
        pairs = [(edit_distance(line, words), len(line)) for line in map(split, alternatives)]
        return min(pairs, key=lambda pair: (pair[0] / max(1, pair[1]), -pair[1]))

    rows = [count(line, alternatives) for line, alternatives in zip(hypotheses, references, strict=True)]

    def finish(sums: list[float]) -> Score:
        edits, length = map(int, sums)
        # an empty reference costs the words said; with nothing at all to say, that number is the rate
        details = {"edits": edits, "reference_length": length}
        return Score(name, edits / max(1, length), label, "", details, False, True)

    return Counts(np.array(rows, dtype=np.float64), finish)


# The metrics

exact_match = Metric(partial(_measure_exact, "exact_match"))  # share of lines that equal a reference
word_error = Metric(partial(_measure_exact, "word_error"), False)  # 1 - exact match: "WER" of grapheme-to-phoneme work
wer = Metric(partial(_measure_edits, "wer", "word error rate", str.split), False)  # edits / reference words
cer = Metric(partial(_measure_edits, "cer", "character error rate", str.strip), False)  # spaces inside count

METRICS: dict[str, Metric] = {
    "bleu": Metric(_measure_bleu),
    "tokenised_bleu": Metric(_measure_tokenised_bleu),
    "chrf": Metric(_measure_chrf),
    "lower_bleu": Metric(partial(_measure_bleu, lowercase=True)),  # for models that write in lower case
    "lower_chrf": Metric(partial(_measure_chrf, lowercase=True)),
    "exact_match": exact_match,
    "word_error": word_error,
    "wer": wer,
    "cer": cer,
}


def bleu_metric(tokenize: str = "13a", lowercase: bool = False) -> Metric:
    """sacreBLEU of detokenised text, as a metric with other settings than that of the table."""
    return Metric(partial(_measure_bleu, tokenize=tokenize, lowercase=lowercase))


def bleu(hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False) -> Score:
    """sacreBLEU of detokenised text."""
    return bleu_metric(tokenize, lowercase)(hypotheses, references)


def sentence_bleu(hypothesis: str, reference: str, lowercase: bool = False) -> float:
    """BLEU of one line, smoothed, over the n-grams it is long enough for."""
    return float(_sentence_scorer(lowercase).sentence_score(hypothesis, [reference]).score)


@cache
def _sentence_scorer(lowercase: bool) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(lowercase=lowercase, effective_order=True)


def tokenised_bleu(hypotheses: Sequence[str], references: References) -> Score:
    """Classical BLEU, as multi-bleu -lc: text already tokenised, split at spaces, lower-cased, not smoothed."""
    return METRICS["tokenised_bleu"](hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, word_order: int = 0, lowercase: bool = False) -> Score:
    """chrF2, or chrF2++ with word_order = 2."""
    return Metric(partial(_measure_chrf, word_order=word_order, lowercase=lowercase))(hypotheses, references)


def perplexity(total_log_probability: float, tokens: int) -> Score:
    """exp(-log p / tokens), from the summed natural log probability of all target tokens."""
    if tokens < 1:
        raise DataError(f"perplexity needs at least one token, found {tokens}")
    entropy = -total_log_probability / tokens
    value = math.exp(entropy) if entropy < 700 else math.inf
    return Score("perplexity", value, "perplexity", "", {"tokens": tokens, "cross_entropy": entropy}, False)


def find_metric(metric: str | Metric) -> Metric:
    """A metric by its name."""
    if isinstance(metric, Metric):
        return metric
    if metric not in METRICS:
        raise ConfigError(f"unknown metric '{metric}'; known: {', '.join(METRICS)}")
    return METRICS[metric]


def compute(names: Iterable[str], hypotheses: Sequence[str], references: References) -> dict[str, Score]:
    """Several metrics of the same lines, by name."""
    metrics = {name: find_metric(name) for name in names}
    return {name: metric(hypotheses, references) for name, metric in metrics.items()}


# Scores by length


@dataclass(frozen=True)
class LengthRow:
    """The score of the lines whose source has first … last tokens (both included)."""

    first: int
    last: int
    count: int
    value: float


def choose_bins(lengths: Sequence[int], number: int = 8) -> list[int]:
    """Upper limits of about `number` bins of equal width, wider where a bin would hold too few lines."""
    values, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    lines = int(counts.sum())
    fewest = max(1, lines // 40, min(20, lines // number))
    low, high = np.percentile(lengths, [1, 99])  # outliers do not stretch the bins
    width = max(1, math.ceil((high - low + 1) / number))
    limits, start, held, previous = [], int(low), 0, 0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value >= start + width and held >= fewest:
            limits.append(previous)
            start, held = value, 0
        held, previous = held + count, value
    if held < fewest:  # too few lines are left: they join the last bin
        limits = limits[:-1]
    return [*limits, previous]


def by_length(
    metric: str | Metric,
    lengths: Sequence[int],
    hypotheses: Sequence[str],
    references: References,
    bins: Sequence[int] | None = None,
) -> list[LengthRow]:
    """Scores by source length; `bins` are upper limits, each included, and a last bin holds what is longer."""
    if len(lengths) != len(hypotheses):
        raise DataError(f"{len(lengths)} source lengths but {len(hypotheses)} hypotheses: the lines do not correspond")
    counts = find_metric(metric).count(hypotheses, references)
    limits = sorted(set(choose_bins(lengths) if bins is None else bins))
    place = np.searchsorted(limits, lengths)  # limits[place - 1] < length <= limits[place]
    longest = max(lengths)
    rows = []
    for index in range(len(limits) + 1):
        inside = (place == index).astype(np.float64)
        if count := int(inside.sum()):
            first = limits[index - 1] + 1 if index else min(lengths)
            last = limits[index] if index < len(limits) else longest
            rows.append(LengthRow(first, last, count, counts.score(inside).value))
    return rows


# Bootstrap (Koehn 2004)


@dataclass(frozen=True)
class Interval:
    """A score and the middle 95 % of its bootstrap samples."""

    value: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same lines; the difference is b - a."""

    a: float
    b: float
    difference: float
    low: float  # 95 % interval of the difference
    high: float
    p_value: float  # two-sided: how often chance alone makes a difference as large
    samples: int


def confidence(
    metric: str | Metric, system: Sequence[str], references: References, samples: int = 1000, seed: int = 1
) -> Interval:
    """95 % interval of one system's score."""
    counts = find_metric(metric).count(system, references)
    (values,) = _resample([counts], samples, seed)
    low, high = np.percentile(values, [2.5, 97.5])
    return Interval(counts.score().value, float(low), float(high), samples)


def paired_bootstrap(
    metric: str | Metric,
    system_a: Sequence[str],
    system_b: Sequence[str],
    references: References,
    samples: int = 1000,
    seed: int = 1,
) -> Comparison:
    """Is b better than a by more than the choice of test lines explains?"""
    metric = find_metric(metric)
    counts = [metric.count(system, references) for system in (system_a, system_b)]
    a, b = (item.score().value for item in counts)
    values_a, values_b = _resample(counts, samples, seed)
    differences = values_b - values_a
    low, high = np.percentile(differences, [2.5, 97.5])
    # the samples are moved to mean 0, which is what no true difference would look like; ≥, so equal systems get p = 1
    chance = np.abs(differences - differences.mean()) >= abs(b - a) - 1e-9
    p_value = (int(chance.sum()) + 1) / (samples + 1)
    return Comparison(a, b, b - a, float(low), float(high), p_value, samples)


def _resample(systems: list[Counts], samples: int, seed: int) -> np.ndarray:
    """[systems, samples] scores; in one sample every system has the same lines."""
    if samples < 1:
        raise ConfigError(f"a bootstrap needs at least one sample, found {samples}")
    lines = len(systems[0].rows)
    generator = np.random.default_rng(seed)
    values = np.empty((len(systems), samples))
    for sample in range(samples):
        weights = np.bincount(generator.integers(lines, size=lines), minlength=lines).astype(np.float64)
        values[:, sample] = [counts.score(weights).value for counts in systems]
    return values
