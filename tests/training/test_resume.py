"""A run that was broken off and resumed ends with the same bits as one that was not."""

import os
import signal

import numpy as np
import pytest
from toy_run import Loader, Objective, evaluate, fingerprint, in_child, kill, lines, trainer

from regard.training.loop import Cancelled

WARM_UP_CALLS = 3  # passes of the estimate before the first update
EPOCH_END = {"validate_every": "epoch", "max_steps": 11, "patience": 0}
EVERY_STEP = {"checkpoint_minutes": 1e-9}
PLATEAU = {"schedule": "plateau", "plateau_patience": 1, "patience": 0, "ema": 0.0, "keep": "average", "max_steps": 10}
VARIANTS = {"plain": {}, "epochs": EPOCH_END, "every step": EVERY_STEP, "plateau": PLATEAU}


class Broken(BaseException):
    """Stands for a sudden end."""


def unbroken(directory, **options):
    run = trainer(directory, **options)
    return fingerprint(run, run.run()), lines(directory)


def check_resumed(directory, expected, **options):
    run = trainer(directory, **options)
    found, log = fingerprint(run, run.run()), lines(directory)
    assert [name for name in expected[0] if expected[0][name] != found[name]] == []
    assert log == expected[1]
    return run


def test_the_toy_run_has_everything_on(tmp_path):
    """Otherwise the tests below would prove little."""
    run = trainer(tmp_path)
    result = run.run()
    kinds = [line["kind"] for line in lines(tmp_path)]
    assert (result.reason, result.steps, result.best_step) == ("patience", 15, 9)
    assert set(result.validations) == {"best", "average", "ema"}
    assert len(run.state.window) == 3
    assert kinds.count("validation") >= 4
    assert kinds.count("train") >= 6
    assert run.state.tokens > 0, "the run must end inside a window of the log"
    assert run.state.batch == 0, "and at the end of an epoch"


@pytest.mark.parametrize("variant", VARIANTS)
def test_broken_at_every_step(tmp_path, variant):
    options = VARIANTS[variant]
    expected = unbroken(tmp_path / "whole", **options)
    calls = WARM_UP_CALLS
    broken = 0
    while True:  # at every call of the loss: in both halves of an accumulated update too
        calls += 1

        def fail(loss):
            raise Broken

        directory = tmp_path / str(calls)
        try:
            trainer(directory, Objective({calls: fail}), **options).run()
            break
        except Broken:
            broken += 1
        check_resumed(directory, expected, **options)
    assert broken >= 16


def test_broken_again_and_again(tmp_path):
    """One run through many sittings, each of which ends in the middle of its second update."""
    expected = unbroken(tmp_path / "whole", **EVERY_STEP)

    def fail(loss):
        raise Broken

    sittings = 0
    for _ in range(40):
        sittings += 1
        try:
            trainer(tmp_path / "parts", Objective({WARM_UP_CALLS + 3: fail}), **EVERY_STEP).run()
            break
        except Broken:
            continue
    assert 6 < sittings < 40
    check_resumed(tmp_path / "parts", expected, **EVERY_STEP)


def test_broken_in_the_validation(tmp_path):
    expected = unbroken(tmp_path / "whole")
    total = sum(line["kind"] == "validation" for line in expected[1]) + 1  # and the average at the end
    for number in range(1, total + 1):
        looks = 0

        def look(model, stop, number=number):
            nonlocal looks
            looks += 1
            if looks == number:
                raise Broken
            return evaluate(model, stop)

        with pytest.raises(Broken):
            trainer(tmp_path / str(number), look=look).run()
        check_resumed(tmp_path / str(number), expected)


@pytest.mark.parametrize("call", [4, 9, 14, 20])
def test_killed_in_an_update(tmp_path, call):
    expected = unbroken(tmp_path / "whole")
    run = trainer(tmp_path / "killed", Objective({call: lambda loss: kill()}), checkpoint_minutes=1e-9)
    assert in_child(run.run) == -signal.SIGKILL
    resumed = trainer(tmp_path / "killed")
    result = resumed.run()
    assert fingerprint(resumed, result) == expected[0]
    assert lines(tmp_path / "killed") == expected[1]


FILE_OPERATIONS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir")


def count_down(patch, number, action):
    """Do `action(name, arguments)` at the n-th file operation; the list returned counts them."""
    seen = [0]
    for name in FILE_OPERATIONS:
        original = getattr(os, name)

        def counted(*arguments, name=name, original=original, **named):
            seen[0] += 1
            if seen[0] == number:
                action(name, arguments)
            return original(*arguments, **named)

        patch.setattr(os, name, counted)
    return seen


def kill_half_way(name, arguments):
    if name == "write":
        REAL_WRITE(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
    kill()


REAL_WRITE = os.write
SHORT = {"max_steps": 3, "validate_every": 1, "average": 2}


def test_killed_at_every_file_operation(tmp_path, monkeypatch):
    """kill -9 before the n-th open, write (half of it done), fsync, rename, … of a run, for all n."""
    expected = unbroken(tmp_path / "whole", **SHORT)
    with monkeypatch.context() as patch:
        seen = count_down(patch, 0, kill_half_way)
        unbroken(tmp_path / "counted", **SHORT)
    assert seen[0] > 60
    for number in range(1, seen[0] + 1):
        directory = tmp_path / f"killed-{number}"

        def work(number=number, directory=directory):
            count_down(monkeypatch, number, kill_half_way)
            trainer(directory, **SHORT).run()

        assert in_child(work) == -signal.SIGKILL, f"operation {number}"
        run = check_resumed(directory, expected, **SHORT)
        assert not list(directory.rglob("*.tmp-*"))
        assert len(list((directory / "checkpoints").iterdir())) == 2
        kept = {path.stem for path in (directory / "snapshots").iterdir()}
        assert kept >= set(run.state.snapshots())
        assert len(kept) <= 6


def test_nothing_random_is_left_from_before(tmp_path, monkeypatch):
    """What the process did to its generators before makes no difference."""
    expected = unbroken(tmp_path / "whole")
    np.random.seed(99)  # noqa: NPY002
    check_resumed(tmp_path / "other", expected)


def test_frequent_checkpoints_and_the_estimate_change_nothing(tmp_path, monkeypatch):
    expected = unbroken(tmp_path / "whole")
    monkeypatch.setattr("regard.training.loop.Trainer._estimate", lambda self, batches: batches)
    run = trainer(tmp_path / "often", checkpoint_minutes=1e-9)
    assert fingerprint(run, run.run()) == expected[0]
    assert lines(tmp_path / "often") == expected[1]


def test_a_finished_run_gives_its_result_again(tmp_path):
    expected = unbroken(tmp_path)
    objective = Objective()
    run = trainer(tmp_path, objective)
    assert fingerprint(run, run.run()) == expected[0]
    assert lines(tmp_path) == expected[1]
    assert objective.calls == 0


def test_more_steps_go_on_from_the_end(tmp_path):
    options = {"patience": 0, "validate_every": 3}
    expected = unbroken(tmp_path / "whole", max_steps=12, **options)
    trainer(tmp_path / "parts", max_steps=9, **options).run()
    check_resumed(tmp_path / "parts", expected, max_steps=12, **options)


def test_every_example_once_per_epoch_in_order(tmp_path):
    taken = []

    class Watched(Objective):
        def loss(self, batch):
            if self.calls >= WARM_UP_CALLS:
                taken.extend(batch.index.tolist())
            return super().loss(batch)

    loader = Loader()
    trainer(tmp_path, Watched(), loader=loader, max_steps=0, max_epochs=3, patience=0).run()
    wanted = [number for epoch in range(3) for batch in loader.batches(epoch) for number in batch.index.tolist()]
    assert taken == wanted
    assert loader.opened == loader.closed == 6


def test_other_threads_are_told(tmp_path, capsys):
    import torch

    trainer(tmp_path, max_steps=3).run()
    assert "bit-identical" not in capsys.readouterr().err
    torch.set_num_threads(2)
    trainer(tmp_path, max_steps=4).run()
    assert "threads: 1, now 2" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_signal_in_an_update_saves_and_stops(tmp_path, capfd, number, code):
    expected = unbroken(tmp_path / "whole")
    run = trainer(tmp_path / "stopped", Objective({WARM_UP_CALLS + 7: lambda loss: kill(number)}))
    assert in_child(run.run) == code
    assert "saved at step 4" in (error := capfd.readouterr().err)
    assert "say it again" in error
    assert (tmp_path / "stopped/checkpoints/step-00000004/COMMIT").exists()
    check_resumed(tmp_path / "stopped", expected)


def test_signal_in_the_validation_is_obeyed_and_the_validation_done_again(tmp_path):
    expected = unbroken(tmp_path / "whole")

    def look(model, stop):
        kill(signal.SIGTERM)
        if stop():
            raise Cancelled
        raise AssertionError("the signal was not seen")

    assert in_child(trainer(tmp_path / "stopped", look=look).run) == 75
    assert [path.name for path in (tmp_path / "stopped/checkpoints").iterdir()] == ["step-00000003"]
    run = check_resumed(tmp_path / "stopped", expected)
    assert run.state.validated_at == run.state.step


def test_signal_in_the_last_validation_of_candidates(tmp_path):
    expected = unbroken(tmp_path / "whole", **SHORT)
    looks = 0

    def look(model, stop):
        nonlocal looks
        looks += 1
        if looks == 4:  # the average
            kill(signal.SIGTERM)
            raise Cancelled
        return evaluate(model, stop)

    assert in_child(trainer(tmp_path / "stopped", look=look, **SHORT).run) == 75
    check_resumed(tmp_path / "stopped", expected, **SHORT)


def test_second_interrupt_ends_at_once(tmp_path):
    def twice(loss):
        kill(signal.SIGINT)
        kill(signal.SIGINT)

    assert in_child(trainer(tmp_path, Objective({WARM_UP_CALLS + 3: twice})).run) == 130
    assert not (tmp_path / "checkpoints").exists()


def test_handlers_are_put_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    trainer(tmp_path, max_steps=2).run()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
