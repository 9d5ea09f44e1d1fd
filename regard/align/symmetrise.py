"""One alignment from two directions: intersection, union, and what lies between (Och & Ney 2003; Koehn et al. 2005).

Where both directions agree a link is most often right. grow-diag starts from there and takes neighbours, diagonal
ones too, of the links it has, as long as a neighbour is in the union and gives a token its first link. `final` then
takes whatever link of a direction gives a token its first one; `final-and` only if it does so for both tokens.
"""

from collections.abc import Callable
from typing import Literal

from regard.align.links import Link, Links

Symmetrisation = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


class _Growing:
    """Links so far, and the tokens that have one."""

    def __init__(self, links: Links) -> None:
        self.links = set(links)
        self.sources = {source for source, _ in links}
        self.targets = {target for _, target in links}

    def add(self, link: Link) -> None:
        self.links.add(link)
        self.sources.add(link[0])
        self.targets.add(link[1])

    def free(self, link: Link) -> int:
        """How many of the two tokens have no link yet."""
        return (link[0] not in self.sources) + (link[1] not in self.targets)


def intersection(forward: Links, backward: Links) -> Links:
    """What both say: few links, most of them right."""
    return forward & backward


def union(forward: Links, backward: Links) -> Links:
    """What either says: many links, most of the right ones among them."""
    return forward | backward


def _grow(forward: Links, backward: Links) -> _Growing:
    growing, candidates = _Growing(forward & backward), sorted(forward | backward)
    known, grown = set(candidates), True
    while grown:
        grown = False
        for source, target in candidates:  # in order, so that a link just taken can be grown from in the same pass
            if (source, target) not in growing.links:
                continue
            for down, right in NEIGHBOURS:
                link = source + down, target + right
                if link in known and link not in growing.links and growing.free(link):
                    growing.add(link)
                    grown = True
    return growing


def grow_diag(forward: Links, backward: Links) -> Links:
    """The intersection, grown to neighbours."""
    return frozenset(_grow(forward, backward).links)


def _finish(forward: Links, backward: Links, fewest: int) -> Links:
    growing = _grow(forward, backward)
    for direction in (forward, backward):
        for link in sorted(direction):
            if growing.free(link) >= fewest:
                growing.add(link)
    return frozenset(growing.links)


def grow_diag_final(forward: Links, backward: Links) -> Links:
    """And what gives either token its first link."""
    return _finish(forward, backward, 1)


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """And what gives both tokens their first link."""
    return _finish(forward, backward, 2)


SYMMETRISE: dict[Symmetrisation, Callable[[Links, Links], Links]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final": grow_diag_final,
    "grow-diag-final-and": grow_diag_final_and,
}
