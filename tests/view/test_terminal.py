import io

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.view.record import AttentionView
from regard.view.terminal import fit, heat_map, print_attention, upright, written_lines


def printed(view, width=80, **options) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    print_attention(view, console)
    return console.file.getvalue()


def test_without_colour_there_are_blocks(report):
    text = printed(report.views[0], color_system=None)
    assert "█" in text
    assert "\x1b" not in text
    assert "Katze" in text
    assert "of 4, the most telling" in text


@pytest.mark.parametrize(("system", "code"), [("truecolor", "\x1b[48;2;"), ("256", "\x1b[48;5;")])
def test_with_colour_there_are_backgrounds(report, system, code):
    view = report.views[system == "256"]  # rich remembers how it wrote a style: take other weights
    text = printed(view, force_terminal=True, color_system=system)
    assert code in text
    assert "█" not in text


def test_no_color_is_honoured(report):
    assert "█" in printed(report.views[0], force_terminal=True, color_system="truecolor", no_color=True)


@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_nothing_is_wider_than_the_terminal(width):
    rows = ["short", "Donaudampfschifffahrtsgesellschaftskapitän", "欧洲经济区欧洲经济区欧洲经济区"]
    columns = ["欧洲", "cafe\u0301", "a"] * 20
    weights = np.random.default_rng(0).random((3, 60))
    lines = list(heat_map(weights, rows, columns, width, colour=False))
    assert max(cell_len(line.plain) for line in lines) <= width


def test_wide_sentences_are_cut_into_panels():
    weights = np.eye(2, 50)
    lines = [line.plain for line in heat_map(weights, ["a", "b"], ["x"] * 50, width=30, colour=False)]
    assert sum(line.startswith("a ") for line in lines) == 4


def test_labels():
    assert fit("cat", 5) == "  cat"
    assert fit("elephant", 5) == "elep…"
    assert cell_len(fit("欧洲经济区", 6)) == 6
    assert list(upright(["ab", "c"], 2)) == ["a", "b c"]
    assert list(upright(["e\u0301x"], 2)) == ["e\u0301", "x"]


def test_escape_codes_do_not_reach_the_terminal(hostile_report):
    text = printed(hostile_report.views[0], color_system=None)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x00" not in text


def test_markup_is_not_markup(make_view):
    text = printed(make_view(["[bold]", "[/]"], ["[red]x", "</s>"]), color_system=None)
    assert "[red]x" in text
    assert "[bold] [/]" in text


def test_without_attention():
    assert "no attention" in printed(AttentionView(["a"], ["b"], "a", "b", 0.0, []), color_system=None)


def test_how_all_words_were_written(parallel_report):
    lines = [line.plain for line in written_lines(parallel_report.views[0])]
    assert lines[1].startswith("fertilities a·1 ")
    assert lines[1].endswith("</s>·0")
    assert [line.split()[:2] for line in lines[3:]] == [["pass", "1"], ["pass", "2"]]
    assert lines[4].split()[2:] == ["ein", "Hund"]
