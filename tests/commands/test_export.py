"""`regard export`, and `regard translate` with what it makes: the same lines as torch, in a process without torch."""

import json
import shutil
import subprocess
import sys

import pytest
import tomli_w

import regard
from regard.config import read_toml
from regard.errors import ConfigError
from regard.predict import load

WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
from regard.__main__ import start
start()
"""


@pytest.fixture(scope="module")
def model(shop, call, tmp_path_factory):
    """A run directory with an export."""
    run = tmp_path_factory.mktemp("export") / "run"
    shutil.copytree(shop / "transformer", run)
    done = call("export", run, "--to", "ctranslate2", "--check-lines", 15)
    assert done.code == 0, done.err
    assert b"greedy: 15 of 15 outputs as by torch (100.0%)" in done.out
    assert b"beam 5: 15 of 15 outputs as by torch (100.0%)" in done.out
    return run


@pytest.fixture(scope="module")
def lines(shop):
    found = [line.split("\t")[0] for line in (shop / "test.tsv").read_text().splitlines()]
    return "\n".join(["", *found, "  ", "zebra \u2028 .", "a b c d e " * 60, "last"]).encode()


def alone(*words, stdin=b""):
    """A command in a process of its own in which torch cannot be imported."""
    words = [sys.executable, "-c", WITHOUT_TORCH, *map(str, words)]
    return subprocess.run(words, input=stdin, capture_output=True, check=False)


def test_the_engines_side_by_side(model, shop, call, tmp_path):
    also = ["--also", "run engine=ctranslate2", "--test", shop / "test.tsv"]
    done = call("compare", model, *also, "-o", tmp_path, "--samples", 0, "--skip-speed", "--quiet", "maximum_length=6")
    assert done.code == 0, done.err
    rows = json.loads((tmp_path / "comparison.json").read_text())["rows"]
    one, other = (row["scores"]["perplexity"]["value"] for row in rows)
    assert other == pytest.approx(one, rel=1e-3)


def test_parity_is_kept(model):
    folder = model / "model" / "ctranslate2"
    parity = json.loads((folder / "parity.json").read_text())
    assert parity["sentences"] == 15
    assert {row["share"] for row in parity["methods"].values()} == {1.0}
    assert max(row["score_difference"] for row in parity["methods"].values()) < 1e-4
    assert json.loads((folder / "export.json").read_text())["quantization"] == "float32"


@pytest.mark.parametrize(
    "words",
    [["--method", "greedy"], ["--beam", 3, "--stop", "count"], ["--nbest", 3, "--stop", "count", "--alpha", 0.6]],
    ids=str,
)
def test_lines_are_those_of_torch(model, call, lines, words):
    """Blank lines, long ones and odd ones too; torch cannot even be imported."""
    words = [*words, "maximum_length=12"]
    wanted = call("translate", model, *words, "--engine", "torch", stdin=lines)
    for engine in ("ctranslate2", "auto"):
        found = alone("translate", model, *words, "--engine", engine, stdin=lines)
        assert found.returncode == 0, found.stderr
        assert found.stderr.decode() == wanted.err
        assert found.stdout.count(b"\n") == wanted.out.count(b"\n")
        one, other = (firsts(out) for out in (wanted.out, found.stdout))
        assert [line[:2] for line in one] == [line[:2] for line in other]
        for left, right in zip(one, other, strict=True):
            assert list(map(float, left[2:])) == pytest.approx(list(map(float, right[2:])), abs=1e-4)


def firsts(out):
    """The best output of each line, with its score in an n-best list."""
    lines = [line.split(" ||| ") for line in out.decode().split("\n")]
    return [
        line
        for line, before in zip(lines, [None, *lines], strict=False)
        if not before or len(line) < 3 or line[0] != before[0]
    ]


def test_records_and_interactive_answers(model, call):
    words = ["--method", "greedy", "maximum_length=12"]
    found = alone("translate", model, "--jsonl", *words, stdin=b"a b c\n\nd\n")
    records = [json.loads(line) for line in found.stdout.splitlines()]
    wanted = [
        json.loads(line) for line in call("translate", model, "--jsonl", *words, stdin=b"a b c\n\nd\n").out.splitlines()
    ]
    assert wanted[0]["alignment"] is None
    torch = call("translate", model, "--jsonl", *words, "--engine", "torch", stdin=b"a b c\n\nd\n").out.splitlines()
    for record, same in zip(records, map(json.loads, torch), strict=True):
        assert record["alignment"] is None
        for key in ("score", "log_probability"):
            assert record.pop(key) == pytest.approx(same.pop(key), abs=1e-4)
        assert record | {"alignment": same["alignment"]} == same
    answers = alone("translate", model, "--interactive", *words, stdin=b"a b c\n\nd\n")
    assert answers.stdout.decode().split("\n")[:-1] == [record["text"] for record in records]


def test_workers_change_nothing(model, call, lines, tmp_path):
    (tmp_path / "in.txt").write_bytes(lines)
    words = ["translate", model, "-i", tmp_path / "in.txt", "maximum_length=12", "--batch-tokens", 300]
    for engine in ("ctranslate2", "torch"):
        one = call(*words, "--engine", engine, "--workers", 1)
        two = call(*words, "--engine", engine, "--workers", 2)
        assert (one.code, one.out, one.err) == (two.code, two.out, two.err) == (0, one.out, one.err)
        blocks = call(*words, "--engine", engine, "--workers", 2, "--block", 7)  # two of which are in work at a time
        assert (blocks.code, blocks.out, blocks.err) == (0, one.out, one.err)
    sampled = [*words, "--engine", "torch", "--method", "sample", "--align"]
    assert call(*sampled, "--workers", 2).out == call(*sampled).out


NOT_THE_SAME = [
    (["--stop", "bound"], "stop = 'bound'"),
    (["--method", "sample"], "method = 'sample'"),
    (["--minimum-length", "2"], "minimum_length = 2"),
    (["--no-repeat", "2"], "no_repeat = 2"),
    (["--align"], "alignments"),
]


@pytest.mark.parametrize(("words", "name"), NOT_THE_SAME)
def test_what_it_cannot_do_is_refused_or_done_by_torch(model, call, words, name):
    words = ["translate", model, *words, "maximum_length=12"]
    refused = call(*words, "--engine", "ctranslate2", stdin=b"a b\n")
    assert (refused.code, refused.out) == (2, b"")
    assert f"regard: {name}: the engine ctranslate2 cannot do this" in refused.err
    done = call(*words, stdin=b"a b\n")
    assert done.err.startswith(f"regard: {name}: the engine ctranslate2 cannot do this, torch is used\n")
    wanted = call(*words, "--engine", "torch", stdin=b"a b\n")
    assert (done.code, done.out) == (wanted.code, wanted.out) == (0, wanted.out)


def test_prefixes_and_ensembles_are_for_torch(model, shop, call, tmp_path):
    (tmp_path / "prefix").write_text("b\n")
    words = ["translate", model, "--prefix", tmp_path / "prefix", "maximum_length=12"]
    assert "forced beginnings" in call(*words, "--engine", "ctranslate2", stdin=b"a b\n").err
    assert call(*words, stdin=b"a b\n").out.startswith(b"b")
    words = ["translate", "-m", model, "-m", shop / "transformer", "maximum_length=12"]
    refused = call(*words, "--engine", "ctranslate2", stdin=b"a b\n")
    assert (refused.code, "an ensemble" in refused.err) == (2, True)
    done = call(*words, stdin=b"a b\n")
    assert (done.code, done.err.count("an ensemble")) == (0, 1)
    done = call("translate", model, "--device", "cuda:99", "--engine", "ctranslate2", stdin=b"a\n")
    assert (done.code, "--device cuda:99" in done.err) == (2, True)


def test_without_an_export_or_without_ctranslate2(model, shop, call, monkeypatch):
    done = call("translate", shop / "transformer", "--engine", "ctranslate2", stdin=b"a\n")
    assert (done.code, "no such export" in done.err) == (4, True)
    assert load(shop / "transformer", engine="auto").engine.name == "torch"
    assert load(model, engine="auto").engine.name == "ctranslate2"
    assert regard.load(model).engine.name == "torch"
    monkeypatch.setattr("regard.engine.ctranslate2.is_installed", lambda: False)
    monkeypatch.setattr("regard.engine.export.is_installed", lambda: False)
    assert load(model, engine="auto").engine.name == "torch"
    with pytest.raises(ConfigError, match=r"pip install 'regard\[fast\]'"):
        load(model, engine="ctranslate2")
    done = call("export", model, "--to", "ctranslate2")
    assert (done.code, "regard[fast]" in done.err) == (2, True)


def test_a_damaged_export_is_told_and_not_passed_over(model, call, tmp_path):
    shutil.copytree(model / "model", tmp_path / "model")
    path = tmp_path / "model" / "ctranslate2" / "model.bin"
    content = bytearray(path.read_bytes())
    content[-5] ^= 64
    path.write_bytes(content)
    done = call("translate", tmp_path / "model", stdin=b"a\n")
    assert (done.code, done.out) == (4, b"")
    assert "model.bin: damaged" in done.err


def test_a_job_goes_on_only_with_its_engine(model, call, tmp_path, lines, monkeypatch):
    from regard.commands.translate import Part

    (tmp_path / "in.txt").write_bytes(lines)
    words = ["translate", model, "-i", tmp_path / "in.txt", "--block", 10, "maximum_length=12", "--method", "greedy"]
    assert call(*words, "-o", tmp_path / "whole").code == 0

    def fail(part, block, commit=Part.commit):
        commit(part, block)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Part, "commit", fail)
        assert call(*words, "-o", tmp_path / "out", "--workers", 2).code == 130
    other = call(*words, "-o", tmp_path / "out", "--resume", "--engine", "torch")
    assert (other.code, "made with another engine" in other.err) == (2, True)
    assert call(*words, "-o", tmp_path / "out", "--resume").code == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_what_the_command_needs(model, shop, call, tmp_path):
    done = call("export", shop / "rnn", "--to", "ctranslate2")
    assert (done.code, "model.kind = 'rnn'" in done.err) == (2, True)
    shutil.copytree(shop / "transformer" / "model", tmp_path / "model")
    done = call("export", tmp_path / "model", "--to", "ctranslate2")
    assert (done.code, "--check FILE" in done.err) == (2, True)
    (tmp_path / "lines").write_text("\n \n")
    done = call("export", tmp_path / "model", "--to", "ctranslate2", "--check", tmp_path / "lines")
    assert (done.code, "no lines to check" in done.err) == (2, True)
    assert not (tmp_path / "model" / "ctranslate2").exists()
    (tmp_path / "lines").write_text("a b c\n\nd\n")
    words = ["--quantization", "int8", "--check", tmp_path / "lines"]
    done = call("export", tmp_path / "model", "--to", "ctranslate2", *words)
    assert done.code == 0
    assert b" of 2 outputs" in done.out
    assert call("translate", tmp_path / "model", "--engine", "ctranslate2", stdin=b"a b\n").code == 0


def test_a_run_with_a_prepared_corpus_is_checked_on_it(shop, call, tmp_path):
    run = shutil.copytree(shop / "transformer", tmp_path / "run")
    corpus = (run / "data").rename(tmp_path / "corpus")
    options = read_toml(run / "run.toml")
    (run / "run.toml").write_text(tomli_w.dumps(options | {"data": options["data"] | {"prepared": str(corpus)}}))
    done = call("export", run, "--to", "ctranslate2", "--check-lines", 3)
    assert (done.code, b" of 3 outputs" in done.out) == (0, True)


def test_a_shortlist(shop, call, tmp_path):
    run = shutil.copytree(shop / "transformer", tmp_path / "run")
    words = ["export", run, "--to", "ctranslate2", "--check-lines", 5, "--shortlist"]
    done = call(*words, shop / "pairs.tsv", "--shortlist-size", 3)
    assert done.code == 0, done.err
    folder = run / "model" / "ctranslate2"
    lines = (folder / "vmap.txt").read_text().splitlines()
    assert lines[0].startswith("\t")
    assert all(len(line.split("\t")[1].split()) <= 3 for line in lines[1:])
    assert json.loads((folder / "export.json").read_text())["shortlist"] is True
    with_it = load(run, engine="ctranslate2")
    assert with_it.engine.shortlist
    allowed = {int(token) for line in lines for token in line.split("\t")[1].split()}
    written = {token for output in with_it.translate(["a b", "c d e"]) for token in output.ids}
    assert written <= allowed | {3}
    empty = tmp_path / "empty.tsv"
    empty.write_text("")
    assert call(*words, empty).code == 3
