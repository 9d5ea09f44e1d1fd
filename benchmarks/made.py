"""Made sentence pairs: as long as those of Multi30k, ids as frequent as words are (Zipf), all from a seed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.shapes import FIRST, SPECIALS

MEAN, DEVIATION = 14, 6  # tokens of a source
SHORTEST, LONGEST = 3, 50
BEGIN = 0x4E00  # the first of twenty thousand characters that no normalisation changes
CHANGE = 2  # standard deviation of target length − source length


@dataclass(frozen=True)
class Rows:
    """Sentences as ids, one after the other; sentence n is `ids[ends[n]:ends[n + 1]]`."""

    ids: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        return self.ids[self.ends[number] : self.ends[number + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[number] for number in range(len(self)))

    def lengths(self) -> np.ndarray:
        """Tokens of each sentence."""
        return np.diff(self.ends)


@dataclass(frozen=True)
class Pairs:
    """Made sources and targets, without begin or end."""

    source: Rows
    target: Rows

    def __len__(self) -> int:
        return len(self.source)


def make_pairs(number: int, seed: int, vocabulary: int, length: int = 0) -> Pairs:
    """So many pairs from a seed; with `length` all are exactly so long, end of sentence counted."""
    generator = np.random.default_rng(seed)
    if length:
        source = target = np.full(number, length - 1)
    else:
        source = _between(generator.normal(MEAN, DEVIATION, number))
        target = _between(source + generator.normal(0, CHANGE, number))
    return Pairs(*(_fill(lengths, generator, vocabulary) for lengths in (source, target)))


def make_lesson(number: int, seed: int, vocabulary: int, length: int) -> Pairs:
    """Made sources that all have one target, `length` tokens long with its end counted."""
    sentence = FIRST + np.arange(length - 1) % (vocabulary - FIRST)
    ends = np.arange(number + 1) * len(sentence)
    return Pairs(make_pairs(number, seed, vocabulary).source, Rows(np.tile(sentence, number), ends))


def _between(lengths: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(lengths), SHORTEST, LONGEST).astype(np.int64)


def _fill(lengths: np.ndarray, generator: np.random.Generator, vocabulary: int) -> Rows:
    """Ids whose frequency falls as 1 / rank: their logarithm is even."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    kinds = vocabulary - FIRST
    ranks = np.floor((kinds + 1) ** generator.random(ends[-1])).astype(np.int64) - 1
    return Rows(FIRST + np.minimum(ranks, kinds - 1), ends)


def characters(vocabulary: int) -> list[str]:
    """The character that stands for each id from FIRST on, so that text has as many tokens as ids."""
    return [chr(BEGIN + number) for number in range(vocabulary - FIRST)]


def pieces(vocabulary: int) -> list[str]:
    """A name for every id but the specials, for toolkits that want names."""
    return [f"p{number}" for number in range(SPECIALS, vocabulary)]


def spell(ids: Iterable[int]) -> str:
    """Ids as text; one that has no character shows as a question mark."""
    return "".join([chr(BEGIN + number - FIRST) if number >= FIRST else "?" for number in ids])


def write_lines(path: Path, *columns: Rows) -> None:
    """Sentences as text; two columns make a file of pairs."""
    with path.open("w", encoding="utf-8") as stream:
        for rows in zip(*columns, strict=True):
            stream.write("\t".join(spell(row.tolist()) for row in rows) + "\n")


def read_lines(path: Path) -> list[list[int]]:
    """The ids of a file of text."""
    with path.open(encoding="utf-8") as stream:
        return [[ord(character) - BEGIN + FIRST for character in line.rstrip("\n")] for line in stream]


def save_batches(path: Path, pairs: Pairs, batches: Sequence[np.ndarray]) -> None:
    """Pairs, and which of them go together, as one file that needs nothing but numpy."""
    sizes = np.array([len(batch) for batch in batches])
    sides = {
        f"{name}_{part}": getattr(getattr(pairs, name), part)
        for name in ("source", "target")
        for part in ("ids", "ends")
    }
    np.savez(path, order=np.concatenate(batches), sizes=sizes, **sides)


def load_batches(path: Path) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """The sources and the targets of each batch."""
    with np.load(path) as content:
        pairs = Pairs(*(Rows(content[f"{name}_ids"], content[f"{name}_ends"]) for name in ("source", "target")))
        batches = np.split(content["order"], np.cumsum(content["sizes"])[:-1])
    return [([pairs.source[n] for n in batch], [pairs.target[n] for n in batch]) for batch in batches]


def pad(rows: Sequence[Sequence[int] | np.ndarray], padding: int, begin: int | None, end: int | None) -> np.ndarray:
    """Rows as one matrix, each between its begin and its end, in a toolkit's own special ids."""
    before, after = ([] if special is None else [special] for special in (begin, end))
    whole = [[*before, *row, *after] for row in rows]
    matrix = np.full((len(whole), max(map(len, whole))), padding, dtype=np.int64)
    for number, row in enumerate(whole):
        matrix[number, : len(row)] = row
    return matrix


def typical(number: int, seed: int, vocabulary: int, length: int = 0) -> list[list[int]]:
    """Sources of middle length (or of this one), as batches that are sorted by length have them."""
    source = make_pairs(max(400, 4 * number), seed, vocabulary, length).source
    order = np.argsort(source.lengths(), kind="stable")
    first = (len(order) - number) // 2
    return [source[int(place)].tolist() for place in order[first : first + number]]
