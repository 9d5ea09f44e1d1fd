"""`regard distill`: a student by a recipe or with no configuration, stopped at any moment and gone on with."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

import regard.distill
from regard.__main__ import main
from regard.config import load_run
from regard.data.part import Part
from regard.directory import hash_file, identify
from regard.predict import Predictor
from regard.training.update import Updater

SHORT = ("train.max_steps=4", "train.validate_every=2", "train.decode_limit=2", "train.average=0", "--quiet")
SMALL = ("model={kind='rnn', width=8, embedding=8}", *SHORT)
WORDS = "text={}"  # nothing: as the teacher


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def run_forked(words, before, log) -> int:
    """The exit code of the command in a forked process, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        try:
            before()
            os._exit(main([str(word) for word in words]))
        except BaseException as error:
            os.write(2, repr(error).encode())
        os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def stop_in(owner, name, moment, number):
    """A function that sends this process the signal at the n-th call of a method, in small blocks of decoding."""

    def arrange():
        regard.distill.BLOCK = 20
        method, seen = getattr(owner, name), [0]

        def counted(self, *values):
            seen[0] += 1
            if seen[0] == moment:
                if owner is Part:
                    self.stream.write(b"half a li")  # written, but not yet counted
                    self.stream.flush()
                os.kill(os.getpid(), number)
            return method(self, *values)

        setattr(owner, name, counted)

    return arrange


def test_a_student_by_a_recipe(shop, call, tmp_path):
    words = ("distill", shop / "rnn", shop / "tiny.toml", "-o", "run", WORDS, *SMALL)
    done = call(*words)
    assert (done.code, done.out, done.err) == (0, b"", "")
    run = load_run(tmp_path / "run" / "run.toml")
    assert (run.text.source, run.model["width"], run.data.train) == ("words", 8, str(shop / "pairs.tsv"))
    for name in ("source.json", "target.json"):
        assert (tmp_path / "run" / "model" / name).read_bytes() == (shop / "rnn" / "model" / name).read_bytes()
    found = json.loads((tmp_path / "run" / "result.json").read_text())["distilled"]
    assert found == {**json.loads((tmp_path / "run" / "distilled.json").read_text()), "mix": False}
    assert found["teacher"] == [identify(shop / "rnn")]
    assert found["search"]["beam"] == 5
    assert found["sha256"] == hash_file(tmp_path / "run" / "distilled.jsonl")
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["training"]["distilled"] == found
    before = weights(tmp_path / "run")
    done = call(*words[:-1])
    assert done.code == 0
    assert "this run has finished" in done.err
    assert weights(tmp_path / "run") == before
    done = call("train", tmp_path / "run" / "run.toml", "-o", "again", "--quiet")
    assert done.code == 0, done.err
    assert weights(tmp_path / "again") == before, "run.toml is the whole recipe, teacher and all"
    same = ("text={source='words', target='words'}", *SMALL)
    done = call("train", shop / "tiny.toml", "--prepared", tmp_path / "run" / "data", "-o", "other", *same)
    assert done.code == 0, done.err
    assert weights(tmp_path / "other") == before, "its corpus can be used without the teacher"
    assert json.loads((tmp_path / "other" / "result.json").read_text())["distilled"] == found


def test_the_outputs_are_those_of_translate(shop, call, tmp_path):
    done = call("distill", shop / "rnn", shop / "tiny.toml", "-o", "run", WORDS, *SMALL, "--beam", 3)
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in (tmp_path / "run" / "distilled.jsonl").read_text().splitlines()]
    sources = "".join(f"{row['source']}\n" for row in rows).encode()
    done = call("translate", shop / "rnn", "--beam", 3, "--stop", "count", "--jsonl", stdin=sources)
    outputs = [json.loads(line) for line in done.out.decode().splitlines()]
    taught = [(row, output) for row, output in zip(rows, outputs, strict=True) if "kept" not in row]
    assert len(taught) > 20
    assert [row["target"] for row, _ in taught] == [output["text"] for _, output in taught]
    assert {row["kept"] for row in rows if "kept" in row} <= {"cut off", "blank"}


def test_it_tells_what_the_teacher_said(shop, call):
    done = call("distill", shop / "rnn", shop / "tiny.toml", "-o", "run", WORDS, *SMALL[:-1])
    assert done.code == 0, done.err
    for text in (
        "the teacher decodes ",
        "outputs are equal to the reference",
        "the outputs against the references: BLEU ",
        "length ratio ",
        "tokenizers: the teacher's",
    ):
        assert text in done.err


def test_no_configuration(shop, call, tmp_path):
    words = ("distill", shop / "transformer", shop / "pairs.tsv", "-o", "run", *SHORT[:-1])
    done = call(*words)
    assert done.code == 0, done.err
    assert f"student: as {shop / 'transformer' / 'model'} with 2+1 layers" in done.err
    run = load_run(tmp_path / "run" / "run.toml")
    assert (run.model["encoder_layers"], run.model["decoder_layers"], run.model["norm"]) == (2, 1, "pre")
    assert (run.text.source, run.train.max_steps) == ("characters", 4)
    again = call(*words)
    assert again.code == 0, again.err
    assert "this run has finished" in again.err


def test_closest_mixed_and_by_an_ensemble(shop, call, tmp_path):
    words = ("distill", shop / "rnn", "-m", shop / "rnn", shop / "tiny.toml", "-o", "run", WORDS, *SMALL)
    done = call(*words, "--closest", "--mix", "--beam", 4)
    assert done.code == 0, done.err
    options = load_run(tmp_path / "run" / "run.toml").distill
    assert options
    assert (options.teacher, options.output, options.mix) == ((str(shop / "rnn"),) * 2, "closest", True)
    assert (options.search.beam, options.search.nbest) == (4, 4)
    rows = [json.loads(line) for line in (tmp_path / "run" / "distilled.jsonl").read_text().splitlines()]
    both = len(rows) + sum(row["target"] != row["reference"] for row in rows)
    assert both > len(rows)
    facts = json.loads((tmp_path / "run" / "data" / "prepared.json").read_text())["facts"]
    assert facts["train"]["pairs"] == both


def test_tokenizers_of_its_own(shop, call, tmp_path):
    done = call("distill", shop / "rnn", shop / "tiny.toml", "-o", "run", "text={source='bytes'}", *SMALL[:-1])
    assert done.code == 0, done.err
    assert "tokenizers: the student's own, since text.source is not the teacher's" in done.err
    assert load_run(tmp_path / "run" / "run.toml").text.target == "words", "what is not said is the teacher's"


# Going on


@pytest.fixture(scope="module")
def whole(shop, call, tmp_path_factory):
    """The command, and the run it makes when nobody stops it."""
    folder = tmp_path_factory.mktemp("whole")
    words = ["distill", shop / "rnn", shop / "tiny.toml", WORDS, *SMALL]
    assert call(*words, "-o", folder / "run").code == 0
    return words, folder / "run"


STOPS = [
    (signal.SIGKILL, -9, ""),
    (signal.SIGTERM, 75, "stopped before training began; go on with: regard distill "),
    (signal.SIGINT, 130, "the same call goes on"),
]


@pytest.mark.parametrize("moment", [1, 4])
@pytest.mark.parametrize(("number", "code", "message"), STOPS)
def test_stopped_while_decoding(call, whole, tmp_path, monkeypatch, number, code, message, moment):
    words, unbroken = whole
    words = [*words, "-o", tmp_path / "run"]
    assert run_forked(words, stop_in(Part, "commit", moment, number), tmp_path / "errors") == code
    told = (tmp_path / "errors").read_text()
    assert message in told
    assert "Traceback" not in told
    assert not (tmp_path / "run" / "distilled.jsonl").exists()
    part = tmp_path / "run" / "distilled.jsonl.part"
    done = part.read_bytes().count(b"\n") if part.exists() else 0
    assert (part.exists(), done) == (True, 20 * moment) or (moment == 1 and number != signal.SIGKILL)
    seen = []
    nbest = Predictor.nbest
    monkeypatch.setattr(
        Predictor, "nbest", lambda *values, **named: seen.append(len(values[1])) or nbest(*values, **named)
    )
    again = call(*words)
    assert again.code == 0, again.err
    assert seen[0] == len((unbroken / "distilled.jsonl").read_bytes().splitlines()) - 20 * (moment - 1)
    for name in ("distilled.jsonl", "distilled.json", "model/model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (unbroken / name).read_bytes()
    assert not list((tmp_path / "run").glob("*.part*"))


@pytest.mark.parametrize(("number", "code", "message"), [STOPS[0], (signal.SIGTERM, 75, "regard distill ")])
def test_stopped_while_training(call, whole, tmp_path, number, code, message, monkeypatch):
    words, unbroken = whole
    words = [*words, "-o", tmp_path / "run"]
    assert run_forked(words, stop_in(Updater, "update", 3, number), tmp_path / "errors") == code
    assert message in (tmp_path / "errors").read_text()
    assert (tmp_path / "run" / "distilled.jsonl").read_bytes() == (unbroken / "distilled.jsonl").read_bytes()
    monkeypatch.setattr("regard.distill.load", lambda *paths, **named: 1 / 0)  # nothing is decoded again
    done = call(*words)
    assert done.code == 0, done.err
    assert weights(tmp_path / "run") == weights(unbroken)


def test_changes_are_refused(call, shop, whole, tmp_path):
    words, _ = whole
    teacher = shutil.copytree(shop / "rnn", tmp_path / "teacher")
    words = ["distill", teacher, *words[2:], "-o", tmp_path / "run"]
    assert run_forked(words, stop_in(Part, "commit", 3, signal.SIGKILL), tmp_path / "errors") == -9
    done = call(*words, "--beam", 2)
    assert done.code == 2
    assert "distilled.jsonl.part: was made with another search; delete it" in done.err
    config = teacher / "model" / "config.json"
    manifest = teacher / "model" / "MANIFEST.json"
    before = manifest.read_bytes()
    other = json.loads(before)
    config.write_bytes(config.read_bytes() + b"\n")
    other["files"]["config.json"] = {"bytes": config.stat().st_size, "sha256": hash_file(config)}
    manifest.write_text(json.dumps(other))
    done = call(*words)
    assert done.code == 2
    assert "was made with another teacher" in done.err
    manifest.write_bytes(before)
    config.write_bytes(config.read_bytes()[:-1])
    assert run_forked(words, stop_in(Updater, "update", 3, signal.SIGTERM), tmp_path / "errors") == 75
    done = call(*words, "--beam", 2)
    assert done.code == 2
    assert "-beam = 5" in done.err
    done = call(*words, "--mix")
    assert done.code == 2
    assert "--allow-change distill.mix" in done.err
    manifest.write_text(json.dumps(other))
    config.write_bytes(config.read_bytes() + b"\n")
    done = call(*words)
    assert done.code == 2
    assert "was made with another teacher; choose another -o" in done.err


# Errors


def test_what_cannot_be_used_is_told(call, shop, tmp_path):
    (tmp_path / "text.en").write_text("a b\nc d\n")
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "none.toml").write_text("[train]\nmax_steps = 1\n")
    (tmp_path / "both.toml").write_text(f"[data]\nprepared = 'corpus'\ntrain = '{shop / 'pairs.tsv'}'\n")
    model = shop / "rnn"
    for words, code, message in (
        (["nowhere", shop / "tiny.toml"], 4, "nowhere: no such model directory"),
        ([tmp_path, shop / "tiny.toml"], 4, "not a model directory"),
        ([model, "-m", "nowhere", shop / "tiny.toml"], 4, "nowhere: no such model directory"),
        ([model, "-m", shop / "transformer", shop / "tiny.toml"], 4, "tokenizers differ"),
        ([model], 2, "expected a recipe (.toml), a file of pairs, or a source and a target file"),
        ([model, "none.toml"], 2, "data.train: no training file given"),
        ([model, "both.toml"], 2, "a run with a teacher makes its own corpus"),
        ([model, "text.en"], 3, "text.en: line 1: neither source<TAB>target nor a JSON object"),
        ([model, "missing.tsv"], 3, "missing.tsv: no such file"),
        ([model, "empty.tsv"], 3, "empty.tsv: no pairs in it"),
        ([model, shop / "tiny.toml", "--beam", "0"], 2, "expected a whole number above 0"),
        ([model, shop / "tiny.toml", "distill.search.method=greedy", "--closest"], 2, "search.nbest must be above 1"),
    ):
        done = call("distill", *words, "-o", "run", "--quiet")
        assert (done.code, done.out) == (code, b""), (words, done.err)
        assert message in done.err
        assert "Traceback" not in done.err
        assert not list(tmp_path.glob("run/distilled*"))
    done = call("prepare", shop / "tiny.toml", f"distill={{teacher='{model}'}}", "-o", "corpus")
    assert done.code == 2
    assert "[distill] section needs" in done.err
