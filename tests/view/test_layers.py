"""The page of the study of layers: all text escaped, no script, a section for each table."""

from dataclasses import dataclass

from regard.view.comparison import Chart
from regard.view.layers import Page, render_page, write_page
from regard.view.tables import Table


@dataclass(frozen=True)
class Named:
    title: str
    table: Table
    note: str = ""


def make_page() -> Page:
    table = Table(["layer", "<b>"], [["<script>", "1"]])
    chart = Chart("Time & space", "n", "ms", {"two": [(1, 2), (2, 4)], "one": [(1, 1), (2, 3)]}, logarithmic=True)
    return Page(
        title="Cost <of> layers",
        facts=[("machine", "<i>")],
        advice=["n < d: cheaper"],
        tables=[Named("First", table, "a <note>"), Named("Second", table)],
        costs=[Named("ms", table)],
        remarks=["& so on"],
        charts=[chart],
        names=["one", "two"],
    )


def test_everything_is_there_and_escaped(tmp_path):
    write_page(tmp_path / "x.html", make_page())
    page = (tmp_path / "x.html").read_text()
    assert page == render_page(make_page())
    for text in ("Cost &lt;of&gt; layers", "n &lt; d: cheaper", "&lt;script&gt;", "a &lt;note&gt;", "&amp; so on"):
        assert text in page
    assert "<script" not in page
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    order = [page.index(f"<h2>{title}</h2>") for title in ("First", "Curves", "Second", "ms")]
    assert order == sorted(order)


def test_a_layer_has_the_colour_of_its_place_among_all():
    page = render_page(make_page())
    assert page.index('class="line series-2"') < page.index('class="line series-1"')
