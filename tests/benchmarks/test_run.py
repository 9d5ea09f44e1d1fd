"""The runner, and our side of every experiment at a tiny size, without peers."""

import json
import sys

import pytest

from benchmarks.experiments import Experiment, decode, latency, limit, train
from benchmarks.figures import Figure
from benchmarks.inputs import TINY, Bench, corpus
from benchmarks.made import load_batches
from benchmarks.process import SCRATCH, Side, start
from benchmarks.regard_side import model_section, product_sizes
from benchmarks.run import ALL, main, measure, parse, save
from benchmarks.shapes import SHAPES
from regard.data.loader import Loader
from regard.data.store import Store
from regard.models.base import build_model


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("work"), TINY, {}, seed=1, threads=1)


def test_our_training_is_measured_and_peers_get_the_same_batches(bench):
    experiment = train(bench, "A")
    assert experiment.notes == [f"{name} is not installed" for name in ("HF Marian", "eole", "OpenNMT-py", "JoeyNMT")]
    found = start(experiment.sides[0], threads=1)
    assert found.error == ""
    assert found.figures["tokens_per_second"] > 0
    assert 0 < found.figures["ready_seconds"] < found.figures["first_update_seconds"] < found.figures["seconds"]
    assert min(found.calibration) > 0
    prepared = corpus(bench, 400, TINY.pairs)
    batches = list(Loader(Store(prepared / "train"), 4096, 1024, seed=1).batches(1))
    given = load_batches(bench.work / "batches" / f"{prepared.name}.npz")
    assert len(given) == len(batches) == experiment.sides[0].job["steps"]
    for (sources, targets), batch in zip(given, batches, strict=True):
        assert [len(row) + 1 for row in sources] == batch.source_length.tolist()
        assert targets[0].tolist() == batch.target[0, : batch.target_length[0] - 1].tolist()


def test_our_decoding_and_one_sentence_are_measured(bench):
    found = start(decode(bench, "A").sides[0], threads=1)
    assert found.error == ""
    assert set(found.figures) == {"1x1", "2x4", "seconds"}
    assert min(found.figures.values()) > 0
    found = start(latency(bench).sides[0], threads=1)
    assert found.error == ""


def test_the_arithmetic_of_a_search_has_all_weights_of_its_model(bench):
    for name in ("A", "B", "tiny"):
        shape = SHAPES[name]
        model = build_model(model_section(shape), shape.vocabulary, shape.vocabulary)
        weights = sum(each.numel() for each in model.parameters() if each.dim() == 2)
        assert sum(outputs * inputs for part in product_sizes(shape) for outputs, inputs in part) == weights
    found = start(limit(bench, "A").sides[1], threads=1)
    assert found.error == ""
    assert set(found.figures) == {"1x1", "2x4", "seconds"}


def test_a_side_that_fails_is_told_and_the_others_go_on():
    sides = [
        Side("regard", (sys.executable, "-c", "print()")),
        Side("broken", (sys.executable, "-c", "raise SystemExit('no model')")),
    ]
    found = measure(Experiment("x", "", [Figure("seconds", "s", False)], sides), rounds=2, threads=1)
    assert found["notes"] == ["broken failed: exit code 1: no model"]
    assert found["summary"]["seconds"]["sides"]["regard"]["rounds"] == 2
    assert "broken" not in found["summary"]["seconds"]["sides"]
    assert [each["round"] for each in found["rounds"]] == [0, 0, 1, 1]


def test_a_side_that_takes_too_long_is_stopped():
    found = start(Side("slow", (sys.executable, "-c", "import time; time.sleep(60)")), timeout=0.5)
    assert found.error == "stopped after 0.5 s"


def test_each_round_has_a_scratch_file_of_its_own():
    code = "import sys, pathlib; path = pathlib.Path(sys.argv[1]); assert not path.exists(); path.write_text('x')"
    side = Side("writer", (sys.executable, "-c", code, SCRATCH))
    assert [start(side).error for _ in range(2)] == ["", ""]


def test_records_hold_no_place_of_this_machine(tmp_path):
    save({"name": "x", "commands": [str(tmp_path / "work" / "model")]}, tmp_path / "results", tmp_path / "work")
    text = (tmp_path / "results" / "x.json").read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["commands"] == ["WORK/model"]


def test_names_are_checked(capsys):
    with pytest.raises(SystemExit):
        parse(["train-z"])
    assert "unknown experiment 'train-z'" in capsys.readouterr().err
    main(["--list", "--peers", ""])
    assert capsys.readouterr().out.split() == list(ALL)
