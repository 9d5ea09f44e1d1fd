"""Columns are made when a model asks for them, once, and say what they should."""

import shutil

import numpy as np
import pytest

import regard
from regard.align.fertility import fertility
from regard.columns import add_columns, corpus_rows
from regard.data.store import Store
from regard.errors import ConfigError, DataError, ModelError
from regard.prepare import open_prepared


def trained(shop, directory, model):
    """A finished run of a small model."""
    values = {
        "data": {"train": str(shop / "test.tsv"), "valid": str(shop / "test.tsv"), "batch_tokens": 400},
        "text": {"source": "words", "target": "words", "joint": True},
        "model": {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 16} | model,
        "train": {"max_steps": 2, "validate_every": 2, "decode_limit": 2},
    }
    regard.train(values, directory, quiet=True)
    return directory


@pytest.fixture(scope="module")
def run(shop, tmp_path_factory):
    """A run whose model learns from fertilities."""
    return trained(shop, tmp_path_factory.mktemp("columns") / "run", {"kind": "nonautoregressive"})


@pytest.fixture(scope="module")
def looking(shop, tmp_path_factory):
    """A run of a model with attention, whose corpus has no columns."""
    return trained(shop, tmp_path_factory.mktemp("columns") / "looking", {"kind": "transformer"})


def test_fertilities_sum_to_the_target(run):
    for part in ("train", "valid"):
        store = Store(run / "data" / part)
        batch = store.batch(range(len(store)))
        assert (batch.extra["fertility"].sum(1) == batch.target_length - 1).all()


def test_a_column_is_made_once(run):
    prepared, said = open_prepared(run / "data"), []
    again = add_columns(prepared, ["fertility"], said.append)
    assert again is prepared
    assert not said
    with pytest.raises(ConfigError, match="no column 'moods'"):
        add_columns(prepared, ["moods"], said.append)


def without_columns(looking, directory):
    """A copy of its corpus."""
    return open_prepared(shutil.copytree(looking / "data", directory))


def test_one_store_without_it_makes_both_anew(run, looking, tmp_path):
    said = []
    prepared = add_columns(without_columns(looking, tmp_path / "data"), ["fertility"], said.append)
    assert any("fertilities: mean" in line for line in said)
    with_it = Store(run / "data" / "train")
    rows = range(len(with_it))
    assert (prepared.train.batch(rows).extra["fertility"] == with_it.batch(rows).extra["fertility"]).all()


def test_fertilities_can_follow_what_a_model_looks_at(run, looking, tmp_path):
    said = []
    prepared = add_columns(without_columns(looking, tmp_path / "data"), ["fertility"], said.append, str(looking))
    assert f"by what {looking} looks at" in said[0]
    model = regard.load(looking)
    found = prepared.train.batch(range(len(prepared.train)))
    for number in range(0, len(prepared.train), 7):
        source, target = prepared.train.source(number), prepared.train.target(number)
        maps = model.engine.cross_attention([source.tolist()], [target.tolist()])
        assert maps is not None
        weights = maps[0, : len(target) - 1, : len(source) - 1]
        links = frozenset((int(place), word) for word, place in enumerate(weights.argmax(1)))
        expected = fertility(links, len(source) - 1, len(target) - 1)
        assert (found.extra["fertility"][number, : len(source) - 1] == expected).all()
    by_words = Store(run / "data" / "train").batch(range(len(prepared.train)))
    assert not np.array_equal(found.extra["fertility"], by_words.extra["fertility"])


def test_a_model_that_aligns_has_the_tokens_of_the_corpus(looking, tmp_path):
    prepared = without_columns(looking, tmp_path / "data")
    (tmp_path / "data" / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"data\.aligner = '.*looking': its tokenizers are not those of"):
        add_columns(prepared, ["fertility"], [].append, str(looking))
    with pytest.raises(ModelError, match="no such model directory"):
        add_columns(prepared, ["fertility"], [].append, str(tmp_path / "nowhere"))


def test_fertilities_can_follow_links_from_a_file(looking, tmp_path):
    """Every target token belongs to the first source token; training pairs come before validation pairs."""
    prepared, said = without_columns(looking, tmp_path / "data"), []
    pairs = list(corpus_rows(prepared))
    file = tmp_path / "links.txt"
    file.write_text("".join(" ".join(f"0-{word}" for word in range(len(target))) + "\n" for _, target in pairs))
    made = add_columns(prepared, ["fertility"], said.append, str(file))
    assert said[0] == f"reading links from {file}, for the fertilities"
    for store in (made.train, made.valid):
        found = store.batch(range(len(store)))
        assert (found.extra["fertility"][:, 0] == found.target_length - 1).all()
        assert not found.extra["fertility"][:, 1:].any()

    # a corpus keeps the fertilities it has, and says so
    assert add_columns(made, ["fertility"], said.append, str(file)) is made
    assert said[-1] == f"{made.directory} has its column 'fertility' already: {file} is not asked"


def test_links_of_another_corpus_are_refused_and_change_nothing(looking, tmp_path):
    prepared = without_columns(looking, tmp_path / "data")
    pairs = len(prepared.train) + len(prepared.valid)
    for lines, message in (("0-0\n", "has 1 lines, but there are"), ("0-99\n" * pairs, "0-99 is outside the pair")):
        (tmp_path / "links.txt").write_text(lines)
        with pytest.raises(DataError, match=message):
            add_columns(prepared, ["fertility"], [].append, str(tmp_path / "links.txt"))
    assert not open_prepared(tmp_path / "data").train.columns


def test_a_model_that_is_not_there_is_told_before_the_corpus_is_made(shop, tmp_path):
    values = {"data": {"train": str(shop / "test.tsv"), "aligner": str(tmp_path / "nowhere")}}
    with pytest.raises(ModelError, match="no such model directory"):
        regard.train(values, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "data").exists()
