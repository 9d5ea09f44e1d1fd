"""`regard evaluate`: models and files against references, compared, by length, and kept."""

import json
from functools import partial

import pytest

import regard
from regard.commands import evaluate
from regard.training import progress


@pytest.fixture
def files(shop, tmp_path, monkeypatch):
    """Sources, references and the outputs of two systems, the second one with more mistakes."""
    monkeypatch.chdir(tmp_path)
    pairs = [line.split("\t") for line in (shop / "test.tsv").read_text().splitlines()]
    (tmp_path / "source").write_text("".join(f"{source}\n" for source, _ in pairs))
    (tmp_path / "reference").write_text("".join(f"{target}\n" for _, target in pairs))
    for name, every in (("good", 10), ("bad", 2)):
        lines = [target if number % every else f"wrong {target}" for number, (_, target) in enumerate(pairs)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_a_model_with_everything(shop, call, files):
    words = [shop / "transformer", shop / "test.tsv", "--beam", 2, "maximum_length=6", "--samples", 20]
    done = call("evaluate", *words, "--against", "good", "--by-length", "--save", "kept", "--seed", 7)
    assert done.code == 0, done.err
    text = done.out.decode()
    for part in ("exact match: ", "(95 %: ", "perplexity: ", "difference +", "source length   lines   score"):
        assert part in text
    result = json.loads((files / "kept" / "result.json").read_text())
    for key in ("command", "commit", "seed", "seconds", "data_sha256", "machine", "scores", "search", "comparison"):
        assert key in result
    assert (result["seed"], result["search"]["beam"], result["search"]["seed"]) == (7, 2, 7)
    assert result["command"].startswith("regard evaluate ")
    assert result["model"]["training"]["data_sha256"], "the training behind it is told too"
    hypotheses = (files / "kept" / "hypotheses.txt").read_bytes()
    sources = (files / "source").read_bytes()
    assert hypotheses == call("translate", shop / "transformer", "--beam", 2, "maximum_length=6", stdin=sources).out
    again = call("evaluate", "--hypotheses", "kept/hypotheses.txt", "--references", "reference", "--samples", 0,
                 "--metrics", "exact_match,wer", "--json")  # fmt: skip
    rescored = json.loads(again.out)["scores"]
    assert rescored["wer"]["value"] == result["scores"]["wer"]["value"]


def test_a_long_evaluation_tells_how_far_it_is(shop, capsys, monkeypatch):
    monkeypatch.setattr(progress, "Progress", partial(progress.Progress, every=0))
    model = regard.load(shop / "transformer")
    with evaluate.showing(model, 3):
        model.translate(["a b", "", "c"], batch_tokens=1, maximum_length=2, method="greedy")
    told = capsys.readouterr().err
    assert "line 1/3" in told
    assert "line 2/3" in told


def test_bleu_is_printed_with_its_kind(shop, call, files):
    words = ["--metrics", "bleu,tokenised_bleu,perplexity", "--samples", 0, "--method", "greedy", "maximum_length=6"]
    done = call("evaluate", shop / "rnn", "source", "reference", *words, "--json", "--save", "kept")
    assert done.code == 0, done.err
    scores = json.loads(done.out)["scores"]
    assert set(scores) == {"bleu", "tokenised_bleu", "perplexity"}
    assert "nrefs:1" in scores["bleu"]["signature"]
    assert (files / "kept" / "hypotheses.tokenised.txt").read_bytes().count(b"\n") == 30


def test_a_model_is_compared_in_the_form_a_metric_takes(shop, call, files):
    """Against its own outputs there is no difference, whatever the tokenisation."""
    (files / "pairs.tsv").write_text("a b c\tc, b. a\nd e\te, d.\n" * 4)
    words = ["--metrics", "tokenised_bleu,bleu", "--samples", 20, "--method", "greedy", "maximum_length=6"]
    done = call("evaluate", shop / "transformer", "pairs.tsv", *words, "--save", "kept")
    assert done.code == 0, done.err
    (files / "other").write_text("c, b. a\ne, d.\n" * 4)
    done = call("evaluate", shop / "transformer", "pairs.tsv", *words, "--against", "other", "--json")
    found = json.loads(done.out)["comparison"]
    assert found["tokenised_bleu"]["b"] == pytest.approx(100), "the references themselves, tokenised as they are"
    assert found["tokenised_bleu"]["a"] == json.loads(done.out)["scores"]["tokenised_bleu"]["value"]


def test_lower_case_models_are_scored_in_lower_case():
    from regard.commands.evaluate import default_metrics
    from regard.config import Text

    assert default_metrics(Text()) == ["bleu", "tokenised_bleu", "chrf"]
    assert default_metrics(Text(lowercase=True)) == ["lower_bleu", "tokenised_bleu", "lower_chrf"]
    assert default_metrics(Text(target="words"))[0] == "exact_match"


def test_files_alone(call, files):
    done = call("evaluate", "--hypotheses", "bad", "--against", "good", "--references", "reference", "--sources",
                "source", "--by-length", "--metrics", "exact_match,chrf", "--save", "kept")  # fmt: skip
    assert done.code == 0, done.err
    text = done.out.decode()
    assert "exact match: 50.00 %" in text
    assert "exact_match: 50 % against 90 %, difference +40 %" in text
    assert "p = 0.0" in text
    assert "significant" in text
    assert json.loads((files / "kept" / "result.json").read_text())["data_sha256"]
    several = call("evaluate", "--hypotheses", "bad", "--references", "reference", "--references", "bad", "--json")
    assert json.loads(several.out)["scores"]["exact_match"]["value"] == 1


def test_what_cannot_be_is_told_before_the_work(shop, call, files, monkeypatch):
    monkeypatch.setattr("regard.predict.Predictor.nbest", None)
    (files / "short").write_text("a\n")
    model = [shop / "rnn", "source", "reference"]
    for words, code, message in (
        ([*model, "--save", "good"], 2, "--save good: exists and is not a folder"),
        ([*model, "--against", "short"], 3, "source has 30 lines, short has 1"),
        ([*model, "--metrics", "perplexity", "--by-length"], 2, "outputs need another metric"),
        (["--hypotheses", "good", "--references", "reference", "--metrics", "perplexity"], 2, "another metric"),
    ):
        done = call("evaluate", *words)
        assert (done.code, message in done.err) == (code, True), done.err


def test_mistakes(shop, call, files):
    (files / "short").write_text("a\n")
    (files / "empty.tsv").write_text("")
    both = ["--hypotheses", "good", "--references", "reference"]
    for words, code, messages in (
        (["--hypotheses", "short", "--references", "reference"], 3, ["short has 1 lines", "reference has 30"]),
        ([*both, "--against", "short"], 3, ["good has 30 lines, short has 1"]),
        ([*both, "--by-length", "--sources", "short"], 3, ["short has 1"]),
        ([*both, "--by-length"], 2, ["--by-length needs --sources"]),
        ([*both, "--metrics", "blue"], 2, ["unknown metric 'blue'; known: bleu"]),
        ([shop / "rnn", "source", "short"], 3, ["source has 30 lines", "short has 1"]),
        ([shop / "rnn", "empty.tsv"], 3, ["empty.tsv: no pairs"]),
        ([shop / "rnn", shop / "test.tsv", "--against", "short", "maximum_length=1"], 3, ["short has 1"]),
        ([shop / "rnn", shop / "test.tsv", "--references", "x"], 2, ["belong to --hypotheses"]),
        ([shop / "rnn", "missing.tsv"], 3, ["missing.tsv: no such file"]),
        (["missing", shop / "test.tsv"], 4, ["missing: no such model directory"]),
        (["--hypotheses", "missing", "--references", "reference"], 3, ["missing: no such file"]),
    ):
        done = call("evaluate", *words)
        assert (done.code, done.out) == (code, b""), (words, done.err)
        assert all(message in done.err for message in messages), done.err
