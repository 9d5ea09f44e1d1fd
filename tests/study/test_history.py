"""What a run wrote on its way: rates without validations, the first validation that is good enough."""

import json

import pytest

from regard.errors import ConfigError, ModelError
from regard.study.history import History, Reach, Validation, choose_reach, describe_history, parse_reach, read_history

RECORDS = [
    {"kind": "train", "step": 5, "tokens": 100, "seconds": 10.0},
    {"kind": "validation", "step": 5, "loss": 3.0, "perplexity": 20.0, "metrics": {"bleu": 4.0}, "seconds": 15.0,
     "validation_seconds": 5.0},
    {"kind": "train", "step": 10, "tokens": 300, "seconds": 25.0},
    {"kind": "skipped", "step": 11, "seconds": 26.0},
    {"kind": "validation", "step": 12, "loss": 2.0, "perplexity": 7.0, "metrics": {"bleu": None}, "seconds": 30.0,
     "validation_seconds": 1.0},
    {"kind": "validation", "step": 14, "loss": 2.5, "perplexity": 12.0, "metrics": {"bleu": 6.0}, "seconds": 40.0,
     "validation_seconds": 1.0},
    {"kind": "end", "step": 14, "seconds": 41.0},
]  # fmt: skip


@pytest.fixture
def history(tmp_path) -> History:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    found = read_history(tmp_path)
    assert found is not None
    return found


def test_the_rate_leaves_validations_out(history):
    assert history.rates == [10.0, 30.0]  # 300 tokens in 25 - 10 - 5 seconds
    assert history.rate == 20.0


def test_the_first_validation_that_is_good_enough(history):
    assert history.reached("bleu", 4.0).seconds == 10.0
    assert history.reached("bleu", 6.0).seconds == 33.0  # 40 - 5 - 1 - 1
    assert history.reached("bleu", 4.1).step == 14
    assert history.reached("loss", 2.5).step == 12
    assert history.reached("loss", 1.0) is None
    assert (history.best("bleu"), history.best("loss"), history.best("chrf")) == (6.0, 2.0, None)


def test_the_curve_as_plain_values(history):
    curve = describe_history(history)["curve"]
    assert curve["steps"] == [5, 12, 14]
    assert curve["values"]["bleu"] == [4.0, None, 6.0]
    json.dumps(curve)


def test_a_model_alone_has_no_log(tmp_path):
    assert read_history(tmp_path) is None
    for wrong in ("{", '{"kind": "train"}', "3"):
        (tmp_path / "metrics.jsonl").write_text(wrong)
        with pytest.raises(ModelError, match="not the log of a run"):
            read_history(tmp_path)


def made(*values: tuple[float, float]) -> History:
    return History(
        [], [Validation(step, step, {"loss": loss, "bleu": bleu}) for step, (loss, bleu) in enumerate(values)]
    )


def test_every_row_reaches_what_the_weakest_reached():
    logs = {"a": made((3, 1), (2, 9)), "b": made((2.5, 8), (2.4, 3)), "unknown": History([], [])}
    assert choose_reach(logs, ["bleu"], None) == Reach("bleu", 8, "b")
    assert choose_reach(logs, ["chrf"], None) == Reach("bleu", 8, "b")
    logs["c"] = History([], [Validation(1, 1, {"loss": 4})])
    assert choose_reach(logs, ["bleu"], None) == Reach("loss", 4, "c")
    assert choose_reach(logs, ["bleu"], ("", 3.5)) == Reach("loss", 3.5)
    assert choose_reach({}, ["bleu"], None) is None
    assert choose_reach(logs, ["bleu"], None, comparable=False) is None, "losses of different tokens"
    assert choose_reach({"a": made((3, 0)), "b": made((2, 5))}, ["bleu"], None) == Reach("loss", 3, "a")
    with pytest.raises(ConfigError, match="not every row has validated by 'bleu'; known: loss"):
        choose_reach(logs, [], ("bleu", 3))


def test_what_is_to_be_reached():
    assert parse_reach("25") == ("", 25.0)
    assert parse_reach("loss=2.5") == ("loss", 2.5)
    assert parse_reach("exact_match=90%") == ("exact_match", 90.0)
    exact = {"a": History([], [Validation(1, 1, {"exact_match": 0.95})])}
    assert choose_reach(exact, [], parse_reach("90")) == Reach("exact_match", 0.9)
    for text in ("x", "loss=", "lost=2", "nan", ""):
        with pytest.raises(ConfigError, match="expected a number"):
            parse_reach(text)
