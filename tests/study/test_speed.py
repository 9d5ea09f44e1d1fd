"""Speed: rows take turns, what was measured stays, and the figures are those of the model."""

import json

import pytest

from regard.errors import RegardError
from regard.predict import load
from regard.study import speed
from regard.study.quality import row_search
from regard.study.row import find_rows
from regard.study.speed import Circumstances, batches, interleaved, large, measure_round, measure_speed, summarise


def test_rows_take_turns():
    order = list(interleaved("abc", 4))
    assert [number for number, _ in order] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert "".join(row for _, row in order) == "abc bca cab abc".replace(" ", "")
    assert list(interleaved("", 2)) == []


def test_median_and_spread():
    assert summarise([{"x": 4.0}, {"x": 1.0}, {"x": 2.0}]) == {"x": {"median": 2.0, "spread": 1.5}}
    assert summarise([]) == {}
    assert summarise([{"x": 0.0}]) == {"x": {"median": 0.0, "spread": 0.0}}, "a model that says nothing"


def test_texts_of_like_length_are_decoded_together():
    texts = ["a", "a b", "a b c", "b"]
    assert batches(texts, 0) == [texts]
    assert batches(texts, 3) == [["a b c", "a b", "a"], ["b"]]


@pytest.mark.parametrize("batch", [0, 2])
def test_a_round_of_a_real_model(shop, batch):
    predictor = load(shop / "rnn")
    where = Circumstances(["a b", "b c d", "e"], "0", "cpu", 1, "m", "2", sentences=3, batch=batch)
    figures = measure_round(predictor, where, predictor.search, judged=False)
    assert set(figures) == {"greedy_latency_seconds", "latency_seconds", "sentences_per_second", "tokens_per_second"}
    assert all(value > 0 for value in figures.values())
    assert large(predictor.search).batch_tokens == speed.LARGE
    greedy = predictor.search.model_copy(update={"method": "greedy"})
    figures = measure_round(predictor, where, greedy, judged=False)
    assert figures["greedy_latency_seconds"] == figures["latency_seconds"], "measured once"


def test_a_round_of_a_model_whose_outputs_another_chooses(shop):
    predictor = load(shop / "rnn", rescore=shop / "rnn")
    where = Circumstances(["a b", "b c d", "e"], "0", "cpu", 1, "m", "2", sentences=3)
    figures = measure_round(predictor, where, predictor.search.model_copy(update={"beam": 2}), judged=True)
    assert set(figures) == {"latency_seconds", "sentences_per_second", "tokens_per_second"}


@pytest.fixture
def measured(shop, tmp_path, monkeypatch):
    """A function that measures two rows with clocks that only count."""
    rows = find_rows([str(shop / "rnn"), str(shop / "transformer")], tmp_path, [])
    searches = {row.name: row_search(row, {}) for row in rows}
    calls: list[str] = []

    def round_of(predictor, texts, search, judged):
        calls.append(predictor.about["name"])
        if len(calls) == calls_before_stop[0]:
            raise KeyboardInterrupt
        return {"latency_seconds": float(len(calls))}

    calls_before_stop = [0]
    monkeypatch.setattr(speed, "measure_round", round_of)
    monkeypatch.setattr(speed, "measure_memory", lambda *_: {"peak_bytes": 5})

    def run(rounds: int = 2, stop: int = 0, **changed):
        calls_before_stop[0] = stop
        given = {"texts": ["a"], "data_sha256": "0", "device": "cpu", "threads": 1, "machine": "m", "torch": "2"}
        where = Circumstances(**(given | changed))
        calls.clear()
        found = measure_speed(tmp_path / "speed.json", rows, searches, where, rounds, lambda _: None)
        return found, list(calls)

    return run


def test_what_was_measured_is_not_measured_again(measured, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        measured(stop=3)
    assert len(json.loads((tmp_path / "speed.json").read_text())["rounds"]["rnn"]) == 1
    found, calls = measured()
    assert calls == ["transformer", "rnn"]  # the second round
    assert found["rnn"]["peak_bytes"] == 5
    assert len(found["rnn"]["rounds"]) == 2
    again, calls = measured()
    assert (again, calls) == (found, [])
    assert measured(rounds=0) == (found, [])


def test_other_circumstances_are_measured_anew(measured):
    measured()
    assert measured(rounds=0, threads=2) == ({}, [])
    assert len(measured(threads=2)[1]) == 4
    assert len(measured(data_sha256="1")[1]) == 4


def test_a_damaged_file_is_measured_anew(measured, tmp_path):
    measured()
    for broken in ('{"measured": ', "[]", "{}"):
        (tmp_path / "speed.json").write_text(broken)
        assert len(measured()[1]) == 4


def test_memory_that_cannot_be_measured_loses_nothing_else(measured, monkeypatch):
    def fail(*_):
        raise RegardError("not enough memory")

    monkeypatch.setattr(speed, "measure_memory", fail)
    found, _ = measured()
    assert "peak_bytes" not in found["rnn"]
    assert found["rnn"]["latency_seconds"]["median"] > 0
