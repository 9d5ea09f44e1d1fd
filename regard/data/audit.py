"""What is wrong with a corpus: empty, identical, repeated, contradicting, lopsided and too long pairs.

Pairs are counted as they stream by. Of each only two 64-bit hashes are kept (16 bytes), so repetition
within a corpus and overlap between training and test are found without holding the text.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from regard.data.text import Pair

EXAMPLES = 5  # line numbers shown of each kind of problem
PARTS = 16  # the hashes are sorted in so many parts, to need little memory beside them
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Lengths:
    """The lengths of one side, in tokens."""

    mean: float
    percentiles: dict[str, int]  # "50", "90", "95", "99"
    longest: int


@dataclass(frozen=True)
class Report:
    """Counts over the pairs of one corpus."""

    pairs: int
    empty_source: int
    empty_target: int
    identical: int  # source equal to target, both not empty
    duplicates: int  # pairs seen before
    contradicting: int  # pairs whose source also occurs with another target
    lopsided: int  # one side more than `ratio` times as long as the other
    too_long: int  # a side of more than `max_length` tokens
    source_length: Lengths
    target_length: Lengths
    examples: dict[str, tuple[int, ...]]  # the first line numbers (from 1) of each kind of problem

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Overlap:
    """Pairs of a held-out corpus that training has seen."""

    pairs: int  # of the held-out corpus
    seen_pairs: int  # source and target as in training
    seen_sources: int  # the source occurs in training, with whatever target
    examples: tuple[int, ...]  # first line numbers (from 1) of the held-out corpus with a seen source

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


class Audit:
    """Counts while pairs go by; `report` tells the result."""

    def __init__(self, max_length: int = 0, ratio: float = 9.0) -> None:
        self.max_length, self.ratio = max_length, ratio  # max_length 0: nothing is too long
        self._sources, self._pairs = array("Q"), array("Q")
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, list[int]] = {}
        self._lengths: tuple[Counter[int], Counter[int]] = (Counter(), Counter())

    def __len__(self) -> int:
        return len(self._pairs)

    def add(self, pair: Pair, source_length: int | None = None, target_length: int | None = None) -> None:
        """Count one pair; lengths are in tokens, in words if they are not given."""
        source, target = pair.source.strip(), pair.target.strip()
        lengths = (
            len(source.split()) if source_length is None else source_length,
            len(target.split()) if target_length is None else target_length,
        )
        self._sources.append(_hash(source))
        self._pairs.append(_hash(f"{len(source)} {source}{target}"))
        for counter, length in zip(self._lengths, lengths, strict=True):
            counter[length] += 1
        self._note("empty_source", not source)
        self._note("empty_target", not target)
        self._note("identical", source == target and bool(source))
        self._note("lopsided", min(lengths) > 0 and max(lengths) > self.ratio * min(lengths))
        self._note("too_long", 0 < self.max_length < max(lengths))

    def add_all(self, pairs: Iterable[Pair]) -> "Audit":
        """Count many pairs, with their lengths in words."""
        for pair in pairs:
            self.add(pair)
        return self

    def _note(self, kind: str, found: bool) -> None:
        if found:
            self._counts[kind] += 1
            examples = self._examples.setdefault(kind, [])
            if len(examples) < EXAMPLES:
                examples.append(len(self))

    def report(self) -> Report:
        """The counts so far."""
        repeated, contradicting = self._compare()
        examples = {kind: tuple(numbers) for kind, numbers in self._examples.items()}
        for kind, numbers in (("duplicates", repeated), ("contradicting", contradicting)):
            if len(numbers):
                examples[kind] = _first(numbers)
        source, target = map(_summarise, self._lengths)
        names = ("empty_source", "empty_target", "identical", "lopsided", "too_long")
        return Report(
            pairs=len(self),
            duplicates=len(repeated),
            contradicting=len(contradicting),
            source_length=source,
            target_length=target,
            examples=examples,
            **{name: self._counts[name] for name in names},
        )

    def _compare(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of pairs seen before, and of pairs that contradict another; empty sources contradict nothing."""
        sources, pairs = _view(self._sources), _view(self._pairs)
        top = np.empty(len(sources), dtype=np.uint8)
        np.right_shift(sources, np.uint64(60), out=top, casting="unsafe")
        repeated, contradicting = [], []
        for part in range(PARTS):
            places = np.flatnonzero(top == part)
            places = places[np.lexsort((places, pairs[places], sources[places]))]
            source, pair = sources[places], pairs[places]
            again = np.zeros(len(places), dtype=bool)
            again[1:] = pair[1:] == pair[:-1]
            repeated.append(places[again])
            _, group, variants = np.unique(source[~again], return_inverse=True, return_counts=True)
            several = np.unique(source[~again][variants[group] > 1])
            contradicting.append(places[np.isin(source, several[several != _hash("")])])
        return np.concatenate(repeated), np.concatenate(contradicting)

    def overlap(self, held_out: "Audit") -> Overlap:
        """What of a held-out corpus occurs in this one, the training corpus; empty sources do not count."""
        sources, pairs = _view(held_out._sources), _view(held_out._pairs)
        real = sources != _hash("")
        seen_sources = np.flatnonzero(_occur(sources, _view(self._sources)) & real)
        seen_pairs = _occur(pairs, _view(self._pairs)) & real
        return Overlap(len(held_out), int(seen_pairs.sum()), len(seen_sources), _first(seen_sources))


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _view(hashes: array) -> np.ndarray:
    """The same memory as numpy sees it; a copy only when there is none."""
    return np.frombuffer(hashes, dtype=np.uint64) if hashes else np.empty(0, dtype=np.uint64)


def _occur(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    """Which of the few are among the many: only the few are sorted."""
    ordered = np.unique(few)
    found = np.zeros(len(ordered), dtype=bool)
    for begin in range(0, len(many) if len(few) else 0, 1 << 20):
        chunk = many[begin : begin + (1 << 20)]
        places = np.minimum(np.searchsorted(ordered, chunk), len(ordered) - 1)
        found[places[ordered[places] == chunk]] = True
    return found[np.searchsorted(ordered, few)]


def _first(places: np.ndarray) -> tuple[int, ...]:
    return tuple((np.sort(places)[:EXAMPLES] + 1).tolist())


def _summarise(counts: Counter[int]) -> Lengths:
    values = np.array(sorted(counts), dtype=np.int64)
    weights = np.array([counts[value] for value in values.tolist()], dtype=np.int64)
    total = int(weights.sum())
    if not total:
        return Lengths(0.0, dict.fromkeys(map(str, PERCENTILES), 0), 0)
    upto = np.cumsum(weights)
    percentiles = {str(share): int(values[np.searchsorted(upto, total * share / 100)]) for share in PERCENTILES}
    return Lengths(float((values * weights).sum() / total), percentiles, int(values[-1]))
