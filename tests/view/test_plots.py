import builtins
import warnings
import xml.etree.ElementTree as ElementTree

import pytest

from regard.errors import ConfigError
from regard.view.comparison import Chart
from regard.view.plots import bar_plot, check_picture, plot_attention, plot_charts

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def loud():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_png_and_svg(report, tmp_path):
    plot_attention(tmp_path / "x.png", report.views[0])
    plot_attention(tmp_path / "x.svg", report.views[0], kind="encoder")
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)
    assert ElementTree.parse(tmp_path / "x.svg").getroot().tag.endswith("svg")


def test_one_map_and_strange_letters(small_report, make_view, tmp_path):
    plot_attention(tmp_path / "x.png", small_report.views[0])
    view = make_view(
        ["$x_{", "$$", "欧洲", "مرحبا", "\x00\x1b", "long" * 40], ["^", "\\frac", "</s>"], layers=1, heads=1
    )
    plot_attention(tmp_path / "y.svg", view)
    ElementTree.parse(tmp_path / "y.svg")


def test_hostile_tokens(hostile_report, tmp_path):
    plot_attention(tmp_path / "x.svg", hostile_report.views[0])
    tags = {element.tag.split("}")[-1] for element in ElementTree.parse(tmp_path / "x.svg").iter()}
    assert not tags & {"script", "iframe", "foreignObject"}


def test_same_input_same_file(small_report, tmp_path):
    for name in ("a.png", "b.png"):
        plot_attention(tmp_path / name, small_report.views[0])
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_no_attention_of_a_kind(small_report, tmp_path):
    with pytest.raises(ConfigError, match="no encoder attention"):
        plot_attention(tmp_path / "x.png", small_report.views[0], kind="encoder")


@pytest.mark.parametrize("sizes", [[64, 128, 256], [64], list(range(1, 30))])
def test_logarithmic_axes(sizes, tmp_path):
    charts = [Chart("time", "n", "ms", {"a": [(n, n**2) for n in sizes]}, logarithmic=True)]
    plot_charts(tmp_path / "x.svg", charts, ["a"])
    text = (tmp_path / "x.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert ("<!-- 128 -->" in text) == (128 in sizes)


def test_bar_plot(tmp_path):
    bars = [("0", 0.25), ("1", 0.5), ("$2+", 0.25)]
    for name in ("x.png", "x.svg"):
        bar_plot(tmp_path / name, bars, "fertility $", "target tokens", "source tokens")
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)
    text = (tmp_path / "x.svg").read_text()
    bar_plot(tmp_path / "x.svg", bars, "fertility $", "target tokens", "source tokens")
    assert (tmp_path / "x.svg").read_text() == text
    bar_plot(tmp_path / "empty.png", [])


def test_what_cannot_be_drawn_is_told_before(tmp_path):
    check_picture(tmp_path / "x.PNG")
    with pytest.raises(ConfigError, match="known endings"):
        check_picture("x.gif")
    assert list(tmp_path.iterdir()) == []


def test_missing_matplotlib_tells_what_to_install(small_report, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r'pip install "regard\[plot\]"'):
        plot_attention(tmp_path / "x.png", small_report.views[0])
