"""Training through the library: every form of options, and what validation measures."""

import json
import shutil

import pytest

import regard
from regard.config import Run, load_run
from regard.data.batch import Hypothesis
from regard.errors import ConfigError
from regard.evaluation import spread
from regard.pipeline import Evaluator
from regard.prepare import open_prepared
from regard.recipe import locate_corpus

SHORT = ["train.max_steps=2", "train.validate_every=2", "train.decode_limit=2", "train.average=0"]


def test_training_from_any_form_of_options(shop, tmp_path):
    recipe = shop / "tiny.toml"
    values = load_run(recipe).model_dump(mode="json", exclude_none=True)
    weights = set()
    for number, what in enumerate((recipe, str(recipe), load_run(recipe), values)):
        model = regard.train(what, tmp_path / str(number), overrides=SHORT, quiet=True)
        assert isinstance(model.translate(["a b"])[0], Hypothesis)
        weights.add((tmp_path / str(number) / "model" / "model.safetensors").read_bytes())
    assert len(weights) == 1


def test_training_from_files(shop, tmp_path):
    overrides = [*SHORT, "model.width=8", "data.batch_tokens=400"]
    regard.train(shop / "test.tsv", tmp_path / "a", overrides=overrides, valid=shop / "test.tsv", quiet=True)
    assert load_run(tmp_path / "a" / "run.toml").data.valid == str(shop / "test.tsv")
    model = regard.train(shop / "test.tsv", tmp_path / "b", start=shop / "rnn", overrides=SHORT, quiet=True)
    assert model.about["model"]["width"] == 16


def test_wrong_options_are_exceptions(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        regard.train({"trian": {}}, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"data\.train: no training file"):
        regard.train(Run(), tmp_path / "run")
    with pytest.raises(ConfigError, match="found 3"):
        locate_corpus(["a", "b", "c"])


def test_the_model_is_written_last(shop, tmp_path, monkeypatch):
    """A run killed while it writes its results is not finished, and writes them again."""
    run = shutil.copytree(shop / "rnn", tmp_path / "run")
    shutil.rmtree(run / "model")
    (run / "report.html").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("regard.pipeline.write_run_report", lambda *values: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            regard.train(load_run(run / "run.toml"), run, quiet=True)
    assert not (run / "model").exists()
    regard.train(load_run(run / "run.toml"), run, quiet=True)
    assert (run / "report.html").exists()
    assert (run / "model" / "model.safetensors").read_bytes() == (
        shop / "rnn" / "model" / "model.safetensors"
    ).read_bytes()


def test_validation_measures_loss_and_real_outputs(shop):
    prepared = open_prepared(shop / "rnn" / "data")
    run = load_run(shop / "rnn" / "run.toml")
    model = regard.load(shop / "rnn")
    evaluator = Evaluator(run, prepared)
    assert (evaluator.goal.name, evaluator.goal.higher) == ("exact_match", True)
    found = evaluator(model.engine.models[0], lambda: False)
    scored = model.score(*map(list, zip(*prepared.valid_pairs, strict=True)))
    tokens = sum(len(each.ids) + 1 for each in scored)
    assert found.loss == pytest.approx(-sum(each.log_probability for each in scored) / tokens, rel=1e-5)
    assert len(found.samples) == 3
    outputs = [output.text for output in model.translate([each.source for each in evaluator.pairs], method="greedy")]
    right = [output == pair.target for output, pair in zip(outputs, evaluator.pairs, strict=True)]
    assert found.metrics == {"exact_match": sum(right) / len(right)}


def test_the_metrics_are_one_json_object_a_line(shop):
    lines = (shop / "rnn" / "metrics.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds[-1] == "end"
    assert {"train", "validation"} <= set(kinds)


def test_spread():
    assert spread([1, 2, 3], 5) == [1, 2, 3]
    assert spread(range(10), 3) == [0, 3, 6]
    assert spread([1], 0) == []


def test_a_table_of_positions_must_cover_the_data(tmp_path, shop):
    values = {"model": {"kind": "transformer", "positions": "learned", "max_length": 12}}
    with pytest.raises(ConfigError, match=r"data\.max_length = 256 .* 12 positions"):
        regard.train(values | {"data": {"train": str(shop / "test.tsv")}}, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_prepared_corpus_may_be_too_long_for_a_model(tmp_path, shop):
    values = {
        "data": {"prepared": str(shop / "rnn" / "data"), "max_length": 3},
        "text": {"source": "words", "target": "words"},
        "model": {"kind": "transformer", "width": 8, "heads": 2, "positions": "learned", "max_length": 3},
    }
    with pytest.raises(ConfigError, match=r"has rows of \d+ tokens, the model has positions for 3"):
        regard.train(values, tmp_path / "run", quiet=True)


def test_a_damaged_run_is_told(tmp_path, shop):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text("odd = 1\n")
    with pytest.raises(ConfigError, match=r"run\.toml: odd: unknown key"):
        regard.train(shop / "tiny.toml", tmp_path / "run", quiet=True)


def test_outputs_may_get_as_long_as_in_training(tmp_path):
    pairs = [("x " * 3, "y " * 60)] * 40  # (61 − 10) / 4 × 1.25
    (tmp_path / "pairs.tsv").write_text("".join(f"{source.strip()}\t{target.strip()}\n" for source, target in pairs))
    values = {
        "data": {"train": str(tmp_path / "pairs.tsv"), "valid": str(tmp_path / "pairs.tsv")},
        "text": {"source": "words", "target": "words"},
        "model": {"kind": "rnn", "width": 8, "embedding": 8},
        "train": {"max_steps": 1, "decode_limit": 0},
    }
    model = regard.train(values, tmp_path / "run", quiet=True)
    assert model.search.growth == pytest.approx(15.94)
    told = regard.train(values | {"search": {"growth": 3.0}}, tmp_path / "told", quiet=True)
    assert told.search.growth == 3.0
