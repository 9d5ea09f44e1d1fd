"""Links between tokens, and their files in Pharaoh form: a line for each pair, `source-target` numbers from 0.

A gold file tells sure links, `3-4`, from possible ones, `3?4`, of which people were not sure (Och & Ney 2003).
"""

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np

from regard.data.text import read_lines
from regard.errors import DataError

Link = tuple[int, int]  # source and target token, from 0
Links = frozenset[Link]
FORM = re.compile(r"([0-9]{1,9})([-?])([0-9]{1,9})")


@dataclass(frozen=True)
class Gold:
    """What people say of one pair; a sure link is a possible one too."""

    sure: Links
    possible: Links


class Alignment(Sequence[Links]):
    """The links of every pair of a corpus, 8 bytes each; those of one pair become a set when they are asked for."""

    def __init__(self, pairs: int, rows: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> None:
        """`rows` says to which of the pairs each link belongs; the order of links does not matter."""
        order = np.lexsort((targets, sources, rows))
        self.starts = np.searchsorted(rows[order], np.arange(pairs + 1))
        self.sources, self.targets = sources[order].astype(np.int32), targets[order].astype(np.int32)

    @classmethod
    def pack(cls, alignment: Iterable[Iterable[Link]]) -> "Alignment":
        """The links of pairs that come one after the other."""
        columns, number = (array("q"), array("i"), array("i")), -1
        for number, links in enumerate(alignment):
            for link in links:
                for column, value in zip(columns, (number, *link), strict=True):
                    column.append(value)
        return cls(number + 1, *(np.array(column) for column in columns))

    def turned(self) -> "Alignment":
        """The same with source and target exchanged."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return Alignment(len(self), rows, self.targets, self.sources)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, number: int) -> Links: ...

    @overload
    def __getitem__(self, number: slice) -> list[Links]: ...

    def __getitem__(self, number: int | slice) -> Links | list[Links]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        number += len(self) if number < 0 else 0
        if not 0 <= number < len(self):
            raise IndexError(number)
        part = slice(self.starts[number], self.starts[number + 1])
        return frozenset(zip(self.sources[part].tolist(), self.targets[part].tolist(), strict=True))


def write_links(links: Iterable[Link]) -> str:
    """Links as one line, in order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_links(path: str | Path, lengths: Sequence[tuple[int, int]]) -> list[Gold]:
    """The links of a Pharaoh file, for as many pairs as there are `lengths` of (source, target)."""
    lines = list(read_lines(path))
    if len(lines) != len(lengths):
        raise DataError(f"{path} has {len(lines)} lines, but there are {len(lengths)} pairs")
    return [
        _parse(f"{path}: line {number}", line, pair)
        for number, (line, pair) in enumerate(zip(lines, lengths, strict=True), 1)
    ]


def _parse(where: str, line: str, lengths: tuple[int, int]) -> Gold:
    sure, possible = set[Link](), set[Link]()
    for word in line.split():
        match = FORM.fullmatch(word)
        if not match:
            raise DataError(f"{where}: expected links as 3-4 or 3?4, found {word!r}")
        link = int(match[1]), int(match[3])
        for place, length, side in zip(link, lengths, ("source", "target"), strict=True):
            if place >= length:
                raise DataError(f"{where}: {word} is outside the pair: its {side} has {length} tokens, counted from 0")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))
