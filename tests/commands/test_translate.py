"""`regard translate`: exactly one record out for each record in, whatever the input; interrupted jobs go on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.part import Part

ODD = ["\r", "\u2028", "\u2029", "\x85", "\0", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\ufeff", "\u3000",
       "\t", "  ", " ", "a", "ä", "b c", "|||", '"', "\\", "日本", "🙂", "a" * 700, "<unk>", "</s>"]  # fmt: skip
LINES = st.lists(st.lists(st.sampled_from(ODD), max_size=4).map("".join), max_size=12)
QUICK = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def records(content: bytes) -> list[str]:
    """The lines of an input, as the discipline of the project reads them."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    texts = [line.removesuffix(b"\r").decode() for line in lines]
    return [text.removeprefix("\ufeff") if number == 0 else text for number, text in enumerate(texts)]


@QUICK
@given(lines=LINES, last=st.booleans(), model=st.sampled_from(["transformer", "rnn"]))
def test_one_record_out_for_each_record_in(shop, call, lines, last, model):
    content = ("\n".join(lines) + ("\n" if last and lines else "")).encode()
    done = call("translate", shop / model, "--beam", 1, "--block", 4, "maximum_length=4", stdin=content)
    assert done.code == 0, done.err
    outputs = done.out.split(b"\n")
    assert outputs.pop() == b"", "every line ends in \\n"
    wanted = records(content)
    assert len(outputs) == len(wanted)
    assert b"\r" not in done.out
    for line, output in zip(wanted, outputs, strict=True):
        assert line.strip() or output == b"", "a blank line gives a blank line"


@QUICK
@given(lines=LINES, last=st.booleans())
def test_one_json_object_out_for_each_record_in(shop, call, lines, last):
    content = ("\n".join(lines) + ("\n" if last and lines else "")).encode()
    done = call("translate", shop / "rnn", "--jsonl", "--beam", 2, "--nbest", 2, "maximum_length=4", stdin=content)
    assert done.code == 0, done.err
    outputs = [json.loads(line) for line in done.out.split(b"\n")[:-1]]
    assert [output["source"] for output in outputs] == records(content)
    for output in outputs:
        assert output["source"].strip() or output["text"] == ""
        assert output["nbest"][0]["text"] == output["text"]


def test_the_same_from_a_file_and_in_any_blocks(shop, call, tmp_path):
    lines = [line.split("\t")[0] for line in (shop / "test.tsv").read_text().splitlines()]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n\n")
    command = ("translate", shop / "transformer", "-i", tmp_path / "in.txt", "--beam", 3, "maximum_length=6")
    whole = call(*command)
    assert whole.out.count(b"\n") == len(lines) + 1
    assert whole.err == f"{len(lines) + 1} lines: 1 blank\n" or "cut off" in whole.err
    assert call(*command, "--block", 3).out == whole.out
    assert call(*command, "-o", tmp_path / "out.txt").out == b""
    assert (tmp_path / "out.txt").read_bytes() == whole.out
    assert call(*command, "--batch-tokens", 20).out == whole.out
    assert (
        call("translate", "-m", shop / "transformer", "-i", tmp_path / "in.txt", "beam=3", "maximum_length=6").out
        == whole.out
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_a_too_long_line_is_translated_in_parts_and_counted(shop, call):
    long = ("a b c d e . " * 80).strip()
    done = call("translate", shop / "transformer", "--beam", 1, "maximum_length=3", stdin=f"a\n{long}\n\nb\n".encode())
    assert done.out.count(b"\n") == 4
    assert re.search("4 lines: .*1 blank", done.err)
    assert "1 too long" in done.err


def test_nbest_and_alignment(shop, call):
    done = call("translate", shop / "rnn", "--nbest", 3, stdin=b"a b\n\nc\n")
    rows = [line.split(" ||| ") for line in done.out.decode().splitlines()]
    assert [row[0] for row in rows] == ["0"] * 3 + ["1"] + ["2"] * 3
    scores = [float(row[-1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    done = call("translate", shop / "rnn", "--align", stdin=b"a b\n\n")
    first, second = done.out.decode().splitlines()
    assert re.fullmatch(r".* \|\|\| \d+-\d+( \d+-\d+)*", first)
    assert second == ""
    assert call("translate", shop / "rnn", "--beam", 2, "--nbest", 3, stdin=b"a\n").code == 2


def test_sampling_follows_the_seed_and_not_the_blocks(shop, call):
    lines = b"a b c\nd e\nf\n" * 3
    command = ("translate", shop / "transformer", "--method", "sample")
    one = call(*command, "--seed", 1, stdin=lines).out
    assert call(*command, "--seed", 1, "--block", 2, stdin=lines).out == one
    assert call(*command, "--seed", 2, stdin=lines).out != one


def test_forced_prefixes(shop, call, tmp_path):
    (tmp_path / "prefix").write_text("b a\n\nc\n")
    done = call("translate", shop / "rnn", "--prefix", tmp_path / "prefix", stdin=b"a b\n\nc d\n")
    lines = done.out.decode().splitlines()
    assert (lines[0][:3], lines[1], lines[2][:1]) == ("b a", "", "c")
    for stdin in (b"a\n", b"a\n" * 4):
        done = call("translate", shop / "rnn", "--prefix", tmp_path / "prefix", stdin=stdin)
        assert done.code == 3
        assert "--prefix" in done.err


def test_ensembles(shop, call, tmp_path):
    alone = call("translate", shop / "rnn", "--jsonl", stdin=b"a b c\n")
    twice = call("translate", "-m", shop / "rnn", "-m", shop / "rnn", "--jsonl", stdin=b"a b c\n")
    one, two = json.loads(alone.out), json.loads(twice.out)
    assert one["text"] == two["text"]
    assert one["score"] == pytest.approx(two["score"], abs=1e-5)
    done = call("translate", shop / "rnn", "-m", shop / "transformer", stdin=b"a\n")
    assert done.code == 4
    assert "tokenizers differ" in done.err


def test_wrong_input(shop, call, tmp_path):
    model = shop / "transformer"
    (tmp_path / "bad.txt").write_bytes(b"a\nb \xff c\n")
    for words, stdin in (([], b"a\nb \xff c\n"), (["-i", tmp_path / "bad.txt"], b"")):
        done = call("translate", model, *words, stdin=stdin)
        assert done.code == 3
        assert "line 2, byte 3: not valid UTF-8" in done.err
    assert str(tmp_path / "bad.txt") in done.err
    done = call("translate", model, "--decode", "replace", stdin=b"a\nb \xff c\n")
    assert (done.code, done.out.count(b"\n")) == (0, 2)
    for name, message in (("missing", "no such file"), (".", "is a directory")):
        done = call("translate", model, "-i", tmp_path / name, "-o", tmp_path / "out")
        assert done.code == 3
        assert message in done.err
    assert not list(tmp_path.glob("out*"))
    (tmp_path / "cut.gz").write_bytes(b"\x1f\x8b\x08\x00")
    done = call("translate", model, "-i", tmp_path / "cut.gz")
    assert done.code == 3
    assert "cut.gz" in done.err


def test_wrong_options(shop, call):
    for words, message in (
        (["baem=3"], "search: baem: unknown key; did you mean 'beam'?"),
        (["beam=many"], "search: beam: should be a valid integer"),
        (["--top-p", "2"], "search: top_p: should be less than or equal to 1"),
        (["stray"], "'stray': expected key=value"),
        (["--device", "quantum"], "--device quantum"),
        (["--method", "greedy", "--nbest", "2"], "greedy search finds one output"),
    ):
        done = call("translate", shop / "rnn", *words, stdin=b"a\n")
        assert (done.code, done.out) == (2, b"")
        assert message in done.err


def test_outputs_that_cannot_be_written(shop, call, tmp_path):
    done = call("translate", shop / "rnn", "-o", tmp_path, stdin=b"a\n")
    assert done.code == 2
    assert "is a directory" in done.err
    done = call("translate", shop / "rnn", "-o", tmp_path / "no" / "out", stdin=b"a\n")
    assert done.code == 1
    assert str(tmp_path / "no") in done.err
    assert call("translate", shop / "rnn", "-o", "/dev/null", stdin=b"a\n").code == 0


# Interrupted jobs


@pytest.fixture(scope="module")
def job(shop, call, tmp_path_factory):
    """A long input, and what an uninterrupted translation makes of it."""
    folder = tmp_path_factory.mktemp("job")
    lines = [line.split("\t")[0] for line in (shop / "test.tsv").read_text().splitlines()]
    (folder / "in.txt").write_text("\n".join((lines * 4)[:115]) + "\nlast")
    words = [
        "translate",
        shop / "transformer",
        "-i",
        folder / "in.txt",
        "--block",
        "5",
        "--beam",
        "2",
        "maximum_length=5",
    ]
    words = [str(word) for word in words]
    assert call(*words, "-o", folder / "whole.txt").code == 0
    return folder, words, (folder / "whole.txt").read_bytes()


class Broken(BaseException):
    """Stands for a sudden end."""


STOPS = [(signal.SIGKILL, -9, ""), (signal.SIGTERM, 75, "go on with --resume"), (signal.SIGINT, 130, "--resume")]


def test_what_comes_before_an_error_is_written(shop, call):
    done = call("translate", shop / "transformer", "--block", "2", stdin=b"a\nb\na\nb \xff c\n")
    assert (done.code, done.out.count(b"\n")) == (3, 2)
    assert "line 4, byte 3: not valid UTF-8" in done.err


def test_a_block_is_answered_before_the_next_one_is_there(shop):
    command = [sys.executable, "-m", "regard", "translate", str(shop / "transformer"), "--block", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdin.write(b"a b\nb\n")
        process.stdin.flush()
        assert [process.stdout.readline()[-1:] for _ in range(2)] == [b"\n", b"\n"]
        process.send_signal(signal.SIGINT)  # while it waits for the third line
        assert process.wait(60) != 0


@pytest.mark.parametrize(("number", "code", "message"), STOPS)
def test_a_stopped_job_goes_on(call, job, number, code, message, tmp_path):
    """The real process, stopped in the middle by a real signal."""
    _, words, whole = job
    output = tmp_path / "out.txt"
    command = [sys.executable, "-m", "regard", *words, "-o", str(output)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    part = output.with_name("out.txt.part")
    while process.poll() is None and not (part.exists() and part.stat().st_size > len(whole) // 8):
        time.sleep(0.002)
    process.send_signal(number)
    error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == code, error
    assert message in error
    assert "Traceback" not in error
    assert 0 < part.stat().st_size < len(whole)
    assert not output.exists()
    refused = call(*words, "-o", output)
    assert refused.code == 2
    assert "--resume goes on with it" in refused.err
    assert call(*words, "-o", output, "--resume").code == 0
    assert output.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


@pytest.mark.parametrize(("number", "code", "message"), STOPS)
def test_a_stopped_job_leaves_no_worker_behind(call, job, number, code, message, tmp_path):
    """Workers do not see the signal; they end all the same."""
    _, words, whole = job
    output, part = tmp_path / "out.txt", tmp_path / "out.txt.part"
    command = [sys.executable, "-m", "regard", *words, "-o", str(output), "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while process.poll() is None and not (part.exists() and part.stat().st_size > 0):
        time.sleep(0.002)
    workers = [
        Path("/proc", pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]
    assert len(workers) == 2
    process.send_signal(number)
    error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == code, error
    assert message in error
    assert "Traceback" not in error
    patience = time.monotonic() + 30
    while any(worker.exists() for worker in workers) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(worker.exists() for worker in workers)
    assert call(*words, "-o", output, "--resume").code == 0
    assert output.read_bytes() == whole


@pytest.mark.parametrize("workers", [1, 2])
def test_a_finished_block_waits_for_no_further_line(shop, workers):
    words = ["translate", str(shop / "rnn"), "--block", "2", "--workers", str(workers), "maximum_length=3"]
    with subprocess.Popen(
        [sys.executable, "-m", "regard", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        first = [process.stdout.readline() for _ in range(2)]  # the input is still open
        rest, _ = process.communicate(b"c\n", timeout=60)
    assert process.returncode == 0
    assert all(line.endswith(b"\n") for line in first)
    assert rest.count(b"\n") == 1


@pytest.mark.parametrize("blocks", [1, 11, 24])
def test_killed_after_any_block(call, job, blocks, tmp_path, monkeypatch):
    _, words, whole = job
    output = tmp_path / "out.txt"

    def fail(part, block, commit=Part.commit, seen=[0]):  # noqa: B006
        seen[0] += 1
        if seen[0] == blocks:
            part.stream.write(b"half a li")  # written, but not yet counted
            part.stream.flush()
            raise Broken
        commit(part, block)

    with monkeypatch.context() as patch:
        patch.setattr(Part, "commit", fail)
        with pytest.raises(Broken):
            call(*words, "-o", output)
    assert call(*words, "-o", output, "--resume").code == 0
    assert output.read_bytes() == whole


def test_a_pipe_is_read_once(shop, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    words = [sys.executable, "-m", "regard", "translate", shop / "rnn", "-i", tmp_path / "pipe", "--threads", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        (tmp_path / "pipe").write_bytes(b"a b\nc d\n")
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out.count(b"\n")) == (0, 2), err


def test_no_input_is_written_over(shop, call, tmp_path):
    (tmp_path / "x").write_text("a b\n")
    for output in (tmp_path / "x", tmp_path / "y.gz"):
        assert call("translate", shop / "rnn", "-i", tmp_path / "x", "-o", output).code == 2
    assert (tmp_path / "x").read_text() == "a b\n"
    assert call("average", shop / "rnn", "-o", shop / "rnn" / "model").code == 2
    done = call("align", shop / "test.tsv", "--fertilities", shop / "test.tsv")
    assert (done.code, "is an input" in done.err) == (2, True)


def test_alignments_need_attention(shop, call, tmp_path):
    words = ["model={kind='rnn', width=16, embedding=16, attention='none'}", "train.max_steps=1", "train.average=0"]
    assert call("train", shop / "tiny.toml", "-o", tmp_path / "plain", *words, "--quiet").code == 0
    done = call("translate", tmp_path / "plain", "--align", stdin=b"a b\n")
    assert (done.code, "has no attention to align by" in done.err) == (4, True)
    records = call("translate", shop / "rnn", "--align", "--nbest", 2, stdin=b"a b\n\n").out.decode().splitlines()
    assert {record.count("|||") for record in records} == {3}, "a blank line has as many fields"


def test_lengths_that_contradict_each_other(shop, call):
    done = call("translate", shop / "rnn", "--minimum-length", 9, "--maximum-length", 5, stdin=b"a\n")
    assert (done.code, "minimum_length (9) is above maximum_length (5)" in done.err) == (2, True)
