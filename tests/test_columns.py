"""Columns are made when a model asks for them, once, and say what they should."""

import pytest

import regard
from regard.columns import add_columns
from regard.data.store import Store
from regard.errors import ConfigError
from regard.prepare import open_prepared

NAT = {"kind": "nonautoregressive", "width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}


@pytest.fixture(scope="module")
def run(shop, tmp_path_factory):
    """A finished run of a model that learns from fertilities."""
    directory = tmp_path_factory.mktemp("columns") / "run"
    values = {
        "data": {"train": str(shop / "test.tsv"), "valid": str(shop / "test.tsv"), "batch_tokens": 400},
        "text": {"source": "words", "target": "words", "joint": True},
        "model": NAT | {"feed_forward": 16},
        "train": {"max_steps": 2, "validate_every": 2, "decode_limit": 2},
    }
    regard.train(values, directory, quiet=True)
    return directory


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


def test_one_store_without_it_makes_both_anew(run, shop, tmp_path):
    regard.train(
        {
            "data": {"train": str(shop / "test.tsv"), "valid": str(shop / "test.tsv"), "batch_tokens": 400},
            "text": {"source": "words", "target": "words", "joint": True},
            "model": {"kind": "transformer", "width": 8, "heads": 2, "feed_forward": 16},
            "train": {"max_steps": 1, "validate_every": 1, "decode_limit": 0},
        },
        tmp_path / "other",
        quiet=True,
    )
    said = []
    prepared = add_columns(open_prepared(tmp_path / "other" / "data"), ["fertility"], said.append)
    assert any("fertilities: mean" in line for line in said)
    with_it = Store(run / "data" / "train")
    rows = range(len(with_it))
    assert (prepared.train.batch(rows).extra["fertility"] == with_it.batch(rows).extra["fertility"]).all()
