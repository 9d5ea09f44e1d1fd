"""Every form of the study of layers is written."""

import json
import sys

import pytest

from regard.study.layer_report import to_markdown, to_text, write_all
from regard.view import plots


def test_all_files(made_layers, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "plot_charts", lambda path, charts, names: drawn.append((path.name, len(charts), names)))
    said = []
    written = write_all(tmp_path, made_layers, said.append)
    assert [path.name for path in written] == [f"layers.{end}" for end in ("html", "md", "json", "png", "svg")]
    assert said == []
    assert [(name, number) for name, number, _ in drawn] == [("layers.png", 11), ("layers.svg", 11)]
    assert json.loads((tmp_path / "layers.json").read_text())["paths"]["attention"]["law"]["name"] == "1"
    page = (tmp_path / "layers.html").read_text()
    assert "a &lt;machine&gt;" in page
    assert page.count('<figure class="chart">') == 21
    for word in ("<script", "http://", "https://", "src="):
        assert word not in page
    markdown = (tmp_path / "layers.md").read_text()
    assert "](layers.svg)" in markdown
    assert markdown.count("\n## ") == 1 + 6 + 8


def test_without_matplotlib(made_layers, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = []
    written = write_all(tmp_path, made_layers, said.append)
    assert [path.suffix for path in written] == [".html", ".md", ".json"]
    assert said == ['no PNG and SVG: drawing pictures needs matplotlib: pip install "regard[plot]"']
    assert "layers.svg" not in (tmp_path / "layers.md").read_text()


def test_text(made_layers):
    text = to_text(made_layers)
    assert "Table 1, measured" in text
    assert "- With gradient, d = 64: self-attention is cheaper than a recurrence up to about n = 64" in text
    assert "`" not in text


@pytest.mark.parametrize("picture", [True, False])
def test_markdown_names_only_what_is_there(made_layers, picture):
    assert ("layers.svg" in to_markdown(made_layers, picture)) == picture
