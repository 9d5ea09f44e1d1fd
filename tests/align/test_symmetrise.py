"""Two directions put together, against examples worked by hand."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from regard.align.symmetrise import SYMMETRISE

# source 0 1 2 3 4 down, target 0 1 2 3 4 across; F forward, B backward, X both
#        0 1 2 3 4
#    0   X . . . .
#    1   . X F . .      (1,2): beside (1,1); target 2 has no link yet → grown
#    2   . B . . .      (2,1): beside (1,1); source 2 has no link yet → grown
#    3   . . . . F      (3,4): beside nothing that is taken; both free → final-and
#    4   . . . B .      (4,3): both free → final-and
#    5   . . . B .      (5,3): only the source is free then → final alone
FORWARD = frozenset({(0, 0), (1, 1), (1, 2), (3, 4)})
BACKWARD = frozenset({(0, 0), (1, 1), (2, 1), (4, 3), (5, 3)})
BOTH = {(0, 0), (1, 1)}
GROWN = BOTH | {(1, 2), (2, 1)}


def combine(kind: str, forward: frozenset = FORWARD, backward: frozenset = BACKWARD) -> set:
    return set(SYMMETRISE[kind](forward, backward))  # type: ignore[index]


def test_the_example():
    assert combine("intersection") == BOTH
    assert combine("union") == FORWARD | BACKWARD
    assert combine("grow-diag") == GROWN
    assert combine("grow-diag-final-and") == GROWN | {(3, 4), (4, 3)}
    assert combine("grow-diag-final") == GROWN | {(3, 4), (4, 3), (5, 3)}


def test_growing_goes_on_from_what_was_grown():
    forward = frozenset({(0, 0), (1, 1), (2, 2), (3, 3)})
    assert combine("grow-diag", forward, frozenset({(0, 0)})) == forward
    backwards = frozenset({(3, 0), (2, 1), (1, 2), (0, 3)})  # against the order in which links are looked at
    assert combine("grow-diag", backwards, frozenset({(3, 0)})) == backwards


def test_a_neighbour_whose_tokens_both_have_links_is_not_taken():
    forward = frozenset({(0, 0), (1, 1), (0, 1)})
    assert combine("grow-diag", forward, frozenset({(0, 0), (1, 1)})) == {(0, 0), (1, 1)}


def test_nothing_in_common():
    one, other = frozenset({(0, 0), (1, 0)}), frozenset({(1, 1)})
    assert combine("grow-diag", one, other) == set()
    # forward is looked at first: 0-0 has two free tokens, 1-0 only its source; then 1-1 of backward has two
    assert combine("grow-diag-final-and", one, other) == {(0, 0), (1, 1)}
    assert combine("grow-diag-final", one, other) == {(0, 0), (1, 0), (1, 1)}
    for kind in SYMMETRISE:
        assert combine(kind, frozenset(), frozenset()) == set()


LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)))


@given(LINKS, LINKS)
def test_what_holds_what(forward, backward):
    found = {kind: combine(kind, forward, backward) for kind in SYMMETRISE}
    for final in ("grow-diag-final-and", "grow-diag-final"):
        order = ("intersection", "grow-diag", final, "union")
        for less, more in itertools.pairwise(order):
            assert found[less] <= found[more]
    # with `final` no token that either direction links is left out
    for side in (0, 1):
        assert {link[side] for link in found["grow-diag-final"]} == {link[side] for link in found["union"]}
