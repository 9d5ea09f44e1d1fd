"""Rescoring: what one model finds, another one orders."""

import pytest

import regard
from regard.config import Search
from regard.data.batch import EOS, Hypothesis
from regard.engine.native import NativeEngine
from regard.engine.rescore import Rescoring
from regard.errors import ConfigError, ModelError
from regard.predict import load

RNN = {"kind": "rnn", "width": 8, "embedding": 8, "dropout": 0.0}
TRANSFORMER = {"kind": "transformer", "width": 8, "heads": 2, "feed_forward": 12, "dropout": 0.0}
SOURCES = [[4, 5, 6, EOS], [6, EOS], [5, 5, EOS]]


@pytest.fixture
def engines(tiny_model):
    return NativeEngine([tiny_model(RNN, 0, 7, 9)]), NativeEngine([tiny_model(TRANSFORMER, 1, 7, 9)])


def test_there_must_be_something_to_choose_from(engines):
    with pytest.raises(ConfigError, match="give --beam"):
        Rescoring(*engines).search(SOURCES, Search(method="greedy"))


def test_the_judge_orders_what_the_finder_finds(engines):
    finder, judge = engines
    options = Search(beam=6, nbest=6, maximum_length=5, alpha=0.7)
    found, judged = finder.search(SOURCES, options), Rescoring(finder, judge).search(SOURCES, options)
    moved = 0
    for source, before, after in zip(SOURCES, found, judged, strict=True):
        assert {output.ids for output in before} == {output.ids for output in after}
        moved += [output.ids for output in before] != [output.ids for output in after]
        prices = [float(judge.score([source], [[*output.ids, EOS]])[0].sum()) for output in after]
        assert [output.log_probability for output in after] == pytest.approx(prices, abs=1e-4)
        complete = [output for output in after if output.finished]
        assert complete == sorted(complete, key=lambda output: -output.score)
        for output in after:
            assert output.score == pytest.approx(output.log_probability / max(1, len(output.ids)) ** 0.7)
    assert moved, "two models with random weights agree about everything"


def test_all_beams_are_judged_though_few_are_wanted(engines):
    options = Search(beam=6, maximum_length=5)
    every = Rescoring(*engines).search(SOURCES, options.model_copy(update={"nbest": 6}))
    best = Rescoring(*engines).search(SOURCES, options)
    assert [outputs[0].ids for outputs in best] == [outputs[0].ids for outputs in every]
    assert all(len(outputs) == 1 for outputs in best)


def test_an_output_that_was_cut_off_comes_last(engines, monkeypatch):
    cut = [Hypothesis((4,), 0.0, 0.0, finished=False), Hypothesis((5, 6, 7, 8), -9.0, -9.0)]
    monkeypatch.setattr(engines[0], "search", lambda *values: [cut])
    assert [output.finished for output in Rescoring(*engines).search([[4, EOS]], Search(beam=2, nbest=2))[0]] == [
        True,
        False,
    ]


def test_through_the_predictor_and_the_commands(shop, call, tmp_path):
    model = shop / "transformer"
    plain = load(model).nbest(["a b c", "", "b a"], beam=4, nbest=4)
    judged = load(model, rescore=model).nbest(["a b c", "", "b a"], beam=4, nbest=4)
    for one, other in zip(plain, judged, strict=True):  # its own judge: the same order
        assert [output.text for output in one] == [output.text for output in other]
        assert [output.score for output in one] == pytest.approx([output.score for output in other], abs=1e-4)
    done = call("translate", model, "--rescore", model, "--engine", "torch", stdin=b"a b c\n\n")
    assert (done.code, done.out.decode().split("\n")[:2]) == (0, [plain[0][0].text, ""])
    done = call("evaluate", model, shop / "test.tsv", "--rescore", model, "--samples", 0)
    assert done.code == 0
    done = call("attend", model, "a b", "--rescore", model, "-o", tmp_path / "a.json")
    assert done.code == 0


def test_other_tokenizers_are_refused(shop, call):
    with pytest.raises(ModelError, match="their text options or tokenizers differ"):
        regard.load(shop / "transformer", rescore=shop / "rnn")
    done = call("translate", shop / "transformer", "--rescore", shop / "nothing", stdin=b"a\n")
    assert done.code == 4
    assert "nothing" in done.err


def test_what_is_too_long_for_the_judge_comes_last(tiny_model):
    finder = NativeEngine([tiny_model(RNN, 0, 7, 9)])
    judge = NativeEngine([tiny_model({**TRANSFORMER, "positions": "learned", "max_length": 4}, 1, 7, 9)])
    outputs = Rescoring(finder, judge).search([[4, EOS]], Search(beam=6, nbest=6, maximum_length=8))[0]
    short = [len(output.ids) < 4 for output in outputs if output.finished]
    assert short == sorted(short, reverse=True)
