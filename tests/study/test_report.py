"""What is drawn of a comparison: charts, looks, and the files."""

import json

from regard.study.report import attention, learning_charts, length_chart, write_all


def test_score_by_length(comparison):
    (chart,) = length_chart(comparison)
    assert (chart.x_name, chart.y_name) == ("source words", "BLEU")
    assert chart.lines["two"] == [(2.5, 24.5), (5.0, 20.5)]
    comparison["rows"] = comparison["rows"][2:]
    assert length_chart(comparison) == []


def test_learning_against_time_and_updates(comparison):
    charts = learning_charts(comparison)
    assert [(chart.y_name, chart.x_name) for chart in charts] == [
        ("validation loss", "minutes"),
        ("validation loss", "updates"),
        ("validation BLEU", "minutes"),
        ("validation BLEU", "updates"),
    ]
    assert charts[0].lines["one"] == [(700 / 60, 3.0), (1400 / 60, 2.0)]
    assert charts[3].lines["one"] == [(10.0, 5.0)]
    comparison["reach"] = {"measure": "loss", "value": 2, "weakest": ""}
    assert len(learning_charts(comparison)) == 2
    for row in comparison["rows"][:2]:
        row["training"] = {}
    assert learning_charts(comparison) == []


def test_looks(comparison):
    none, some = attention(comparison)
    assert (none.weights, none.caption) == ((), "this model has no attention between input and output")
    assert (some.caption, some.columns) == ("cross, head 2 of 4", ["a", "b"])


def test_files(comparison, tmp_path, monkeypatch):
    for name in ("plot_charts", "plot_looks"):  # drawn for real in tests/commands/test_compare.py
        monkeypatch.setattr(f"regard.view.plots.{name}", lambda path, *_: path.write_bytes(b"drawn"))
    said = []
    written = write_all(tmp_path, comparison, said.append)
    assert said == []
    assert [path.name for path in written[:3]] == ["comparison.html", "comparison.md", "comparison.json"]
    assert {path.name for path in written[3:]} == {
        f"{name}.{ending}" for name in ("length", "learning", "attention") for ending in ("png", "svg")
    }
    assert all(path.stat().st_size for path in written)
    assert json.loads((tmp_path / "comparison.json").read_text()) == comparison
    page = (tmp_path / "comparison.html").read_text()
    assert "Comparison of one, two, three" in page
