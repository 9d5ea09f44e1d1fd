import pytest

from regard.view.comparison import Chart, Look, Page, render_comparison, write_comparison
from regard.view.plots import plot_charts, plot_looks
from regard.view.tables import Table

NAMES = [f"row {number}" for number in range(11)]


@pytest.fixture
def page():
    def make(text: str = "text") -> Page:
        names = [f"{text} {number}" for number in range(11)]
        table = Table(["model", text], [[name, text] for name in names])
        return Page(
            title=text,
            table=table,
            notes=[text],
            verdict=text,
            fairness=[(text, text, False), (text, text, True)],
            settings=table,
            charts=[Chart("by time", text, "loss", {name: [(1, 2.0), (2, 1.0)] for name in names})],
            names=names,
            lengths=table,
            sentence=text,
            looks=[Look(names[0], text, text), Look(names[1], text, text, [text], [text, text], [[0.5, 0.5]])],
        )

    return make


def test_every_part_is_there(page, parse, tmp_path):
    write_comparison(tmp_path / "x.html", page())
    text = (tmp_path / "x.html").read_text()
    found = parse(text)
    assert found.texts["h2"] == [
        "All models",
        "Fair?",
        "Each model's own settings",
        "Curves",
        "By source length",
        "Attention",
    ]
    assert found.tags.count("svg") == 2
    assert found.tags.count("polyline") == 11
    assert text.count('class="differs"') == 1
    for style in ("series-1", "series-9", "series-1 dashed", "series-2 dashed"):
        assert f'class="line {style}"' in text, "a colour for each row, and dashes when they are used up"


def test_what_is_missing_leaves_no_empty_section(page, parse):
    from dataclasses import replace

    bare = replace(page(), settings=None, lengths=None, charts=[], looks=[])
    assert parse(render_comparison(bare)).texts["h2"] == ["All models", "Fair?"]


def test_hostile_text_stays_text(page, payloads, parse):
    allowed = set(parse(render_comparison(page())).tags)
    for payload in payloads:
        found = parse(render_comparison(page(payload)))
        assert set(found.tags) <= allowed
        assert not [name for _, name, _ in found.attributes if name.startswith("on") or name in ("src", "href")]
        assert "script-src" not in found.values("meta", "content")[0]


def test_pictures_of_many_rows(page, tmp_path, payloads):
    charts = [Chart("$x", "time", "loss", {name: [(1, 2.0), (2, 1.0)] for name in NAMES})] * 3
    plot_charts(tmp_path / "x.svg", charts, NAMES)
    looks = [Look(name, "", "$", ["a", "b"], ["c"], [[1.0], [0.5]]) for name in [*NAMES[:3], payloads[0]]]
    plot_looks(tmp_path / "y.png", looks)
    assert (tmp_path / "y.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "x.svg").stat().st_size > 1000
