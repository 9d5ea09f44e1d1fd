"""What an audit counts, checked against plain counting."""

import random
from collections import Counter, defaultdict

from regard.data.audit import Audit
from regard.data.text import Pair

PAIRS = [
    Pair("a b", "x"),
    Pair("", "y"),
    Pair("c", " "),
    Pair("same", "same"),
    Pair("a b", "x"),
    Pair("a b", "z"),
    Pair("d", "one two three four five six seven eight nine ten"),
    Pair("", ""),
    Pair("", "y"),
]


def test_each_kind_of_problem_is_counted_and_located():
    report = Audit(max_length=9).add_all(PAIRS).report()
    counts = {name: value for name, value in report.to_dict().items() if isinstance(value, int)}
    assert counts == {
        "pairs": 9,
        "empty_source": 3,
        "empty_target": 2,
        "identical": 1,
        "duplicates": 2,
        "contradicting": 3,
        "lopsided": 1,
        "too_long": 1,
    }
    assert report.examples == {
        "empty_source": (2, 8, 9),
        "empty_target": (3, 8),
        "identical": (4,),
        "duplicates": (5, 9),
        "contradicting": (1, 5, 6),
        "lopsided": (7,),
        "too_long": (7,),
    }


def test_lengths_are_those_given():
    audit = Audit(max_length=98, ratio=1000)
    for number in range(1, 101):
        audit.add(Pair(str(number), "x"), number, 2 * number)
    report = audit.report()
    assert report.source_length.percentiles == {"50": 50, "90": 90, "95": 95, "99": 99}
    assert (report.source_length.mean, report.source_length.longest) == (50.5, 100)
    assert (report.target_length.mean, report.target_length.longest) == (101, 200)
    assert report.too_long == 51  # the target counts too
    assert report.lopsided == 0
    assert report.examples == {"too_long": (50, 51, 52, 53, 54)}


def test_repetition_agrees_with_plain_counting():
    chance = random.Random(1)
    pairs = [Pair(f"s{chance.randint(0, 300)}", f"t{chance.randint(0, 5)}") for _ in range(800)]
    report = Audit().add_all(pairs).report()
    targets = defaultdict(set)
    for pair in pairs:
        targets[pair.source].add(pair.target)
    assert report.duplicates == len(pairs) - len(set(pairs))
    assert report.contradicting == sum(len(targets[pair.source]) > 1 for pair in pairs)
    seen = Counter()
    again = [number for number, pair in enumerate(pairs, 1) if seen.update([pair]) or seen[pair] > 1]
    assert report.examples["duplicates"] == tuple(again[:5])


def test_where_a_pair_is_divided_matters():
    report = Audit().add_all([Pair("a", "bc"), Pair("ab", "c")]).report()
    assert (report.duplicates, report.contradicting) == (0, 0)


def test_overlap_with_training():
    train = Audit().add_all([Pair("a", "x"), Pair("b", "y"), Pair("", "")])
    test = Audit().add_all([Pair("q", "x"), Pair("a", "x"), Pair("b", "other"), Pair("", ""), Pair("a", "x")])
    overlap = train.overlap(test)
    assert (overlap.pairs, overlap.seen_pairs, overlap.seen_sources) == (5, 2, 3)
    assert overlap.examples == (2, 3, 5)
    assert overlap.to_dict()["seen_pairs"] == 2


def test_nothing_is_a_corpus_too():
    nothing = Audit()
    assert nothing.report().pairs == 0
    assert nothing.report().source_length.longest == 0
    assert nothing.overlap(Audit().add_all(PAIRS)).seen_sources == 0
    assert Audit().add_all(PAIRS).overlap(nothing).seen_sources == 0
