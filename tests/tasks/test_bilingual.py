"""The made pair of languages: what is said of it is true."""

from collections import Counter, defaultdict

import pytest

from regard.errors import ConfigError
from regard.tasks.bilingual import Habits, aligned_pairs

PLAIN = Habits(0, 0, 0, 0, 0, 0, 0, 0)


def words(text: str) -> list[str]:
    return text.split(" ")


@pytest.fixture(scope="module")
def pairs():
    return aligned_pairs(800)


def test_the_same_seed_gives_the_same(pairs):
    assert aligned_pairs(800) == pairs
    assert aligned_pairs(20, seed=2) != pairs[:20]
    assert aligned_pairs(0) == []


def test_links_lie_inside_and_join_words_of_one_entry(pairs):
    """A source word and a target word that are linked have a number of the same unit between them."""
    partners = defaultdict(set)
    for pair in pairs:
        source, target = words(pair.source), words(pair.target)
        for i, j in pair.links:
            partners[source[i]].add(target[j])
        assert len(set(pair.links)) == len(pair.links)
    once = {f"s{number}" for number in range(400, 2000)} & partners.keys()
    assert once
    assert all(len(partners[word]) <= 4 for word in once)


def test_all_habits_occur(pairs):
    sources, targets = Counter(), Counter()
    crossing = unlinked_sources = unlinked_targets = 0
    for pair in pairs:
        by_source, by_target = Counter(i for i, _ in pair.links), Counter(j for _, j in pair.links)
        sources.update(by_source.values())
        targets.update(by_target.values())
        unlinked_sources += len(words(pair.source)) - len(by_source)
        unlinked_targets += len(words(pair.target)) - len(by_target)
        crossing += any(a < c and b > d for a, b in pair.links for c, d in pair.links)
    assert set(sources) == set(targets) == {1, 2}
    assert min(sources[2], targets[2], unlinked_sources, unlinked_targets) > 100
    assert 400 < crossing < 800


def test_without_habits_it_is_word_for_word():
    for pair in aligned_pairs(50, habits=PLAIN):
        assert pair.target == pair.source.replace("s", "t")
        assert pair.links == tuple((place, place) for place in range(len(words(pair.source))))
        assert pair.pair == (pair.source, pair.target)


def test_words_are_as_frequent_as_zipf_says():
    counts = Counter(word for pair in aligned_pairs(2000, habits=PLAIN) for word in words(pair.source))
    assert counts["s0"] / counts["s9"] == pytest.approx(10, rel=0.3)
    assert sum(count == 1 for count in counts.values()) > 100


@pytest.mark.parametrize("wrong", [{"number": -1}, {"words": 0}, {"shortest": 0}, {"shortest": 5, "longest": 4}])
def test_mistakes_are_named(wrong):
    with pytest.raises(ConfigError, match="cannot make"):
        aligned_pairs(**{"number": 3, **wrong})
