"""The command line as a user meets it: help, exit codes, one clear message and no traceback."""

import os
import signal
import subprocess
import sys
import time

import pytest

from regard.__main__ import COMMANDS

PYTHON = [sys.executable, "-m", "regard"]


def process(*words, stdin=b"", **environment):
    command = [*PYTHON, *map(str, words)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, input=stdin, capture_output=True, timeout=120, env=variables)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(call, command):
    done = call(command, "--help")
    assert (done.code, done.err) == (0, "")
    text = done.out.decode()
    assert f"regard {command}" in text
    assert "example" in text or command == "quickstart", "help shows how it is used"


def test_help_is_quick():
    best = 9.0
    for _ in range(5):  # others use the machine too
        start = time.perf_counter()
        done = process("--help", LC_ALL="C", PYTHONIOENCODING="ascii")
        best = min(best, time.perf_counter() - start)
    assert done.returncode == 0
    assert all(name in done.stdout.decode("utf-8") for name in COMMANDS)
    assert best < 0.6


def test_importing_regard_imports_no_torch():
    code = (
        "import sys, regard; regard.load, regard.record, regard.train, regard.__version__;"
        "import regard.config, regard.predict, regard.prepare, regard.recipe, regard.choose, regard.metrics;"
        "print('torch' in sys.modules, callable(regard.train))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False True\n", done.stderr


def test_translating_does_not_wait_for_the_compiler_of_torch(shop):
    code = (
        "import sys, regard; model = regard.load(sys.argv[1], engine='torch'); model.nbest(['a b']);"
        "print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, shop / "transformer"], capture_output=True, text=True)
    assert done.stdout == "True False\n", done.stderr


def test_any_command_can_be_terminated(shop):
    words = [*PYTHON, "translate", shop / "transformer", "--interactive", "--threads", "1"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        running.stdin.write(b"a b\n")
        running.stdin.flush()
        assert running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 75
        assert running.stderr.read().decode().startswith("regard: stopped; start again with: regard translate ")


def test_a_misspelt_option_is_told_with_the_usage_of_its_command(call):
    done = call("translate", "model", "--methode", "beam")
    assert done.code == 2
    assert done.err.startswith("usage: regard translate ")
    assert done.err.endswith("regard translate: error: unknown option --methode; did you mean --method?\n")
    assert "unexpected words: more" in call("doctor", "more").err


def test_version(call):
    import regard

    assert call("--version").out.decode() == f"regard {regard.__version__}\n"


USAGE = {
    "no command": [],
    "unknown command": ["teach"],
    "no output": ["train", "pairs.tsv"],
    "unknown flag": ["translate", "model", "--bean", "5"],
    "not a number": ["translate", "model", "--beam", "many"],
    "zero": ["translate", "model", "--threads", "0"],
    "no model": ["translate"],
    "no text": ["attend", "model"],
    "resume without output": ["translate", "model", "--resume"],
    "nothing to train on": ["train", "-o", "model"],
    "three files": ["train", "a", "b", "c", "-o", "model"],
    "one word to evaluate": ["evaluate", "model"],
    "hypotheses without references": ["evaluate", "--hypotheses", "x"],
    "hypotheses and a model": ["evaluate", "model", "pairs", "--hypotheses", "x"],
    "unknown metric": ["evaluate", "model", "pairs", "--metrics", "blue"],
    "unknown ending": ["attend", "model", "text", "-o", "x.pdf"],
    "no recipe": ["train", "missing.toml", "-o", "model"],
}


@pytest.mark.parametrize("words", USAGE.values(), ids=USAGE)
def test_wrong_usage(call, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert done.code == 2
    assert done.out == b""
    assert "Traceback" not in done.err
    assert done.err.strip()
    assert not list(tmp_path.iterdir()), "nothing is left behind"


ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_utf8_whatever_the_locale(shop):
    done = process("translate", shop / "transformer", "--jsonl", stdin="ä ö\n\nß…  \n".encode(), **ASCII)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 3
    assert '"source": "ä ö"' in done.stdout.decode("utf-8")
    seen = process("attend", shop / "transformer", "ä…", **ASCII)
    assert seen.returncode == 0, seen.stderr
    assert "ä" in seen.stdout.decode("utf-8")


def test_a_reader_that_has_gone_is_no_error(shop):
    translate = f"{' '.join(PYTHON)} translate {shop / 'transformer'} --block 1 --beam 1"
    script = f"(yes a | head -50; sleep 1; yes b | head -3000) | {translate} | head -1; echo ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=120)
    assert done.stderr == b""
    assert done.stdout.splitlines()[-1] == b"0"


def test_a_full_disk_is_told(shop):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PYTHON, "translate", str(shop / "transformer")], input=b"a\n", stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == ["regard: No space left on device"]


def test_closed_streams():
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m regard doctor >&- <&-"], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


def test_pairs_from_a_pipe(shop):
    command = f"{sys.executable} -m regard score {shop / 'rnn'} <(cat {shop / 'test.tsv'})"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=120)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 30), done.stderr
