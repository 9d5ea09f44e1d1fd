"""Shortlists: what is linked often comes first, and what is frequent is for all."""

from regard.align.bitext import Bitext
from regard.align.links import Alignment
from regard.align.shortlist import make_shortlist

ROWS = [([4, 5], [14, 15]), ([4, 6], [14, 16]), ([4], [17]), ([6, 5], [15, 16])]
LINKS = [{(0, 0), (1, 1)}, {(0, 0), (1, 1)}, {(0, 0)}, {(0, 1), (1, 0)}]


def test_what_is_linked_often_comes_first():
    bitext, links = Bitext.read(ROWS, 100), Alignment.pack(LINKS)
    found = make_shortlist(bitext, links, each=2, common=3)
    assert found.of == {4: [14, 17], 5: [15], 6: [16]}
    assert found.common == [14, 15, 16]
    assert make_shortlist(bitext, links, each=1, common=1).of[4] == [14]
    assert next(found.lines()) == "\t14 15 16"
    assert sorted(found.lines())[1:] == ["4\t14 17", "5\t15", "6\t16"]
