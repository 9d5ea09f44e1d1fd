"""Links between tokens, and their files in Pharaoh form: a line for each pair, `source-target` numbers from 0.

A gold file tells sure links, `3-4`, from possible ones, `3?4`, of which people were not sure (Och & Ney 2003).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
