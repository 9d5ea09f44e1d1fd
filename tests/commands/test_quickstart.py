import json
from functools import partial

import numpy as np
import pytest

from regard.commands import quickstart
from regard.tasks import made


@pytest.fixture
def short(monkeypatch):
    """A quickstart that runs through in seconds and learns next to nothing."""
    monkeypatch.setattr(made, "dates", partial(made.dates, train=300, valid=30, test=12))
    monkeypatch.setattr(quickstart, "STEPS", {"rnn": 3, "transformer": 3})


def test_leaves_everything_and_a_second_call_trains_nothing(short, tmp_path, call):
    folder = tmp_path / "quickstart"
    first = call("quickstart", "-o", str(folder), "--threads", "1")
    assert first.code == 0
    assert {path.name for path in folder.iterdir()} >= {
        "data",
        "rnn",
        "transformer",
        "report-rnn.html",
        "report-transformer.html",
        "results.json",
    }
    assert (folder / "data" / "train.tsv").read_text().count("\n") == 300
    results = json.loads((folder / "results.json").read_text())
    for name in ("rnn", "transformer"):
        assert 0 <= results[name]["exact_match"] <= 1
        assert 0 <= results[name]["every_digit"] <= results[name]["attention_on_source_words"] <= 1
        assert (folder / name / "MANIFEST.json").exists()
    before = (folder / "rnn" / "model.safetensors").stat().st_mtime_ns
    second = call("quickstart", "-o", str(folder), "--threads", "1")
    assert second.code == 0
    assert "nothing is trained again" in second.err
    assert (folder / "rnn" / "model.safetensors").stat().st_mtime_ns == before
    assert call("translate", str(folder / "rnn"), stdin=b"le 1er mai 2031\n").out.count(b"\n") == 1


class Reader:
    """Stands in for a predictor: words are cut into pieces of two letters."""

    class task:  # noqa: N801
        class source:  # noqa: N801
            class tokenizer:  # noqa: N801
                @staticmethod
                def decode(ids):
                    return "1. Mai 1809"[: 2 * len(ids)]

            @staticmethod
            def ids(text):
                return list(range((len(text) + 1) // 2))


def test_the_places_of_a_date_are_the_pieces_of_its_words():
    style = next(style for style in made.styles("de") if style.name == "d. MMMM y")
    example = made.write_date(made.date(1809, 5, 1), style)
    assert example.source == "1. Mai 1809"
    wanted = quickstart.wanted_places(Reader, example)  # pieces: "1." " M" "ai" " 1" "80" "9"
    assert dict(zip(made.TARGET_SPANS, wanted, strict=True)) == {
        "year": (slice(0, 4), [3, 4, 5]),
        "month": (slice(5, 7), [1, 2]),
        "day": (slice(8, 10), [0]),
    }


def test_a_head_looks_right_when_its_digits_do_together():
    class Layer:
        kind, name = "cross", "attention"

    style = next(style for style in made.styles("de") if style.name == "d. MMMM y")
    example = made.write_date(made.date(1809, 5, 1), style)
    weights = np.zeros((2, 11, 7))
    for rows, places in quickstart.wanted_places(Reader, example):
        weights[0, rows, places[0]] = 1  # head 1 looks at the right words, head 2 at the end
    weights[1, :, 6] = 1
    weights[0, 0] = 0  # the first digit of the year does not: three of four do
    Layer.weights = weights

    class Predictor(Reader):
        class task(Reader.task):  # noqa: N801
            class target:  # noqa: N801
                @staticmethod
                def ids(text):
                    return list(range(len(text)))

        class engine:  # noqa: N801
            @staticmethod
            def attend(source, target):
                return [Layer]

    found = quickstart.look(Predictor, [example])
    assert found == {"attention_on_source_words": 1.0, "every_digit": 0.0, "attention_head": "attention, head 1"}
