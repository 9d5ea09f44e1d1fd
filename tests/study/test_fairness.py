"""What must be the same is found to be so, or not."""

from dataclasses import replace

import pytest

from regard.config import Data, Reverse, Run, Search, Text, Train
from regard.directory import read_directory
from regard.study.fairness import (
    Check,
    aim,
    budget,
    check_fairness,
    describe_model,
    describe_optimiser,
    describe_search,
    far_sizes,
    read_facts,
    settings,
    stopping_rule,
)
from regard.study.row import find_rows


def test_the_rows_of_one_recipe_differ_where_they_differ(shop, tmp_path):
    rows = find_rows([str(shop / name) for name in ("transformer", "rnn")], tmp_path, [])
    checks = {check.what: check for check in check_fairness([read_facts(row, {}) for row in rows])}
    assert {what for what, check in checks.items() if not check.is_same} == {"tokenizers", "order of the data"}
    assert checks["tokenizers"].values["rnn"].startswith("words, ")
    for what in ("training pairs", "validation pairs"):
        assert len(set(checks[what].values.values())) == 1
        assert not checks[what].unknown
    same = {check.what: check for check in check_fairness([read_facts(row, {"beam": 2}) for row in rows[:1] * 2])}
    assert all(check.is_same for check in same.values())
    assert same["search"].values["transformer"].startswith("beam 2, length penalty 1")


def test_a_teachers_words_are_other_pairs(shop, tmp_path):
    (row,) = find_rows([str(shop / "rnn")], tmp_path, [])
    plain = read_facts(row, {})

    def pairs(**distilled) -> str | None:
        training = {**plain.config["training"], "distilled": distilled}
        facts = replace(plain, config={**plain.config, "training": training}) if distilled else plain
        (check,) = (check for check in check_fairness([facts]) if check.what == "training pairs")
        return check.values["rnn"]

    own = pairs()
    assert pairs(sha256="123456789", mix=False) == f"{own} in a teacher's words (12345678)"
    assert pairs(sha256="123456789", mix=True) == f"{own} in a teacher's words (12345678) and as they are"


def test_a_model_alone_leaves_much_unknown(shop, tmp_path):
    import shutil

    shutil.copytree(shop / "rnn" / "model", tmp_path / "alone")
    (row,) = find_rows([str(tmp_path / "alone")], tmp_path, [])
    facts = read_facts(row, {})
    unknown = {check.what for check in check_fairness([facts]) if check.unknown}
    assert unknown == {"validation pairs", "order of the data", "token budget of an update", "pairs left out",
                       "starting weights", "objective and precision", "stopping rule", "weights kept"}  # fmt: skip
    assert settings(facts)["optimiser"] is None
    assert settings(facts)["model"].startswith("rnn, ")


def test_unknown_values_are_no_difference():
    assert Check("x", {"a": "1", "b": None}).is_same
    assert not Check("x", {"a": "1", "b": None, "c": "2"}).is_same
    assert Check("x", {"a": "1", "b": None}).unknown == ["b"]


def test_sizes_within_a_fifth():
    assert far_sizes({"a": 100, "b": 120, "c": 80, "d": 121, "e": 50}) == {"d": pytest.approx(0.21), "e": -0.5}
    assert far_sizes({}) == {}


def test_in_words(shop):
    run = Run(
        data=Data(batch_tokens=4000),
        train=Train(max_steps=8000, max_minutes=2.5, patience=4, accumulate=2, validate_every=200, metric="auto"),
    )
    assert budget(run) == "8,000 tokens in 2 batches, at most 1,024 rows a batch"
    assert stopping_rule(run) == "8,000 updates or 2.5 minutes or 4 validations without better bleu"
    assert aim(Run(text=Text(target="words"))) == "exact match"
    assert aim(Run(text=Text(lowercase=True))) == "lower bleu"
    assert aim(Run(train=Train(decode_limit=0))) == "loss"
    assert (
        describe_search(Search(no_repeat=3))
        == "beam 5, length penalty 1, at most 2 × source + 10 tokens, no 3-gram twice"
    )
    assert describe_search(Search(method="greedy", maximum_length=9)) == "greedy, at most 9 tokens"
    few = Search(method="sample", top_k=3, temperature=0.5, minimum_length=2, maximum_length=9)
    assert describe_search(few) == "sample, seed 1, temperature 0.5, top k 3, at least 2 tokens, at most 9 tokens"
    _, config = read_directory(shop / "rnn")
    assert "attention additive" in describe_model(config["model"])


@pytest.mark.parametrize(
    "change",
    ["passes=4", "minimum_length=3", "stop=count", "method=greedy", "alpha=0.5", "penalty=gnmt", "no_repeat=2",
     "growth=3", "maximum_length=9", "beam=2"],
)  # fmt: skip
def test_another_search_is_a_difference(change, shop, tmp_path):
    rows = find_rows([str(shop / "rnn")], tmp_path, [], [f"rnn {change}"])
    assert different([read_facts(row, {}) for row in rows]) == {"search"}


def test_an_engine_and_a_judge_are_a_difference(shop, tmp_path):
    variants = ["rnn engine=ctranslate2", f"rnn rescore={shop / 'transformer'}"]
    found = [read_facts(row, {}) for row in find_rows([str(shop / "rnn")], tmp_path, [], variants)]
    assert different(found[::2]) == different(found[:2]) == {"search"}
    checks = {check.what: check.values for check in check_fairness(found)}
    assert list(checks["search"].values())[2].endswith(", the choice of transformer")


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("starting weights", {"start": "{shop}/rnn"}),
        ("starting weights", {"start_encoder": "gone"}),
        ("starting weights", {"start_encoder": "gone", "start_decoder": True}),
        ("objective and precision", {"reverse": Reverse(teacher="t")}),
        ("objective and precision", {"train": Train(max_steps=12, precision="bfloat16")}),
        ("stopping rule", {"train": Train(max_steps=13)}),
        ("stopping rule", {"train": Train(max_steps=12, patience=7)}),
        ("weights kept", {"train": Train(max_steps=12, validate_every=3)}),
        ("weights kept", {"train": Train(max_steps=12, decode_limit=3)}),
        ("order of the data", {"seed": 9}),
    ],
)
def test_what_training_begins_with_and_aims_at(what, change, shop, tmp_path):
    (row,) = find_rows([str(shop / "rnn")], tmp_path, [])
    assert row.run is not None
    change = {name: value.format(shop=shop) if isinstance(value, str) else value for name, value in change.items()}
    before = replace(row, run=row.run.model_copy(update={"train": Train(max_steps=12)}))
    after = replace(before, name="other", run=before.run.model_copy(update=change))
    assert different([read_facts(each, {}) for each in (before, after)]) == {what}


def different(rows) -> set[str]:
    return {check.what for check in check_fairness(rows) if not check.is_same}


def test_every_optimiser_in_words():
    assert (
        describe_optimiser(Train(weight_decay=0.1, optimiser="adamw")) == "adamw β 0.9, 0.98 ε 1e-9, weight decay 0.1"
    )
    assert describe_optimiser(Train(optimiser="adadelta", epsilon=1e-6)) == "adadelta ρ 0.95 ε 1e-6"
    assert describe_optimiser(Train(optimiser="nesterov", momentum=0.99)) == "nesterov momentum 0.99"
    assert describe_optimiser(Train(optimiser="sgd")) == "sgd"


def test_the_optimiser_is_told(shop, tmp_path):
    (row,) = find_rows([str(shop / "transformer")], tmp_path, [])
    found = settings(read_facts(row, {}))
    assert found["optimiser"] == "adam β 0.9, 0.98 ε 1e-9"
    assert found["rate"] == "0.01 inverse sqrt, 2 updates of warm-up"
    assert (found["clip"], found["smoothing"], found["dropout"]) == ("1", "0.1", "0.1")
