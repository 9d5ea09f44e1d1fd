from regard.view.tables import Table

TABLE = Table(
    ["model", "a long head of figures", "words"], [["x|y", "1", "one"], ["<b>", "1,000", "two"]], frozenset({2})
)


def test_text_is_aligned_and_heads_are_wrapped():
    assert TABLE.to_text().splitlines() == [
        "       a long head",
        "model   of figures  words",
        "x|y              1  one",
        "<b>          1,000  two",
    ]


def test_wide_letters_count_twice():
    lines = Table(["a", "b"], [["欧洲", "1"], ["abcd", "2"]]).to_text().splitlines()
    assert lines == ["a     b", "欧洲  1", "abcd  2"]


def test_markdown():
    assert TABLE.to_markdown().splitlines() == [
        "| model | a long head of figures | words |",
        "| --- | --: | --- |",
        "| x\\|y | 1 | one |",
        "| \\<b\\> | 1,000 | two |",
    ]


def test_html(parse, payloads):
    page = TABLE.to_html()
    assert '<th scope="row">&lt;b&gt;</th><td>1,000</td><td class="words">two</td>' in page
    for payload in payloads:
        found = parse(Table([payload, payload], [[payload, payload]]).to_html())
        assert set(found.tags) == {"div", "table", "thead", "tbody", "tr", "th", "td"}


def test_no_rows():
    assert Table(["a", "b"], []).to_text() == "a  b"
