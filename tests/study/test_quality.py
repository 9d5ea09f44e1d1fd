"""Scores are those of `evaluate`; what is there for the same question is taken, for another one made anew."""

import pytest

from regard.config import Text
from regard.data.text import Pair
from regard.errors import ConfigError
from regard.study import quality
from regard.study.quality import Judge, choose_metrics, row_search
from regard.study.row import HeldOut, find_rows


@pytest.fixture
def rows(shop, tmp_path):
    return find_rows([str(shop / "rnn"), str(shop / "transformer")], tmp_path, [])


@pytest.fixture
def judge():
    pairs = tuple(Pair(source, source[::-1]) for source in ("3 1 2", "1", "2 2 4 1"))
    options = {"maximum_length": 5, "beam": 2}
    return Judge(
        HeldOut(("x.tsv",), pairs, "0"), ["exact_match", "tokenised_bleu"], 20, options, "cpu", "regard compare"
    )


def test_scored_once_for_the_same_question(rows, judge, tmp_path, monkeypatch):
    first = judge.score(rows[0], tmp_path / "a")
    real, calls = quality.evaluate, []
    monkeypatch.setattr(quality, "evaluate", lambda *given: calls.append(1) or real(*given))
    again = judge.score(rows[0], tmp_path / "a")
    assert (again.result, again.texts, calls) == (first.result, first.texts, [])
    judge.score(rows[1], tmp_path / "a")  # another model
    other = Judge(judge.held_out, ["wer"], 20, judge.search, "cpu", "")
    assert set(other.score(rows[1], tmp_path / "a").result["scores"]) == {"wer", "perplexity"}
    assert len(calls) == 2
    assert first.result["search"]["maximum_length"] == 5
    assert first.texts["tokenised_bleu"][1] == [pair.target for pair in judge.held_out.pairs]


@pytest.mark.parametrize("damage", ["result.json", "hypotheses.txt", "hypotheses.tokenised.txt"])
def test_what_is_damaged_is_made_anew(damage, rows, judge, tmp_path):
    first = judge.score(rows[0], tmp_path)
    path = tmp_path / damage
    for broken in (lambda: path.write_text("{"), path.unlink):
        broken()
        assert judge.score(rows[0], tmp_path).texts == first.texts


def test_the_difference_from_the_first(rows, judge, tmp_path):
    one, two = (judge.score(row, tmp_path / row.name) for row in rows)
    found = judge.against(one, two)
    assert set(found) == {"exact_match", "tokenised_bleu"}
    assert judge.against(one, one)["exact_match"]["p_value"] == 1
    two.texts["tokenised_bleu"] = (two.texts["tokenised_bleu"][0], ["other"] * 3)
    assert set(judge.against(one, two)) == {"exact_match"}, "other references: no difference can be told"
    assert sum(row["count"] for row in judge.by_length(one, "words")) == 3
    assert [row["last"] for row in judge.by_length(one, "characters")][-1] == 7


def test_the_search_is_the_models_own_but_for_what_is_given(rows):
    assert (
        row_search(rows[0], {"alpha": 0.5, "nbest": 3}).model_dump() | {"alpha": 1.0}
        == row_search(rows[0], {}).model_dump()
    )
    with pytest.raises(ConfigError, match="search: beam"):
        row_search(rows[0], {"beam": 0})


def test_what_is_scored_where_nobody_says():
    assert choose_metrics(Text()) == ["bleu", "tokenised_bleu", "chrf"]
    assert choose_metrics(Text(lowercase=True)) == ["lower_bleu", "tokenised_bleu", "lower_chrf"]
    assert choose_metrics(Text(target="words")) == ["exact_match", "wer", "cer"]
