"""From files to a prepared corpus: the split, the stores, and what is noticed."""

import pytest

from regard.config import Run, Text, validate
from regard.data.text import Pair
from regard.errors import ConfigError, DataError
from regard.prepare import Splitter, open_prepared, prepare, require_same


def make(path, **data):
    values = {"data": {"train": str(path), **data}, "text": {"source": "words", "target": "words"}}
    return validate(Run, values, "here")


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return path


def silent(text):
    pass


@pytest.fixture
def corpus(tmp_path):
    return write(tmp_path / "pairs.tsv", [(f"s{number // 2}", f"t{number}") for number in range(400)])


def split(run):
    splitter = Splitter(run)
    everything = list(splitter.measured())
    train, valid = list(splitter.train()), list(splitter.valid())
    assert sorted(train + valid) == sorted(everything)
    return train, valid


def test_the_split_keeps_equal_sources_together(corpus):
    train, valid = split(make(corpus))
    assert not {pair.source for pair in train} & {pair.source for pair in valid}
    assert 10 < len(valid) < 80
    assert split(make(corpus))[1] == valid, "it is a function of seed and text"
    other = validate(Run, {**make(corpus).model_dump(), "seed": 2}, "here")
    assert split(other)[1] != valid


def test_the_size_of_the_split(corpus, tmp_path):
    assert len(split(make(corpus, valid_fraction=0.5))[1]) > 100
    assert len(split(make(corpus, valid_limit=4))[1]) < 20
    assert len(split(make(corpus, valid_fraction=0.0))[1]) == 2, "one source at least"
    assert len(split(make(corpus, max_pairs=4))[0]) == 2


def test_a_prepared_corpus_opens_again(corpus, tmp_path):
    said = []
    first = prepare(make(corpus), tmp_path / "data", said.append)
    assert said
    again = prepare(make(corpus), tmp_path / "data", said.clear)
    opened = open_prepared(tmp_path / "data")
    for other in (again, opened):
        assert (other.facts, other.valid_pairs) == (first.facts, first.valid_pairs)
    assert len(first.valid_pairs) == len(first.valid)
    for number, pair in enumerate(first.valid_pairs):
        assert first.task.source.ids(pair.source) == first.valid.source(number).tolist()[:-1]
    total = first.facts["train"]["pairs"] + first.facts["valid"]["pairs"]
    assert total + first.facts["train"]["empty"] + first.facts["train"]["too_long"] == 400


def test_changed_files_are_noticed_unless_the_run_has_begun(corpus, tmp_path):
    first = prepare(make(corpus), tmp_path / "data", silent)
    write(corpus, [("a", "b"), ("c", "d")])
    assert prepare(make(corpus), tmp_path / "data", silent, begun=True).facts == first.facts
    corpus.unlink()
    assert prepare(make(corpus), tmp_path / "data", silent, begun=True).facts == first.facts
    write(corpus, [("a", "b"), ("c", "d")])
    assert prepare(make(corpus), tmp_path / "data", silent).facts["train"]["pairs"] == 1


def test_odd_pairs_are_left_out_and_counted(tmp_path):
    pairs = [("a", "b"), ("", "x"), ("y", " "), ("l " * 300, "z"), ("c", "d"), ("e\u2028f\x85g\0h", "NUL\x1c")]
    path = write(tmp_path / "pairs.tsv", pairs)
    valid = write(tmp_path / "valid.tsv", [("a", "\u2028b \x85"), ("", "x"), ("q", "\x0c r")])
    found = prepare(make(path, valid=str(valid), max_length=50), tmp_path / "data", silent)
    assert {key: found.facts["train"][key] for key in ("pairs", "empty", "too_long")} == {
        "pairs": 3, "empty": 2, "too_long": 1,
    }  # fmt: skip
    assert found.valid_pairs == [Pair("a", "\u2028b \x85"), Pair("q", "\x0c r")], "the raw text survives"


def test_an_unfinished_corpus_is_made_again(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("regard.prepare.store_pairs", lambda *values: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            prepare(make(corpus), tmp_path / "data", silent)
    with pytest.raises(DataError, match="it was not finished"):
        open_prepared(tmp_path / "data")
    assert prepare(make(corpus), tmp_path / "data", silent).facts["train"]["pairs"]


def test_what_cannot_be_used_is_told(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"prepared\.json is missing"):
        open_prepared(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"data\.train: no training file"):
        prepare(Run(), tmp_path / "data", silent)
    path = write(tmp_path / "pairs.tsv", [("a", "b"), ("c", "d")])
    valid = write(tmp_path / "valid.tsv", [("a", "")])
    with pytest.raises(DataError, match=r"valid\.tsv: no pair is left for valid: 1 are empty"):
        prepare(make(path, valid=str(valid)), tmp_path / "data", silent)
    with pytest.raises(ConfigError, match=r"text\.lowercase = true, but x was trained with false"):
        require_same(Text(), Text(lowercase=True), "x was trained")
