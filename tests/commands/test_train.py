"""`regard train`: every way to name the data, every way to be wrong about it, and going on."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib

import pytest

from regard.config import load_run

SHORT = ("train.max_steps=2", "train.validate_every=2", "train.decode_limit=2", "train.average=0", "--quiet")
TINY = (
    *SHORT, "data.batch_tokens=400",
    "model={kind='rnn', width=8, embedding=8}", "text={source='words', target='words'}",
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pairs(shop):
    return [line.split("\t") for line in (shop / "pairs.tsv").read_text().splitlines()][:60]


def test_all_forms_of_data_train_the_same_model(call, pairs, tmp_path):
    (tmp_path / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress((tmp_path / "a.tsv").read_bytes()))
    (tmp_path / "a.src").write_bytes("".join(f"{source}\r\n" for source, _ in pairs).encode())
    (tmp_path / "a.tgt").write_text("\n".join(target for _, target in pairs))
    lines = [json.dumps({"source": source, "target": target, "id": 1}) for source, target in pairs]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    lines = [json.dumps({"translation": {"x": source, "y": target}}) for source, target in pairs]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    found = set()
    for number, files in enumerate((["a.tsv"], ["a.tsv.gz"], ["a.src", "a.tgt"], ["a.jsonl"], ["b.jsonl"])):
        done = call("train", *files, "-o", f"run{number}", *TINY)
        assert done.code == 0, done.err
        result = json.loads((tmp_path / f"run{number}" / "result.json").read_text())
        found.add((result["data_sha256"], (tmp_path / f"run{number}" / "model" / "model.safetensors").read_bytes()))
    assert len(found) == 1


def test_the_result_tells_how_it_came_about(shop):
    result = json.loads((shop / "rnn" / "result.json").read_text())
    for key in ("command", "commit", "seed", "seconds", "data_sha256", "machine", "threads", "torch", "steps"):
        assert key in result
    assert result["command"].startswith("regard train ")
    assert len(result["data_sha256"]) == 64
    assert {path.name for path in (shop / "rnn").iterdir()} >= {"run.toml", "metrics.jsonl", "report.html", "model"}


def test_zero_configuration_tells_and_writes_its_choice(call, shop, tmp_path):
    done = call("train", shop / "pairs.tsv", "-o", "run", *SHORT[:-1], "model.width=8")
    assert done.code == 0, done.err
    assert "chosen from the corpus (written to run.toml):" in done.err
    run = load_run(tmp_path / "run" / "run.toml")
    assert (run.train.max_steps, run.model["width"]) == (2, 8)
    assert run.data.train == str(shop / "pairs.tsv")


WRONG_DATA = {
    "one column": (b"a\tb\nc\n", "line 2: expected source<TAB>target, found no TAB"),
    "three columns": (b"a\tb\nc\td\te\n", "line 2: expected source<TAB>target, found 3 columns"),
    "not UTF-8": (b"a\tb\nc\t\xff\n", "line 2, byte 3: not valid UTF-8"),
    "empty": (b"", "no pairs in it"),
    "blank targets": (b"a\t \nb\t \n", "no pair is left"),
    "one source": (b"a\tb\na\tb\n", "no pair is left for train"),
}


@pytest.mark.parametrize(("content", "message"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_wrong_data_is_named(call, content, message, tmp_path):
    (tmp_path / "bad.tsv").write_bytes(content)
    done = call("train", "bad.tsv", "-o", "run", *TINY)
    assert done.code == 3
    assert "bad.tsv" in done.err
    assert message in done.err
    assert done.err.count("\n") == 1
    (tmp_path / "bad.tsv").write_bytes(b"a\tb\nc\td\ne\tf\n" * 5)  # mended: the same command works
    assert call("train", "bad.tsv", "-o", "run", *TINY).code == 0


def test_wrong_files_are_named(call, tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n")
    (tmp_path / "keys.jsonl").write_text('{"source": "a", "target": "b"}\n{"source": "a", "tagret": "b"}\n')
    for files, messages in (
        (["a", "b"], ["a has 3 lines", "b has 2"]),
        (["missing.tsv"], ["missing.tsv: no such file"]),
        (["."], ["is a directory"]),
        (["a"], ["a: line 1: neither source<TAB>target nor a JSON object"]),
        (["keys.jsonl"], ["keys.jsonl: line 2", '"target"', '"tagret"']),
    ):
        done = call("train", *files, "-o", "run", *TINY)
        assert done.code == 3, done.err
        assert all(message in done.err for message in messages), done.err
        assert "Traceback" not in done.err


def test_a_few_pairs_are_enough(call, tmp_path):
    """Even of two pairs one is held out for validation."""
    (tmp_path / "few.tsv").write_text("a\tb\nc\td\n")
    done = call("train", "few.tsv", "-o", "run", *TINY)
    assert done.code == 0, done.err
    facts = json.loads((tmp_path / "run" / "data" / "prepared.json").read_text())["facts"]
    assert (facts["train"]["pairs"], facts["valid"]["pairs"]) == (1, 1)


WRONG_OPTIONS = {
    "model.kind=telepathy": "model.kind: unknown model 'telepathy'; known: rnn, bytenet, convs2s, transformer",
    "model.wdith=3": "model: wdith: unknown key; did you mean 'width'?",
    "model.width=wide": "model: width: should be a valid integer",
    "model.heads=3": "cannot be divided into 3 heads",
    "train.metric=blue": "unknown metric 'blue'",
    "train.max_stpes=3": "tiny.toml: train.max_stpes: unknown key; did you mean 'max_steps'?",
    "train.keep=ema": "train: keep = 'ema' needs ema",
    "train={max_steps=0, patience=0}": "training would never end",
    "model.tie=all": "needs one vocabulary for both sides",
}


@pytest.mark.parametrize("override", WRONG_OPTIONS)
def test_wrong_options_are_named(call, shop, override):
    done = call("train", shop / "tiny.toml", "-o", "run", override, "--quiet")
    assert done.code == 2, done.err
    assert WRONG_OPTIONS[override] in done.err
    assert "Traceback" not in done.err


def test_a_model_that_does_not_fit_into_memory(call, shop):
    done = call("train", shop / "tiny.toml", "-o", "run", "model.feed_forward=1_000_000_000_000", "--quiet")
    assert done.code == 1
    assert "not enough memory" in done.err
    assert done.err.count("\n") == 1


def test_a_run_that_diverges(call, shop, tmp_path):
    done = call("train", shop / "tiny.toml", "-o", "run", "train.rate=1e30", "train.clip=0", "--quiet")
    assert done.code == 5
    assert "training diverged" in done.err
    assert not (tmp_path / "run" / "model").exists()


def test_a_foreign_folder_is_left_alone(call, shop, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    done = call("train", shop / "tiny.toml", "-o", "thesis")
    assert done.code == 2
    assert "not a run directory" in done.err
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["thesis.tex"]


# Going on


@pytest.fixture
def run(shop, tmp_path):
    """A copy of a finished run."""
    return shutil.copytree(shop / "rnn", tmp_path / "run")


RNN = ("text.source=words", "text.target=words", "model={kind='rnn', width=16, embedding=16}")


def test_a_finished_run_trains_nothing_again(call, shop, run):
    before = (run / "model" / "MANIFEST.json").read_bytes()
    done = call("train", shop / "tiny.toml", "-o", run, *RNN)
    assert done.code == 0
    assert "this run has finished" in done.err
    assert (run / "model" / "MANIFEST.json").read_bytes() == before


def test_changed_options_are_refused_with_a_diff_or_allowed_by_name(call, shop, run):
    longer = ("train.max_steps=18", "train.rate=0.02")
    done = call("train", shop / "tiny.toml", "-o", run, *RNN, *longer)
    assert done.code == 2
    for line in ("-max_steps = 12", "+max_steps = 18", "-rate = 0.01", "+rate = 0.02"):
        assert line in done.err
    assert "--allow-change train.max_steps --allow-change train.rate" in done.err
    done = call("train", shop / "tiny.toml", "-o", run, *RNN, *longer, "--allow-change", "train.rate")
    assert done.code == 2
    assert "--allow-change train.max_steps\n" in done.err
    allowed = ("--allow-change", "train.rate", "--allow-change", "train.max_steps")
    done = call("train", shop / "tiny.toml", "-o", run, *RNN, *longer, *allowed)
    assert done.code == 0, done.err
    assert "going on from step 12" in done.err
    assert json.loads((run / "result.json").read_text())["steps"] == 18
    assert tomllib.loads((run / "run.toml").read_text())["train"]["max_steps"] == 18


def test_without_a_checkpoint_options_may_change(call, shop, tmp_path):
    done = call("train", shop / "tiny.toml", "-o", "run", "model.tie=all")
    assert done.code == 2
    done = call("train", shop / "tiny.toml", "-o", "run", *SHORT)
    assert done.code == 0, done.err


def test_another_corpus_or_validation_is_noticed(call, shop, tmp_path):
    shutil.copy(shop / "pairs.tsv", "one.tsv")
    shutil.copy(shop / "test.tsv", "two.tsv")
    assert call("train", "one.tsv", "-o", "run", *TINY).code == 0
    assert call("train", "one.tsv", "-o", "run", "--quiet").code == 0, "what was chosen then still holds"
    done = call("train", "two.tsv", "-o", "run", "--quiet")
    assert done.code == 2
    assert "this run was started on" in done.err
    done = call("train", "one.tsv", "-o", "run", "--valid", "two.tsv", "--quiet")
    assert done.code == 2
    assert "--allow-change data.valid" in done.err


def test_validation_files_and_overrides_behind_them(call, shop, tmp_path):
    done = call("train", shop / "tiny.toml", "-o", "run", "--valid", shop / "test.tsv", *SHORT)
    assert done.code == 0, done.err
    facts = json.loads((tmp_path / "run" / "data" / "prepared.json").read_text())["facts"]
    assert (facts["train"]["pairs"], facts["valid"]["pairs"]) == (200, 30)
    done = call("train", "-o", "second", "--valid", shop / "test.tsv", shop / "tiny.toml", *SHORT)
    assert done.code == 0, done.err
    assert load_run(tmp_path / "second" / "run.toml").data == load_run(tmp_path / "run" / "run.toml").data
    (tmp_path / "here.tsv").write_bytes((shop / "test.tsv").read_bytes())
    done = call("train", shop / "tiny.toml", "-o", "third", "data.valid=here.tsv", *SHORT)
    assert done.code == 0, done.err
    assert load_run(tmp_path / "third" / "run.toml").data.valid == str(tmp_path / "here.tsv")
    done = call("train", shop / "tiny.toml", "-o", "other", "--valid", "a", "b", *SHORT)
    assert done.code == 3
    assert "no such file" in done.err


def test_only_one_process_trains_in_a_directory(call, shop, tmp_path):
    words = ["train", str(shop / "tiny.toml"), "-o", "run", "train.max_steps=100000", "train.patience=0"]
    command = [sys.executable, "-m", "regard", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        while not (tmp_path / "run" / "run.toml").exists():
            assert process.poll() is None
            time.sleep(0.01)
        done = call(*words)
        assert done.code == 1
        assert "another process is training in this directory" in done.err
    finally:
        process.send_signal(signal.SIGTERM)
        error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 75, error
    assert f"regard {' '.join(words)}" in error


# Going on from a model, and from a prepared corpus


def test_from_a_model(call, shop, tmp_path):
    shutil.copy(shop / "test.tsv", "new.tsv")
    done = call("train", "new.tsv", "-o", "tuned", "--from", shop / "rnn", *SHORT, "train.rate=1e-9")
    assert done.code == 0, done.err
    for name in ("source.json", "target.json"):
        same = (tmp_path / "tuned" / "model" / name).read_bytes(), (shop / "rnn" / "model" / name).read_bytes()
        assert same[0] == same[1]
    lines = b"a b c\nd\n"
    assert call("translate", "tuned", stdin=lines).out == call("translate", shop / "rnn", stdin=lines).out
    again = call("train", "new.tsv", "-o", "tuned", "--from", shop / "rnn", *SHORT, "train.rate=1e-9")
    assert again.code == 0


def test_from_a_model_with_a_recipe(call, shop, tmp_path):
    (tmp_path / "tune.toml").write_text(f"[data]\ntrain = '{shop / 'test.tsv'}'\nbatch_tokens = 400\n")
    done = call("train", "tune.toml", "-o", "tuned", "--from", shop / "rnn", *SHORT, "model.dropout=0.5")
    assert done.code == 0, done.err
    run = load_run(tmp_path / "tuned" / "run.toml")
    assert (run.text.source, run.model["width"], run.model["dropout"]) == ("words", 16, 0.5)
    assert run.start == str(shop / "rnn")
    done = call("train", "tune.toml", "-o", "other", "--from", shop / "rnn", *SHORT, "text.lowercase=true")
    assert done.code == 2
    assert "text.lowercase = true, but" in done.err
    done = call("train", "tune.toml", "-o", "other", "--from", shop / "rnn", *SHORT, "model.width=8")
    assert done.code == 4
    assert "has shape" in done.err
    assert call("train", "tune.toml", "-o", "other", "--from", "nothing", *SHORT).code == 4


def test_a_prepared_corpus(call, shop, tmp_path):
    direct = call("train", shop / "tiny.toml", "-o", "direct", *SHORT)
    assert direct.code == 0, direct.err
    assert call("prepare", shop / "tiny.toml", "-o", "corpus").code == 0
    for number, files in enumerate(([], [shop / "tiny.toml"])):
        done = call("train", *files, "--prepared", "corpus", "-o", f"run{number}", *SHORT)
        assert done.code == 0, done.err
        weights = [path / "model" / "model.safetensors" for path in (tmp_path / "direct", tmp_path / f"run{number}")]
        assert weights[0].read_bytes() == weights[1].read_bytes()
    done = call("train", shop / "tiny.toml", "--prepared", "corpus", "-o", "other", *SHORT, "text.source=bytes")
    assert done.code == 2
    assert 'text.source = "bytes", but' in done.err
    done = call("train", "--prepared", "corpus", "--from", shop / "rnn", "-o", "other", *SHORT)
    assert done.code == 2
    (tmp_path / "empty").mkdir()
    done = call("train", shop / "tiny.toml", "--prepared", "empty", "-o", "other", *SHORT)
    assert done.code == 3
    assert "not a prepared corpus" in done.err
