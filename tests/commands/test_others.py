"""`score`, `attend`, `average`, `inspect`, `doctor` and `prepare`."""

import json
import math

import pytest
from safetensors.numpy import load_file


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# score


def test_score(shop, call, tmp_path):
    pairs = [line.split("\t") for line in (shop / "test.tsv").read_text().splitlines()]
    plain = call("score", shop / "rnn", shop / "test.tsv")
    assert plain.code == 0, plain.err
    assert plain.err.startswith("perplexity: ")
    rows = [list(map(float, line.split("\t"))) for line in plain.out.decode().splitlines()]
    assert len(rows) == len(pairs)
    for (_, target), (mean, total) in zip(pairs, rows, strict=True):
        assert mean * (len(target.split()) + 1) == pytest.approx(total, abs=1e-4)
    (tmp_path / "a").write_text("".join(f"{pair[0]}\n" for pair in pairs))
    (tmp_path / "b").write_text("".join(f"{pair[1]}\n" for pair in pairs))
    assert call("score", shop / "rnn", "a", "b").out == plain.out
    assert call("score", shop / "rnn", stdin=(shop / "test.tsv").read_bytes()).out == plain.out
    objects = [json.loads(line) for line in call("score", shop / "rnn", shop / "test.tsv", "--jsonl").out.splitlines()]
    assert objects[0]["tokens"] == pairs[0][1].split()
    assert call("score", shop / "rnn", "-m", shop / "rnn", "a", "b").code == 0


def test_the_search_reports_what_score_finds(shop, call):
    words = ("--jsonl", "--beam", 8, "--nbest", 8, "maximum_length=6")
    outputs = json.loads(call("translate", shop / "rnn", *words, stdin=b"a b c\n").out)["nbest"]
    finished = [output for output in outputs if output["finished"]]
    assert finished
    for found in finished:
        done = call("score", shop / "rnn", "--jsonl", stdin=f"a b c\t{found['text']}\n".encode())
        assert json.loads(done.out)["log_probability"] == pytest.approx(found["log_probability"], abs=1e-4)


def test_score_of_blank_sides_is_a_number(shop, call):
    done = call("score", shop / "rnn", stdin=b"\ta\na\t\n\t\n")
    assert done.code == 0, done.err
    assert done.out.count(b"\n") == 3
    assert all(math.isfinite(float(number)) for number in done.out.split())


def test_score_mistakes(shop, call):
    assert call("score", shop / "rnn", stdin=b"no tab\n").code == 3
    assert call("score", shop / "rnn", "a", "b", "c").code == 2
    assert call("score", "missing", stdin=b"a\tb\n").code == 4


# attend


def test_attend_by_the_ending(shop, call, tmp_path):
    for name in ("a.html", "a.json", "a.png", "a.SVG"):
        done = call("attend", shop / "transformer", "a b <script>", "-o", name, "maximum_length=3")
        assert (done.code, done.err) == (0, f"written: {name}\n")
        assert (tmp_path / name).stat().st_size > 500
    assert "<script>a" not in (tmp_path / "a.html").read_text()
    report = json.loads((tmp_path / "a.json").read_text())
    kinds = {layer["kind"] for layer in report["views"][0]["layers"]}
    assert kinds == {"encoder", "decoder", "cross"}


def test_attend_in_the_terminal_and_several_outputs(shop, call, tmp_path):
    done = call("attend", shop / "rnn", "a b")
    assert done.code == 0, done.err
    assert "a" in done.out.decode()
    done = call("attend", shop / "rnn", "a b", "--nbest", 3, "-o", "n.json")
    assert len(json.loads((tmp_path / "n.json").read_text())["views"]) == 3
    done = call("attend", shop / "rnn", "a b", "--target", "b a", "-o", "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["views"][0]["target_tokens"] == ["b", "a", "</s>"]


def test_attend_mistakes(shop, call):
    for text in ("", "  ", "a " * 300):
        done = call("attend", shop / "rnn", text)
        assert done.code == 3
        assert "tokens; expected" in done.err
    done = call("attend", shop / "rnn", "a", "-o", "no/such/x.html")
    assert done.code == 1
    assert "no/such" in done.err


# average


def test_average(shop, call, tmp_path):
    assert call("average", shop / "rnn", shop / "rnn" / "model", "-o", "mean").code == 0
    one, mean = (load_file(path / "model.safetensors") for path in (shop / "rnn" / "model", tmp_path / "mean"))
    assert all((one[name] == mean[name]).all() for name in one)
    lines = b"a b c\nd\n"
    assert call("translate", "mean", stdin=lines).out == call("translate", shop / "rnn", stdin=lines).out
    assert "averaged" in call("inspect", "mean").out.decode()
    done = call("average", shop / "rnn", shop / "transformer", "-o", "other")
    assert done.code == 4
    assert "cannot be averaged with" in done.err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    assert call("average", shop / "rnn", "-o", "full").code == 2
    assert call("average", shop / "rnn", "-o", ".").code == 2
    assert (tmp_path / "full" / "thesis.tex").exists()


@pytest.mark.parametrize(
    "section", ["{kind='rnn', width=16, embedding=16", "{kind='ctc', width=16, tie='none', heads=2"]
)
def test_average_of_two(shop, call, tmp_path, section):
    def train(name, *more):
        options = ["text.source=words", "text.target=words", "train.max_steps=1", "train.average=0", "--quiet"]
        done = call("train", shop / "tiny.toml", "-o", name, "--prepared", shop / "rnn" / "data", *options, *more)
        assert done.code == 0, done.err

    train("a", f"model={section}}}")
    train("b", f"model={section}, dropout=0.4}}", "seed=4")
    train("c", "model={kind='ctc', width=16, tie='none', heads=4}")
    assert call("average", "a", "b", "-o", "mean").code == 0
    one, other, mean = (load_file(tmp_path / path / "model.safetensors") for path in ("a/model", "b/model", "mean"))
    for name, found in mean.items():
        assert found == pytest.approx((one[name] + other[name]) / 2, abs=1e-6)
    done = call("average", "a", "c", "-o", "odd")
    assert done.code == 4
    assert "cannot be averaged with" in done.err


# inspect, doctor


def test_inspect(shop, call):
    done = call("inspect", shop / "rnn", "--weights")
    assert done.code == 0, done.err
    text = done.out.decode()
    assert "all files agree with the manifest" in text
    assert "rnn, " in text
    assert "words → words" in text
    for name in load_file(shop / "rnn" / "model" / "model.safetensors"):
        assert name in text
    assert json.loads(call("inspect", shop / "rnn", "--json").out)["model"]["kind"] == "rnn"


def test_inspect_an_unfinished_run(shop, call, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text("seed = 1\n")
    done = call("inspect", "run")
    assert done.code == 4
    assert "has not finished" in done.err


def test_doctor(call):
    done = call("doctor")
    assert done.code == 0
    for word in ("python", "torch", "cores", "memory", "disk"):
        assert word in done.out.decode()


# prepare


def test_prepare_tells_what_is_odd(call, tmp_path):
    rows = ["a b\tb a", "a b\tb a", "a b\tc", "x\tx", "\ty", "y\t", "k\t" + "z " * 12, "l\tm", "n\to", "p\tq"]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "test.tsv").write_text("a b\tb a\nnew\tnew\n")
    words = ("pairs.tsv", "-o", "corpus", "--test", "test.tsv", "text={source='words', target='words'}")
    done = call("prepare", *words, "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)["corpora"]
    train = report["train"]
    found = [train[key] for key in ("pairs", "duplicates", "contradicting", "identical", "empty_source", "lopsided")]
    assert found == [10, 1, 3, 1, 1, 1]
    assert report["test"]["seen_in_training"]["seen_pairs"] == 1
    assert {path.name for path in (tmp_path / "corpus").iterdir()} >= {"train", "valid", "audit.json", "run.toml"}
    before = (tmp_path / "corpus" / "prepared.json").stat().st_mtime_ns
    table = call("prepare", *words)
    assert "same source, other target" in table.out.decode()
    assert (tmp_path / "corpus" / "prepared.json").stat().st_mtime_ns == before, "it is there already"
    (tmp_path / "test.tsv").write_text("new\tnew\n")
    assert json.loads(call("prepare", *words, "--json").out)["corpora"]["test"]["pairs"] == 1


def test_prepare_with_the_tokenizers_of_a_model(shop, call, tmp_path):
    done = call("prepare", shop / "test.tsv", "--from", shop / "rnn", "-o", "corpus")
    assert done.code == 0, done.err
    for name in ("source.json", "target.json"):
        assert (tmp_path / "corpus" / name).read_bytes() == (shop / "rnn" / "model" / name).read_bytes()
    short = ("train.max_steps=1", "train.decode_limit=1", "--quiet")
    done = call("train", "--prepared", "corpus", "--from", shop / "rnn", "-o", "run", *short)
    assert done.code == 0, done.err


def test_prepare_leaves_foreign_folders_alone(shop, call, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    for output in ("thesis", "."):
        done = call("prepare", shop / "tiny.toml", "-o", output)
        assert done.code == 2
        assert "was not made by this command" in done.err
    assert (tmp_path / "thesis" / "thesis.tex").exists()
