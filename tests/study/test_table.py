"""The tables of a comparison say what the figures say."""

from regard.study.table import (
    fairness_lines,
    length_table,
    main_table,
    notes,
    settings_table,
    to_markdown,
    to_text,
    verdict,
)


def test_every_column_of_every_row(comparison):
    table = main_table(comparison)
    cells = [dict(zip(table.heads, row, strict=True)) for row in table.rows]
    assert cells[1] == {
        "model": "two",
        "parameters": "1,500 (+50.0 %)",
        "training, tokens/s": "1,234",
        "time to validation BLEU ≥ 5.00": "1 h 06 min",
        "BLEU (95 %)": "22.50 (21.50 … 23.50)",
        "against one": "+2.50, p = 0.002",
        "perplexity": "5.00",
        "latency, greedy, ms": "12.3",
        "latency, ms": "12.3",
        "sentences/s": "0.0123",
        "peak memory, MB": "300",
    }
    assert (cells[0]["parameters"], cells[0]["against one"]) == ("1,000", "–")
    assert cells[2]["model"] == "three (failed)"
    assert set(list(cells[2].values())[1:]) == {"–"}


def test_a_figure_a_row_does_not_have_is_a_dash(comparison):
    second = comparison["rows"][1]
    second["speed"] = {name: value for name, value in second["speed"].items() if name != "greedy_latency_seconds"}
    table = main_table(comparison)
    greedy = table.heads.index("latency, greedy, ms")
    assert [row[greedy] for row in table.rows] == ["12.3", "–", "–"]


def test_what_is_not_known_is_a_dash(comparison):
    row = comparison["rows"][0]
    row["training"], row["reached"], row["speed"] = {}, None, None
    heads = main_table({**comparison, "rows": [row]}).heads
    assert not [head for head in heads if "training" in head or "latency" in head], "no column for what no row has"
    cells = dict(zip(main_table(comparison).heads, main_table(comparison).rows[0], strict=True))
    assert [cells[name] for name in ("training, tokens/s", "latency, ms", "peak memory, MB")] == ["–"] * 3
    assert cells["time to validation BLEU ≥ 5.00"] == "–"
    row["training"] = {"steps": 20, "curve": {}}
    assert "not reached" in main_table(comparison).rows[0]
    assert settings_table(comparison).rows[0] == ["one", "rnn, width 8", "–"]


def test_a_small_difference_is_called_so(comparison):
    comparison["rows"][1]["against_first"]["bleu"]["p_value"] = 0.3
    assert "+2.50, p = 0.300, not significant" in main_table(comparison).rows[1]


def test_rates_are_in_per_cent(comparison):
    comparison["metrics"] = ["exact_match"]
    comparison["reach"] = {"measure": "exact_match", "value": 0.25, "weakest": ""}
    for row in comparison["rows"][:2]:
        row["scores"]["exact_match"] = {
            "value": 0.5, "interval": [0.4, 0.6], "label": "exact match", "signature": "", "text": "exact match: 50 %",
        }  # fmt: skip
    table = main_table(comparison)
    assert "time to validation exact match ≥ 25.00 %" in table.heads
    assert "50.00 % (40.00 … 60.00)" in table.rows[0]


def test_what_is_fair_is_told(comparison):
    lines = {what: (answer, differs) for what, answer, differs in fairness_lines(comparison)}
    assert lines == {
        "tokenizers": ("the same: bpe", False),
        "order of the data": ("different: seed 1 – one; seed 2 – two", True),
        "training pairs": ("the same: f00 (not known of two)", False),
        "parameters": ("not all within ± 20 % of one: two (+50.0 %)", True),
    }
    unknown = "Not known of every row: training pairs."
    assert (
        verdict(comparison)
        == "Alike in everything that must be the same but: order of the data, parameters. " + unknown
    )
    comparison["fairness"]["sizes"] = {}
    del comparison["fairness"]["checks"][1]
    assert verdict(comparison) == "Nothing is known to differ that must be the same. " + unknown
    del comparison["fairness"]["checks"][1]
    assert verdict(comparison) == "Fair: everything that must be the same is the same."


def test_notes_name_what_is_special(comparison):
    text = "\n".join(notes(comparison))
    for part in ("test.de and test.en, 50 lines", "BLEU sacreBLEU 13a cased [nrefs:1]", "the best of one, the weakest"):
        assert part in text
    for part in (
        "take turns (here 3)",
        "10 %",
        "three failed: training diverged",
        "two: of its outputs or inputs 2 cut",
    ):
        assert part in text


def test_scores_by_length(comparison):
    table = length_table(comparison)
    assert list(table.heads) == ["source words", "1 – 4", "5"]
    assert table.rows == [["lines", "20", "30"], ["one", "22.00", "18.00"], ["two", "24.50", "20.50"]]


def test_both_forms_have_everything(comparison):
    for text in (to_text(comparison), to_markdown(comparison, [("length", "length.png")])):
        for part in ("one", "two", "three", "22.50 (21.50 … 23.50)", "order of the data", "seed 2"):
            assert part in text
    page = to_markdown(comparison, [("length", "length.png")])
    assert "![length](length.png)" in page
    assert "| rnn, width 8 |" in page


def test_nothing_but_failures(comparison):
    comparison.update(rows=comparison["rows"][2:], first=None, reach=None, metrics=[])
    comparison["fairness"] = {"checks": [], "sizes": {}}
    assert "three (failed)" in to_text(comparison)
    assert verdict(comparison) == "Nothing to compare: fewer than two rows have figures."
    assert not fairness_lines(comparison)
    assert "training diverged" in to_markdown(comparison)
