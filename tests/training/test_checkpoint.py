"""Checkpoints: whole or not at all, damage is noticed, old ones go only after new ones came."""

import errno
import json
import os
import shutil

import pytest
import torch
from toy_run import Objective, fingerprint, lines, trainer

from regard.errors import Diverged, ModelError, RegardError
from regard.training.checkpoint import Checkpoints
from regard.training.storage import Lock

STATE = {"number": 0.1 + 0.2, "text": "ä\ud800"}


def tensors(value=1.0):
    return {"model": {"w": torch.full((3,), value)}, "optimiser": {"w/step": torch.tensor(value)}}


def names(directory):
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def store(tmp_path, warnings):
    return Checkpoints(tmp_path, warnings.append)


def test_what_is_saved_comes_back(tmp_path, store, warnings):
    assert store.latest() is None
    store.snapshots.add("one", {"w": torch.arange(3)})
    store.save(7, tensors(5.0), STATE)
    again = Checkpoints(tmp_path, warnings.append)
    found = again.latest()
    assert found.state == STATE
    assert found.tensors["model"]["w"].tolist() == [5.0] * 3
    assert found.tensors["optimiser"]["w/step"].tolist() == 5.0
    assert again.snapshots.load("one")["w"].tolist() == [0, 1, 2]
    files = sorted(path.name for path in found.path.iterdir())
    assert files == ["COMMIT", "model.safetensors", "optimiser.safetensors", "state.json"]
    assert warnings == []


def test_two_are_kept_with_their_snapshots(tmp_path, store):
    for step in range(1, 6):
        store.snapshots.add(f"at-{step}", {"w": torch.ones(1)})
        store.snapshots.keep_only([f"at-{step}"])
        store.save(step, tensors(), {})
    assert names(tmp_path) == ["step-00000004", "step-00000005"]
    assert sorted(path.stem for path in (tmp_path / "snapshots").iterdir()) == ["at-4", "at-5"]


def test_a_second_checkpoint_of_a_step_is_the_newer_one(tmp_path, store, warnings):
    for value in range(12):
        store.save(3, tensors(value), {"value": value})
    assert names(tmp_path) == ["step-00000003-11", "step-00000003-12"]
    assert Checkpoints(tmp_path, warnings.append).latest().state == {"value": 11}


def damage_flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def damage_empty(path):
    path.write_bytes(b"")


FILES = ["model.safetensors", "optimiser.safetensors", "state.json", "COMMIT", "../../snapshots/two.safetensors"]


@pytest.mark.parametrize("damage", [damage_flip, damage_cut, damage_empty, os.unlink])
@pytest.mark.parametrize("file", FILES)
def test_damage_falls_back_with_a_warning(tmp_path, store, warnings, file, damage):
    store.snapshots.add("one", {"w": torch.ones(1)})
    store.save(1, tensors(), {"step": 1})
    store.snapshots.add("two", {"w": torch.ones(1)})
    store.save(2, tensors(), {"step": 2})
    damage(tmp_path / "checkpoints/step-00000002" / file)
    again = Checkpoints(tmp_path, warnings.append)
    if file == "COMMIT" and damage is damage_cut:  # only the last newline is gone
        assert again.latest().state == {"step": 2}
        return
    assert again.latest().state == {"step": 1}
    assert len(warnings) == 1
    assert file == "COMMIT" or file.split("/")[-1] in warnings[0]
    again.save(2, tensors(), {"step": "new"})
    assert names(tmp_path) == ["step-00000001", "step-00000002-2"]
    assert Checkpoints(tmp_path, warnings.append).latest().state == {"step": "new"}


def test_every_flipped_bit_is_noticed(tmp_path, warnings):
    store = Checkpoints(tmp_path, warnings.append)
    store.save(1, tensors(), {"step": 1})
    store.save(2, tensors(), {"step": 2})
    path = tmp_path / "checkpoints/step-00000002"
    for file in path.iterdir():
        data = file.read_bytes()
        for bit in range(0, len(data) * 8, 7):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            file.write_bytes(changed)
            found = Checkpoints(tmp_path, warnings.append).latest()
            last_newline = file.name == "COMMIT" and bit // 8 == len(data) - 1
            assert found.state == {"step": 1} or (last_newline and found.state == {"step": 2}), f"{file.name} bit {bit}"
        file.write_bytes(data)
    assert Checkpoints(tmp_path, warnings.append).latest().state == {"step": 2}


def test_all_damaged_is_an_error_not_a_new_beginning(tmp_path, store):
    store.save(1, tensors(), {})
    os.unlink(tmp_path / "checkpoints/step-00000001/COMMIT")
    with pytest.raises(ModelError, match="no checkpoint is usable"):
        Checkpoints(tmp_path, print).latest()


def test_leftovers_are_swept(tmp_path, store):
    store.save(1, tensors(), {})
    shutil.copytree(tmp_path / "checkpoints/step-00000001", tmp_path / "checkpoints/step-00000009.tmp-123")
    (tmp_path / "snapshots/best.safetensors.tmp-5").write_bytes(b"half")
    found = Checkpoints(tmp_path, print).latest()
    assert found.path.name == "step-00000001"
    assert not list(tmp_path.rglob("*.tmp-*"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_finite_is_never_saved(tmp_path, store, value):
    with pytest.raises(Diverged, match="'w'"):
        store.save(1, tensors(value), {})
    with pytest.raises(Diverged, match="'w'"):
        store.snapshots.add("one", {"w": torch.tensor([1.0, value])})
    assert names(tmp_path) == []


def test_a_lock_keeps_a_second_process_out(tmp_path):
    def locked():
        with Lock(tmp_path):
            pass

    from toy_run import in_child

    with Lock(tmp_path):
        assert in_child(locked) == 1
    assert in_child(locked) == 0


CALLS = ("open", "write", "fsync", "replace", "mkdir")


def fail_at(patch, number, code):
    """The n-th file operation fails; the list returned counts them."""
    seen = [0]
    for name in CALLS:
        original = getattr(os, name)

        def counted(*arguments, original=original, **named):
            seen[0] += 1
            if seen[0] == number:
                raise OSError(code, os.strerror(code))
            return original(*arguments, **named)

        patch.setattr(os, name, counted)
    return seen


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_any_failing_file_operation_leaves_a_valid_checkpoint(tmp_path, monkeypatch, code):
    number, total = 0, None
    while total is None or number < total:
        number += 1
        directory = tmp_path / str(number)
        store = Checkpoints(directory, print)
        store.save(1, tensors(1), {"step": 1})
        store.snapshots.add("two", {"w": torch.ones(1)})
        with monkeypatch.context() as patch:
            seen = fail_at(patch, number, code)
            try:
                store.save(2, tensors(2), {"step": 2})
                total = seen[0]  # nothing was left to fail, or only the deleting of old ones failed
            except OSError:
                pass
        assert not list(directory.rglob("*.tmp-*")), f"operation {number}"
        shutil.copytree(directory, directory.with_suffix(".copy"))
        found = Checkpoints(directory.with_suffix(".copy"), pytest.fail).latest()
        assert found.tensors["model"]["w"][0] == found.state["step"], f"operation {number}"
        store.save(3, tensors(3), {"step": 3})
        again = Checkpoints(directory, pytest.fail)
        assert again.latest().state["step"] == 3
        assert again.snapshots.load("two")["w"].tolist() == [1]
    assert number > 20


def failing(code, names=("write",)):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    return dict.fromkeys(names, fail)


def test_disk_full_in_between_is_a_warning_and_changes_nothing(tmp_path, monkeypatch, capsys):
    whole = trainer(tmp_path / "whole")
    expected = fingerprint(whole, whole.run())

    def full(loss):
        monkeypatch.setattr(os, "write", failing(errno.ENOSPC)["write"])

    def free(loss):
        monkeypatch.undo()

    run = trainer(tmp_path / "full", Objective({6: full, 20: free}))  # two validations fall in between
    assert fingerprint(run, run.run()) == expected
    assert lines(tmp_path / "full") == lines(tmp_path / "whole")
    error = capsys.readouterr().err
    assert error.count("could not be saved: No space left on device") >= 2
    assert "bytes are needed" in error


def test_disk_full_at_the_end_is_an_error(tmp_path, monkeypatch):
    def full(loss):
        monkeypatch.setattr(os, "write", failing(errno.ENOSPC)["write"])

    with pytest.raises(RegardError, match=r"checkpoints: .* No space left .*\(\d+ bytes are needed\)") as caught:
        trainer(tmp_path, Objective({12: full}), max_steps=6).run()
    assert caught.value.exit_code == 1
    monkeypatch.undo()
    assert names(tmp_path) == ["step-00000003"]
    assert Checkpoints(tmp_path, pytest.fail).latest().state["step"] == 3


def test_no_space_is_noticed_before_writing(tmp_path, monkeypatch):
    store = Checkpoints(tmp_path, pytest.fail)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 50, 50))
    monkeypatch.setattr(os, "write", lambda *_: pytest.fail("wrote"))
    with pytest.raises(OSError, match="No space"):
        store.save(1, tensors(), {})


def test_state_json_is_readable(tmp_path):
    trainer(tmp_path, max_steps=3).run()
    path = tmp_path / "checkpoints/step-00000003"
    state = json.loads((path / "state.json").read_text())
    assert (state["step"], state["epoch"], state["batch"]) == (3, 1, 0)
    assert state["machine"]["threads"] == 1
    assert (path / "ema.safetensors").exists()
