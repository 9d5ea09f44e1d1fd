"""`regard layers`: the files of a quick run, and what is refused before anything is measured."""

import json
import sys

import pytest

from regard.study import layers

TINY = {
    "lengths": (4, 8), "operator_lengths": (8, 40), "width": 8, "length": 8, "kernels": (2, 3),
    "neighbourhoods": (2, 4), "repeat": 1, "least_seconds": 1e-6, "path_lengths": (4, 8), "path_kernels": (2, 3),
    "path_neighbourhoods": (4, 6), "step_lengths": (40, 80),
}  # fmt: skip


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """--quick is quicker still, and everything is left in a new folder."""
    monkeypatch.setattr(layers, "QUICK", TINY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_quick_run_writes_all_files(tiny, call):
    done = call("layers", "--quick", "--lengths", "4,8,16", "--kernel", 2, "--neighbourhood", 4, "--heads", 2)
    assert done.code == 0, done.err
    assert sorted(path.name for path in (tiny / "layers").iterdir()) == [
        f"layers.{ending}" for ending in ("html", "json", "md", "png", "svg")
    ]
    result = json.loads((tiny / "layers" / "layers.json").read_text())
    assert result["settings"]["lengths"] == [4, 8, 16]
    assert (result["settings"]["kernel"], result["settings"]["heads"], result["settings"]["repeat"]) == (2, 2, 1)
    assert result["origin"]["machine"]
    assert result["origin"]["threads"] >= 1
    assert "commit" in result["origin"]
    assert result["difference"]["largest"] <= 1e-5
    points = result["sweeps"]["length"]["layers"]["recurrence"]["gradient"]["points"]
    assert [point["at"] for point in points] == [4, 8, 16]
    assert result["paths"]["restricted"]["counts"][0] == [4, 4, 2]
    out = done.out.decode()
    assert "Table 1, measured" in out
    assert all(line in (tiny / "layers" / "layers.md").read_text() for line in result["advice"])
    assert "time and memory: 1 of " in done.err
    assert done.err.endswith("layers.svg\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lengths", "512,256"], "layers: lengths must be two or more ascending numbers, found 512, 256"),
        (["--lengths", "512"], "two or more ascending"),
        (["--lengths", "a,b"], "expected a whole number above 0, found a"),
        (["--lengths", "8,"], "expected a whole number above 0"),
        (["--operator-lengths", "8,4"], "operator_lengths must be"),
        (["--width", "30"], "width 30 cannot be divided into 4 heads"),
        (["--neighbourhood", "31"], "neighbourhood must be even"),
        (["--kernel", "1"], "kernel must be above 1"),
        (["--repeat", "0"], "expected a whole number above 0, found 0"),
        (["--cell", "mamba"], "invalid choice"),
    ],
)
def test_wrong_options(words, message, tiny, call):
    done = call("layers", "--quick", *words)
    assert (done.code, message in done.err) == (2, True), done.err
    assert list(tiny.iterdir()) == []


def test_a_place_that_cannot_be_written(tiny, call):
    (tiny / "file").write_text("")
    done = call("layers", "--quick", "-o", "file")
    assert (done.code, done.err) == (2, "regard: file: expected a directory, found a file\n")
    done = call("layers", "--quick", "-o", "file/inside")
    assert done.code == 1
    assert "Not a directory" in done.err
    if sys.platform == "linux":
        assert call("layers", "--quick", "-o", "/proc/layers").code == 1
