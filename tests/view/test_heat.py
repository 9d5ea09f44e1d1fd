import re
import xml.etree.ElementTree as ElementTree

from regard.view.heat import draw_heat


def test_a_cell_for_each_weight_that_can_be_seen():
    drawn = draw_heat([[0.5, 0.25], [0.001, 0.0]], ["b", "a"], ["a", "longer-than-a-label-may-be"], "attention of x")
    root = ElementTree.fromstring(drawn)
    cells = [element for element in root if element.tag == "rect" and "fill-opacity" in element.attrib]
    assert [cell.attrib["fill-opacity"] for cell in cells] == ["1.000", "0.500"]
    assert cells[0][0].text == "b looks at a: 0.500"
    assert 'fill-opacity="0.625"' in draw_heat([[0.5, 0.25]], ["b"], ["a", "b"], "x", strongest=0.8), "a scale for many"
    words = [element.text for element in root if element.tag == "text"]
    assert words == ["a", "longer-than-a…", "b", "a"]
    width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', drawn).groups())
    assert all(float(cell.attrib["x"]) + 18 <= width for cell in cells)
    assert all(float(cell.attrib["y"]) + 18 <= height for cell in cells)


def test_hostile_words_stay_words(payloads, parse):
    found = parse(draw_heat([[1.0] * len(payloads)], ["x"], payloads, payloads[0]))
    assert set(found.tags) == {"svg", "rect", "text", "title"}


def test_nothing_looked_at():
    ElementTree.fromstring(draw_heat([[0.0]], ["a"], ["b"], ""))
    ElementTree.fromstring(draw_heat([], [], [], ""))
