"""A made pair of languages whose word alignment is known: a gold set for aligners that needs no annotators.

Words are numbered by frequency (p ∝ 1 / rank, as Zipf found), so that many occur once or twice in a corpus. A source
sentence is a row of units; what becomes of each is settled by the dictionary once, as in real languages:

    most words       one word, of one or two translations
    phrases          one source word → two target words ("gestern" → "last night")
    compounds        two source words → one target word ("hard hat" → "Schutzhelm")
    dropped          a source function word that is not translated at all

Then neighbouring units change places now and then, one unit may go to the end (as a German verb does), the two parts
of a sentence may change places (as clauses do), and function words that translate nothing are put in between. Every
link is sure; inserted and dropped words have none.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import ConfigError

Link = tuple[int, int]


@dataclass(frozen=True)
class AlignedPair:
    """A made sentence pair and its true links, (source, target) token numbers from 0."""

    source: str
    target: str
    links: tuple[Link, ...]

    @property
    def pair(self) -> tuple[str, str]:
        return self.source, self.target


@dataclass(frozen=True)
class Entry:
    """What one unit of the source is called, and what may stand for it in the target."""

    source: tuple[str, ...]
    targets: tuple[tuple[str, ...], ...]  # the first one twice as often as the second


@dataclass(frozen=True)
class Habits:
    """How the two languages differ, as probabilities."""

    phrases: float = 0.10  # of words with two target words
    compounds: float = 0.10  # of units with two source words
    second: float = 0.3  # of words with a second translation
    dropped: float = 0.08  # of a source function word before a unit
    inserted: float = 0.12  # of a target function word before a unit
    swapped: float = 0.15  # of neighbours that change places
    moved: float = 0.25  # of sentences with a unit that goes to the end
    turned: float = 0.15  # of sentences whose second part comes first


def _dictionary(words: int, habits: Habits, generator: random.Random) -> list[Entry]:
    """Every unit with its translations; the words of phrases and compounds are shared with others."""
    entries = list[Entry]()
    for number in range(words):
        source: tuple[str, ...] = (f"s{number}",)
        targets: tuple[tuple[str, ...], ...] = ((f"t{number}",),)
        kind = generator.random()
        if number and kind < habits.compounds:
            source = (f"s{generator.randrange(number)}", f"s{number}")
        elif number and kind < habits.compounds + habits.phrases:
            targets = ((f"t{number}", f"t{generator.randrange(number)}"),)
        elif generator.random() < habits.second:
            targets = (*targets, (f"u{number}",))
        entries.append(Entry(source, targets))
    return entries


def _reorder(units: list[int], habits: Habits, generator: random.Random) -> list[int]:
    """The units in the order of the target."""
    order, place = list(units), 0
    while place < len(order) - 1:
        if generator.random() < habits.swapped:
            order[place : place + 2] = order[place + 1], order[place]
            place += 1
        place += 1
    if len(order) > 2 and generator.random() < habits.moved:
        order.append(order.pop(generator.randrange(1, len(order))))
    if len(order) > 3 and generator.random() < habits.turned:
        cut = generator.randrange(2, len(order) - 1)
        order = order[cut:] + order[:cut]
    return order


def _write(units: Sequence[Entry], habits: Habits, generator: random.Random) -> AlignedPair:
    source, target, links = list[str](), list[str](), list[Link]()
    places = list[range]()
    for unit in units:
        if generator.random() < habits.dropped:
            source.append(generator.choice(("of", "do", "s0")))
        places.append(range(len(source), len(source) + len(unit.source)))
        source += unit.source
    for number in _reorder(list(range(len(units))), habits, generator):
        if generator.random() < habits.inserted:
            target.append(generator.choice(("den", "zu", "t0")))
        choices = units[number].targets
        chosen = choices[0] if len(choices) == 1 or generator.random() < 2 / 3 else choices[1]
        links += [(place, len(target) + step) for place in places[number] for step in range(len(chosen))]
        target += chosen
    return AlignedPair(" ".join(source), " ".join(target), tuple(sorted(links)))


def aligned_pairs(
    number: int,
    seed: int = 1,
    words: int = 2000,
    shortest: int = 3,
    longest: int = 14,
    habits: Habits | None = None,
) -> list[AlignedPair]:
    """Made sentence pairs of `shortest` to `longest` units with their true alignment; `words` units are known."""
    if number < 0 or words < 1 or not 0 < shortest <= longest:
        raise ConfigError(
            f"cannot make {number} pairs of {shortest} to {longest} units out of {words}: "
            "expected number ≥ 0, words ≥ 1, 0 < shortest ≤ longest"
        )
    habits = habits or Habits()
    generator = random.Random(f"bilingual {seed}")
    entries = _dictionary(words, habits, generator)
    chances = [1 / (rank + 1) for rank in range(words)]
    return [
        _write(generator.choices(entries, chances, k=generator.randint(shortest, longest)), habits, generator)
        for _ in range(number)
    ]
