"""`regard train` killed at many moments and started again: the same bits, the same log.

The command runs in forked processes, which have torch imported already, and is killed by a real `kill -9`: in the
middle of an update, or before the n-th file operation with half of a write done. `tests/training/test_resume.py` does
the same to the bare loop, at every step and every file operation.
"""

import json
import os
import signal
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

import pytest

from regard.__main__ import main
from regard.data.loader import Loader
from regard.prepare import open_prepared
from regard.training.update import Updater

MODELS = {
    "rnn": "model={kind='rnn', width=8, embedding=8, dropout=0.3}",
    "transformer": "model={kind='transformer', width=8, heads=2, encoder_layers=1, decoder_layers=1, "
    "feed_forward=16, dropout=0.3}",
}
EVERYTHING = ("train.max_steps=14", "train.validate_every=3", "train.accumulate=2", "train.ema=0.9", "train.average=2",
              "train.keep=auto", "train.log_every=2", "train.decode_limit=4", "data.batch_tokens=300",
              "search.growth=0.1", "--quiet")  # fmt: skip
OPERATIONS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir")


@pytest.fixture
def folder():
    """A directory in which flushing to the disk costs nothing."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def fork(words, prepare=lambda: None, log=os.devnull) -> int:
    """Start the command in a forked process; its number."""
    child = os.fork()
    if child:
        return child
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    try:
        prepare()
        os._exit(main([str(word) for word in words]))
    except BaseException as error:
        os.write(2, repr(error).encode())
    os._exit(99)


def wait(child: int) -> int:
    """The exit code of a process, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_in_update(number: int) -> None:
    """kill -9 at the n-th update of this process."""
    update, seen = Updater.update, [0]

    def counted(self, *values):
        seen[0] += 1
        if seen[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, *values)

    Updater.update = counted


def kill_in_writing(number: int) -> None:
    """kill -9 before the n-th file operation of this process; of a write, half is done."""
    seen, write = [0], os.write
    for name in OPERATIONS:
        original = getattr(os, name)

        def counted(*values, name=name, original=original, **named):
            seen[0] += 1
            if seen[0] == number:
                if name == "write":
                    write(values[0], bytes(values[1])[: len(values[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*values, **named)

        setattr(os, name, counted)


def log_of(run: Path) -> list[dict]:
    """metrics.jsonl without times."""
    text = (run / "metrics.jsonl").read_text()
    assert text.endswith("\n")
    times = ("seconds", "per_second")
    return [
        {key: value for key, value in json.loads(line).items() if not key.endswith(times)} for line in text.splitlines()
    ]


def check_same(one: Path, other: Path) -> None:
    assert (one / "model" / "model.safetensors").read_bytes() == (other / "model" / "model.safetensors").read_bytes()
    assert log_of(one) == log_of(other)
    last = [sorted((run / "checkpoints").iterdir())[-1] for run in (one, other)]
    for name in ("model", "optimiser", "ema"):
        assert (last[0] / f"{name}.safetensors").read_bytes() == (last[1] / f"{name}.safetensors").read_bytes()
    assert not list(other.rglob("*.tmp-*"))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", MODELS)
def test_killed_again_and_again(shop, call, folder, kind, workers):
    words = ["train", shop / "tiny.toml", MODELS[kind], *EVERYTHING]
    done = call(*words, "-o", folder / "whole")
    assert done.code == 0, done.err
    assert json.loads((folder / "whole" / "result.json").read_text())["candidate"] in ("best", "average", "ema")
    words += [f"data.workers={workers}", "train.checkpoint_minutes=1e-9", "-o", folder / "killed"]
    killed = {"update": 0, "writing": 0}
    while True:
        sitting = sum(killed.values())
        how = "writing" if sitting % 2 else "update"
        if how == "update":
            child = fork(words, lambda number=sitting: kill_in_update(1 + number % 3), folder / "errors")
        else:  # some at once, some in the second or third checkpoint of the sitting
            child = fork(words, lambda number=sitting: kill_in_writing(2 + 13 * number % 47), folder / "errors")
        code = wait(child)
        if code == 0:
            break
        assert code == -signal.SIGKILL, (folder / "errors").read_text()
        killed[how] += 1
        assert sitting < 60, "no progress"
    assert min(killed.values()) >= 5
    check_same(folder / "whole", folder / "killed")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_stopped_by_a_signal(shop, call, folder, number, code):
    words = ["train", shop / "tiny.toml", MODELS["transformer"], *EVERYTHING]
    assert call(*words, "-o", folder / "whole").code == 0
    words += ["-o", folder / "stopped"]

    def stop_myself():  # in the middle of an update, in the middle of the run
        update, seen = Updater.update, [0]

        def counted(self, *values):
            seen[0] += 1
            if seen[0] == 8:
                os.kill(os.getpid(), number)
            return update(self, *values)

        Updater.update = counted

    assert wait(fork(words, stop_myself, folder / "errors")) == code
    message = (folder / "errors").read_text()
    assert f"stopped and saved at step 8 in {folder / 'stopped'}; go on with: regard train " in message
    assert "Traceback" not in message
    done = call(*words)
    assert done.code == 0, done.err
    check_same(folder / "whole", folder / "stopped")


def test_a_second_interruption_ends_at_once(shop, folder):
    words = ["train", shop / "tiny.toml", MODELS["rnn"], *EVERYTHING, "-o", folder / "run"]

    def sleep_in_validation():
        from regard.pipeline import Evaluator

        def sleep(self, model, stop):
            (folder / "asleep").touch()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                time.sleep(0.01)

        Evaluator.__call__ = sleep

    child = fork(words, sleep_in_validation)
    while not (folder / "asleep").exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGINT)
    time.sleep(0.2)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the first one waits for the validation"
    start = time.monotonic()
    os.kill(child, signal.SIGINT)
    assert wait(child) == 130
    assert time.monotonic() - start < 1


def test_stopped_while_preparing(shop, folder):
    words = ["train", shop / "tiny.toml", *EVERYTHING, "-o", folder / "run"]

    def stop_in_preparation():
        import regard.prepare

        regard.prepare.audit_report = lambda audits: os.kill(os.getpid(), signal.SIGTERM)

    assert wait(fork(words, stop_in_preparation, folder / "errors")) == 75
    assert "stopped before training began; go on with: regard train" in (folder / "errors").read_text()
    assert wait(fork(words, log=folder / "errors")) == 0


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_example_is_seen_once_an_epoch(shop, workers):
    store = open_prepared(shop / "rnn" / "data").train
    loader = Loader(store, 400, 1024, seed=3, workers=workers)
    for epoch in range(3):
        seen = list(chain.from_iterable(batch.index.tolist() for batch in loader.batches(epoch)))
        assert sorted(seen) == list(range(len(store)))
        assert seen != sorted(seen)
