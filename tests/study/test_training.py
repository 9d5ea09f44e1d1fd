"""Rows that are not trained are trained; one that fails is noted; a wish to stop is no failure."""

import shutil
from dataclasses import replace

import pytest
import torch

from regard import pipeline
from regard.errors import ConfigError, DataError, Diverged, Interrupted, ModelError, Stopped
from regard.study.row import find_rows
from regard.study.training import check_rows, noted, train_rows


@pytest.fixture
def rows(shop, tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.toml").write_text((shop / "tiny.toml").read_text())
    shutil.copy(shop / "pairs.tsv", tmp_path)
    words = [str(tmp_path / f"{name}.toml") for name in ("one", "two", "three")]
    return [*find_rows(words, tmp_path / "out", ["threads=1"]), *find_rows([str(shop / "rnn")], tmp_path, [])]


def test_the_others_go_on(rows, monkeypatch, capsys, tmp_path):
    trained = []

    def train(run, directory, **more):
        trained.append(directory.name)
        torch.set_num_threads(2)
        if directory.name == "one":
            raise Diverged("to infinity")
        if directory.name == "two":
            raise OSError(28, "disk full")

    monkeypatch.setattr(pipeline, "train", train)
    failures = train_rows(rows)
    assert trained == ["one", "two", "three"], "a finished run is passed over"
    assert {name: error.exit_code for name, error in failures.items()} == {"one": 5, "two": 1}
    errors = capsys.readouterr().err
    assert "two (2 of 4): training in" in errors
    assert "one: failed: to infinity" in errors
    assert torch.get_num_threads() == 1
    shutil.copytree(rows[3].directory, tmp_path / "begun", ignore=shutil.ignore_patterns("model"))
    train_rows(find_rows([str(tmp_path / "begun")], tmp_path / "out", []), quiet=True)
    assert trained[-1] == "begun", "a run that has not finished goes on where it is"
    with pytest.raises(ModelError, match="not trained yet: one, two, three"):
        train_rows(rows, only_trained=True)


@pytest.mark.parametrize("wish", [Stopped, Interrupted, KeyboardInterrupt])
def test_a_wish_to_stop_stops(wish):
    failures = {}
    with pytest.raises(wish), noted(failures, "x"):
        raise wish("now")
    assert failures == {}


def test_options_are_checked_before_the_first_run(shop, tmp_path, rows):
    check_rows(rows)
    wrong = find_rows([str(tmp_path / "two.toml")], tmp_path / "out", ["model.tie=all"])
    with pytest.raises(ConfigError, match=r"two: model\.tie = 'all' needs one vocabulary"):
        check_rows(wrong)
    (tmp_path / "transformer.toml").write_text((shop / "tiny.toml").read_text())
    begun = find_rows([str(tmp_path / "transformer.toml")], shop, [])
    with pytest.raises(ConfigError, match=r"(?s)started with other options.*give another -o"):
        check_rows(begun)  # its file of pairs lies elsewhere


def test_files_are_looked_for_before_the_first_run(shop, tmp_path, rows):
    def change(**changes):
        return [replace(rows[0], run=rows[0].run.model_copy(update=changes)), *rows[1:]]

    with pytest.raises(DataError, match=r"one: gone\.tsv: no such file"):
        check_rows(change(data=rows[0].run.data.model_copy(update={"test": [str(tmp_path / "pairs.tsv"), "gone.tsv"]})))
    with pytest.raises(ModelError, match="one: gone: no such model directory"):
        check_rows(change(start="gone"))
    with pytest.raises(ModelError, match="one: gone: no such model directory"):
        check_rows(change(data=rows[0].run.data.model_copy(update={"aligner": "gone"})))
    (tmp_path / "links.txt").write_text("0-0\n")
    check_rows(change(data=rows[0].run.data.model_copy(update={"aligner": str(tmp_path / "links.txt")})))
    check_rows(change(start=str(rows[1].directory / "model")))  # it is made before
    variants = find_rows([str(shop / "rnn")], tmp_path, [], ["rnn beam=0"])
    with pytest.raises(ConfigError, match="rnn beam=0"):
        check_rows(variants)
    fast = find_rows([str(shop / "rnn")], tmp_path, [], ["rnn engine=ctranslate2"])
    with pytest.raises(ModelError, match="no such export"):
        check_rows(fast)
