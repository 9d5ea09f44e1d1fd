"""Options from TOML and overrides: strict, and every mistake is told with its place."""

from pathlib import Path

import pytest

from regard.config import Run, Search, apply_overrides, change_search, dump_toml, load_run, read_toml, validate
from regard.errors import ConfigError

WRONG = {
    "train.max_stpes=3": "train.max_stpes: unknown key; did you mean 'max_steps'?",
    "trian.rate=3": "trian: unknown key; did you mean 'train'?",
    "nonsense=3": "nonsense: unknown key; known keys: seed",
    "train.max_steps=many": 'train.max_steps: should be a valid integer (found "many")',
    "train.max_steps=true": "train.max_steps: should be a valid integer (found true)",
    "train.max_steps='5'": 'train.max_steps: should be a valid integer (found "5")',
    "train.max_steps=-1": "train.max_steps: should be greater than or equal to 0 (found -1)",
    "train.rate=nan": "train.rate: should be a finite number (found NaN)",
    "train.rate=2020-01-01": "train.rate: should be a valid number",
    "train.betas=[0.9, 1.5]": "train.betas: should be less than 1 (found 1.5)",
    "train.validate_every=often": "train.validate_every: should be 'epoch' (found \"often\") or should be a valid",
    "data.train=5": "data.train: should be a valid string (found 5) or should be a valid array",
    "text.source=letters": "text.source: should be 'bytes', 'characters', 'words', 'bpe' or 'unigram'",
    "text={joint=true, source='bpe', target='words'}": "text: joint needs the same tokenizer on both sides",
    "search.nbest=9": "search: nbest (9) cannot exceed beam (5)",
    "train=3": "train: should be an object (found 3)",
    "model=3": "model: should be an object (found 3)",
}


@pytest.mark.parametrize("override", WRONG)
def test_a_wrong_option_is_named(override):
    with pytest.raises(ConfigError) as caught:
        validate(Run, apply_overrides({}, [override]), "recipe.toml")
    assert str(caught.value).startswith(f"recipe.toml: {WRONG[override]}")
    assert "\n" not in str(caught.value)


def test_every_mistake_is_told():
    with pytest.raises(ConfigError) as caught:
        validate(Run, {"sed": 1, "train": {"rate": -1}}, "here")
    assert sorted(line.split(": ")[1] for line in str(caught.value).split("\n")) == ["sed", "train.rate"]


@pytest.mark.parametrize("override", ["train.rate", "=3", "train.rate.high=3"])
def test_a_wrong_override_is_told(override):
    with pytest.raises(ConfigError, match=f"override '{override}'"):
        apply_overrides({"train": {"rate": 1.0}}, [override])


def test_overrides_are_toml_and_bare_words_are_text():
    words = ["a.b=1", "a.c=1e-3", "a.d=[1, 2]", "a.e=true", "a.f=plain word", "a.g='1'", "h={i=1}", "j="]
    before = {"a": {"b": 0, "z": 1}}
    found = apply_overrides(before, words)
    assert found["a"] == {"b": 1, "c": 1e-3, "d": [1, 2], "e": True, "f": "plain word", "g": "1", "z": 1}
    assert (found["h"], found["j"]) == ({"i": 1}, "")
    assert before == {"a": {"b": 0, "z": 1}}, "what was given is not changed"


def test_options_survive_toml(tmp_path):
    values = {"seed": 7, "data": {"train": ["a", "b"]}, "model": {"kind": "rnn", "width": 3}, "search": {"alpha": 0.6}}
    run = validate(Run, values, "here")
    (tmp_path / "run.toml").write_text(dump_toml(run))
    assert validate(Run, read_toml(tmp_path / "run.toml"), "here") == run


def test_files_of_a_recipe_are_relative_to_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CORPUS", "/somewhere")
    recipe = tmp_path / "deep" / "recipe.toml"
    recipe.parent.mkdir()
    recipe.write_text('start = "../model"\n[data]\ntrain = ["a.en", "$CORPUS/a.de"]\nvalid = "../v.tsv"\n')
    run = load_run(recipe, ["data.test=t.tsv"])
    assert run.data.train == (str(tmp_path / "deep" / "a.en"), "/somewhere/a.de")
    assert run.data.valid == str(tmp_path / "v.tsv")
    assert run.data.test == "t.tsv"
    assert run.start == str(tmp_path / "model")
    monkeypatch.setenv("CORPUS", "runs")  # where one stands, not where the recipe lies
    assert load_run(recipe).data.train[1] == str(Path.cwd() / "runs" / "a.de")
    monkeypatch.delenv("CORPUS")
    with pytest.raises(ConfigError, match="needs the environment variable CORPUS"):
        load_run(recipe)


def test_unreadable_recipes_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.toml: cannot be read: No such file"):
        read_toml(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_toml(tmp_path)
    for content in (b"seed = ", b"seed = 1\xff"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.toml: not valid TOML"):
            read_toml(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [({"beam": 10}, ("beam", 10, 1)), ({"beam": 10, "method": "greedy"}, ("greedy", 10, 1)),
     ({"alpha": 0.5}, ("greedy", 5, 1)), ({"method": "beam", "nbest": 7}, ("beam", 7, 7)),
     ({"beam": 7, "nbest": 2}, ("beam", 7, 2))],
)  # fmt: skip
def test_what_is_given_changes_a_search(given, wanted):
    found = change_search(Search(method="greedy"), given)
    assert (found.method, found.beam, found.nbest) == wanted


def test_a_wrong_change_of_a_search_is_told():
    with pytest.raises(ConfigError, match="beam"):
        change_search(Search(), {"beam": 0})
