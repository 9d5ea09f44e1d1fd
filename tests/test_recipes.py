"""Recipes: every file can be read, its options are right, and what lies beside it is what evaluate writes."""

import json
import os
import runpy
from pathlib import Path

import numpy as np
import pytest

import regard
from benchmarks.table import insert
from recipes import table
from regard.config import load_run
from regard.models.base import build_model

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
RESULTS = sorted((ROOT / "recipes").rglob("*.result"))
SAID = {
    "a man sleeps .": "ein mann schläft.",
    "two young men are playing guitars on the street .": "zwei junge männer spielen auf der straße gitarre.",
    "a little girl climbs into a wooden playhouse .": "ein kleines mädchen klettert in ein holzhaus.",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT / "recipes").as_posix()


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_a_recipe_can_be_run(path, monkeypatch, tmp_path):
    for variable in ("REGARD_DATA", "SCAN", "REVERSE", "G2P", "TEACHER", "NAT"):
        monkeypatch.setenv(variable, str(tmp_path))
    run = load_run(path)
    assert run.data.train or run.data.prepared
    sizes = (400, 400) if run.text.joint else (400, 300)
    assert sum(weight.numel() for weight in build_model(run.model, *sizes).parameters()) > 0


def test_the_lineage_is_trained_under_equal_conditions(monkeypatch, tmp_path):
    """What `regard compare` calls fair: data, text, token budget, updates and stopping rule are the same."""
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    for folder in ("lineage", "ladder"):
        runs = [load_run(path) for path in RECIPES if path.parent.name == folder]
        assert len(runs) >= 5
        for run in runs[1:]:
            assert (run.seed, run.data, run.text, run.search) == (
                runs[0].seed, runs[0].data, runs[0].text, runs[0].search
            )  # fmt: skip
            for key in ("max_steps", "max_epochs", "patience", "metric", "accumulate", "average", "keep"):
                assert getattr(run.train, key) == getattr(runs[0].train, key)


@pytest.mark.parametrize("folder", RESULTS, ids=name)
def test_a_result_is_whole(folder):
    """It says how it came about, speaks of no machine's folders, and its outputs can be scored again."""
    text = (folder / "result.json").read_text(encoding="utf-8")
    result = json.loads(text)
    for key in ("command", "commit", "seed", "seconds", "data_sha256", "machine", "scores", "model"):
        assert result[key], key
    assert {"command", "seed", "data_sha256"} <= set(result["model"]["training"])
    assert not [word for word in ("/root/", "/home/", "/work/") if word in text]
    assert (folder / "hypotheses.txt").read_bytes().count(b"\n") == result["lines"]


def test_readme_and_results_agree():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert insert(readme, table.render(), table.BEGIN, table.END) == readme


def test_the_lineage_and_the_results_agree():
    page = (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8")
    assert table.fill(page) == page
    assert "<!-- result multi30k/transformer -->40." in page
    other = page.replace("<!-- result multi30k/transformer -->40.", "<!-- result multi30k/transformer -->50.")
    assert table.fill(other) == page


def test_every_recipe_stands_in_the_lineage():
    page = (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8")
    recipes = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "recipes").rglob("*.toml"))
    assert [path for path in recipes if f"(../{path})" not in page] == []


def test_the_model_that_comes_along_translates():
    """Real weights, those whose result is recorded."""
    folder = ROOT / "recipes" / "multi30k"
    result = json.loads((folder / "self-taught.seed-3.result" / "result.json").read_text(encoding="utf-8"))
    model = regard.load(folder / "model", device="cpu")
    assert model.about["training"] == result["model"]["training"]
    assert [each.text for each in model.translate(list(SAID))] == list(SAID.values())
    (view,) = model.attend("a man sleeps .").views
    cross = np.mean([each.weights.mean(0) for each in view.layers if each.kind == "cross"], 0)
    np.testing.assert_allclose(cross.sum(1), 1, atol=1e-5)


def test_the_table_tells_what_is_recorded(monkeypatch, tmp_path):
    """A mean only when all its parts are there."""
    monkeypatch.setattr(table, "FOLDER", tmp_path)
    assert table.render() == "No result is recorded yet."
    training = {"seconds": 120.0, "threads": 1}
    for number, language in enumerate(table.LANGUAGES):
        assert table.row("zero/g2p-*") is None
        (tmp_path / "zero" / f"g2p-{language}.result").mkdir(parents=True)
        result = {"scores": {"word_error": {"value": number / 100}}, "model": {"training": training}}
        (tmp_path / "zero" / f"g2p-{language}.result" / "result.json").write_text(json.dumps(result))
    assert table.row("zero/g2p-*")[2:] == ["4.50 %", "18.5 %, swept (the task's baseline)", "20 min, 1 thread"]
    assert table.row("scan/simple") is None
    for name, value in [("simple.seed-2", 0.5), ("simple", 0.25)]:
        (tmp_path / "scan" / f"{name}.result").mkdir(parents=True)
        result = {"scores": {"exact_match": {"value": value}}, "model": {"training": training}}
        (tmp_path / "scan" / f"{name}.result" / "result.json").write_text(json.dumps(result))
    assert table.row("scan/simple")[2] == "mean of 2 runs 37.50 %: 25.00 %, 50.00 %"


@pytest.mark.skipif(not (Path(os.environ.get("REGARD_DATA", "")) / "scan").is_dir(), reason="no SCAN here")
def test_length26_is_made_of_all_commands(tmp_path):
    make = runpy.run_path(str(ROOT / "recipes" / "scan" / "make.py"))
    make["main"]("length26", str(tmp_path))
    lines = {part: (tmp_path / f"length26.{part}.tsv").read_text().splitlines() for part in ("train", "test")}
    assert {part: len(each) for part, each in lines.items()} == {"train": 18286, "test": 2624}
    assert not set(lines["train"]) & set(lines["test"])


def test_letters_backwards_are_made_once_each(tmp_path):
    runpy.run_path(str(ROOT / "recipes" / "ladder" / "reverse" / "make.py"))["main"](str(tmp_path))
    files = [tmp_path / f"{part}.tsv" for part in ("train", "valid", "test")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert len(set(lines)) == len(lines) > 20_000
    for line in lines:
        source, target = line.split("\t")
        assert source.split() == target.split()[::-1]
        assert 4 <= len(source.split()) <= 10
