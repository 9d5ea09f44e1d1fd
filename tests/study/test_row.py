"""What the words of a command name: recipes, runs, models, one set of test pairs."""

from pathlib import Path

import pytest

from regard.errors import ConfigError, DataError, ModelError
from regard.study.row import find_rows, read_test, unique_names


def test_names_are_stems_made_unique(tmp_path):
    paths = [tmp_path / name for name in ("a/rnn.toml", "b/rnn.toml", "c/big", "a/rnn", "d/x.toml", "d/x.toml")]
    assert unique_names(paths) == ["a-rnn", "b-rnn", "big", "a-rnn-2", "d-x", "d-x-2"]
    assert unique_names([Path("runs/a.b"), Path("a.b.toml")]) == ["runs-a.b", f"{Path.cwd().name}-a.b"]


def test_a_recipe_a_run_and_a_model(shop, tmp_path):
    alone = tmp_path / "alone"
    alone.symlink_to(shop / "rnn" / "model")
    words = [str(shop / "tiny.toml"), str(shop / "rnn"), str(shop / "transformer" / "model"), str(alone)]
    rows = find_rows(words, tmp_path, ["train.max_steps=7"])
    assert [row.name for row in rows] == ["tiny", "rnn", "transformer", "alone"]
    assert [row.is_trained for row in rows] == [False, True, True, True]
    assert rows[0].directory == tmp_path / "tiny"
    assert rows[2].directory == shop / "transformer"
    steps = [row.run.train.max_steps if row.run else None for row in rows]
    assert steps == [7, 12, 12, None]


def test_what_is_not_there_is_told(shop, tmp_path):
    for word, kind, message in (
        (tmp_path / "x.toml", ConfigError, "x.toml: cannot be read"),
        (tmp_path / "x", ModelError, "no such model directory"),
        (tmp_path, ModelError, "not a model directory"),
        (shop / "test.tsv", ModelError, "expected a recipe"),
    ):
        with pytest.raises(kind, match=message):
            find_rows([str(word)], tmp_path, [])
    with pytest.raises(ConfigError, match="nothing to compare"):
        find_rows([], tmp_path, [])


def test_one_set_of_test_pairs_for_all(shop, tmp_path):
    pairs = (shop / "pairs.tsv").read_text()
    for name, content in (("one", "a\tb\n"), ("same", "a\tb\n"), ("other", "a\tc\n"), ("empty", "")):
        (tmp_path / f"{name}.tsv").write_text(content)
        recipe = (shop / "tiny.toml").read_text().replace('"pairs.tsv"', f'"pairs.tsv", test = "{name}.tsv"')
        (tmp_path / f"{name}.toml").write_text(recipe)
    (tmp_path / "pairs.tsv").write_text(pairs)
    (tmp_path / "none.toml").write_text((shop / "tiny.toml").read_text())

    def rows(*names):
        return find_rows([str(tmp_path / f"{name}.toml") for name in names], tmp_path, [])

    found = read_test(rows("one", "none", "same"), [])
    assert (found.names, [tuple(pair) for pair in found.pairs]) == (("one.tsv",), [("a", "b")])
    with pytest.raises(ConfigError, match=r"one has one\.tsv, other has other\.tsv; name one for all with --test"):
        read_test(rows("one", "same", "other"), [])
    assert read_test(rows("one", "other"), [str(tmp_path / "other.tsv")]).names == ("other.tsv",)
    with pytest.raises(ConfigError, match=r"no row has data\.test"):
        read_test(rows("none"), [])
    with pytest.raises(DataError, match=r"empty\.tsv: no pairs"):
        read_test(rows("empty"), [])


def test_a_model_stands_there_again_with_another_search(shop, tmp_path):
    words = [str(shop / "tiny.toml"), str(shop / "rnn")]
    judge = str(shop / "transformer")
    variants = ["rnn method=greedy", f"{judge} beam=7 rescore=rnn", f"tiny engine=ctranslate2 rescore={judge}"]
    rows = find_rows(words, tmp_path, [], variants)
    assert [row.name for row in rows[2:]] == [
        "rnn method=greedy",
        "transformer beam=7 rescore=rnn",
        "tiny engine=ctranslate2 rescore=transformer",
    ]
    assert [row.is_variant for row in rows] == [False, False, True, True, True]
    assert rows[2].directory == rows[1].directory
    assert [dict(row.search) for row in rows[2:]] == [{"method": "greedy"}, {"beam": 7}, {}]
    assert [row.rescore for row in rows[2:]] == [None, str(shop / "rnn"), judge]
    assert len({str(row.identity()) for row in rows[1:4]}) == 3 - 1, "the search is no part of what a model is"
    for variant, message in (
        ("rnn beem=3", "unknown key 'beem'"),
        ("rnn engine=steam", "engine = 'steam', expected one of auto, torch, ctranslate2"),
        ("rnn 7", "expected section.key=value"),
        ("rnn 'beam=2", "No closing quotation"),
        ("", "expected a row or a model, and what is other"),
        ("rnn", "expected a row or a model, and what is other"),
        (f"{shop / 'words.toml'} beam=1", "name the recipe among the rows, and here its row 'words'"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_rows(words, tmp_path, [], [variant])
    with pytest.raises(ConfigError, match="there is such a row already"):
        find_rows(words, tmp_path, [], ["rnn beam=1", "rnn beam=1"])
    with pytest.raises(ConfigError, match=r"'train\.rate=1': an option of recipes, and no recipe is named"):
        find_rows(words[1:], tmp_path, ["train.rate=1"])
    with pytest.raises(ModelError, match="nowhere"):
        find_rows(words, tmp_path, [], ["rnn rescore=nowhere"])
