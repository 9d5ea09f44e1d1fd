"""Model directories: whole or not there, and no damage goes unnoticed."""

import json
import pickle
import random
import shutil
import time

import pytest

from regard.directory import FORMAT, MANIFEST, hash_file, identify, read_directory, write_directory, write_json
from regard.errors import ConfigError, ModelError


@pytest.fixture
def model(shop, tmp_path):
    """A copy of a model directory that may be damaged."""
    return shutil.copytree(shop / "rnn" / "model", tmp_path / "model")


FILES = ("config.json", "model.safetensors", "source.json", "target.json", MANIFEST)


def sign(directory):
    """A manifest that fits whatever is there: what an attacker would write."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": hash_file(path)}
        for path in directory.iterdir()
        if path.name != MANIFEST
    }
    write_json(directory / MANIFEST, {"format": FORMAT, "files": files})


def edit(directory, **changes):
    """Change config.json: `model__width=3` is `model.width`."""
    config = json.loads((directory / "config.json").read_text())
    for key, value in changes.items():
        *path, last = key.split("__")
        section = config
        for name in path:
            section = section[name]
        section[last] = value
    (directory / "config.json").write_text(json.dumps(config))
    sign(directory)


def test_the_files_of_a_model(model):
    assert {path.name for path in model.iterdir()} == set(FILES)
    assert read_directory(model)[0] == model


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_is_noticed(model, name):
    path = model / name
    content = path.read_bytes()
    chance = random.Random(5)
    places = [0, len(content) - 1, *(chance.randrange(len(content)) for _ in range(60))]
    if name == MANIFEST:
        places = list(range(len(content)))
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ModelError) as caught:
            read_directory(model)
        assert str(model) in str(caught.value)
        if name != MANIFEST:
            assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_missing_truncated_or_longer_files_are_named(model, name, call):
    path = model / name
    content = path.read_bytes()
    for damaged in (content[:-2], content[: len(content) // 2], b"", content + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match=name):
            read_directory(model)
    done = call("translate", model, stdin=b"a b\n")
    assert (done.code, done.out) == (4, b"")
    assert name in done.err
    path.unlink()
    done = call("inspect", model)
    assert (done.code, done.out) == (4, b"")
    assert name in done.err
    assert done.err.count("\n") == 1


def test_a_file_that_is_not_in_the_manifest_is_noticed(model):
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"does not list tokenizer\.json"):
        read_directory(model)


HOSTILE = {
    "layers": {"model__encoder_layers": 10**9},
    "width": {"model__width": 2**40},
    "huge width": {"model__width": 10**30},
    "vocabulary": {"vocabulary": {"source": 10**12, "target": 10**12}},
    "other vocabulary": {"vocabulary": {"source": 13, "target": 12}},
    "no vocabulary": {"vocabulary": None},
    "kind": {"model__kind": "os.system"},
    "kind of no type": {"model__kind": ["rnn"]},
    "unknown option": {"model__wdith": 3},
    "text": {"text__source": "telepathy"},
    "no text": {"text": 3},
    "search": {"search__beam": 0},
    "longest": {"longest": "many"},
    "no model": {"model": None},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_a_config_that_cannot_be_is_refused_at_once(model, changes, call):
    edit(model, **changes)
    start = time.perf_counter()
    done = call("translate", model, stdin=b"a b\n")
    assert (done.code, done.out) == (4, b"")
    assert "config.json" in done.err or "model.safetensors" in done.err
    assert "Traceback" not in done.err
    assert time.perf_counter() - start < 5


def test_a_pickle_in_place_of_the_weights_runs_nothing(model, call, tmp_path):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "canary"), "w")

    (model / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    sign(model)
    done = call("translate", model, stdin=b"a b\n")
    assert done.code == 4
    assert "model.safetensors: cannot be read" in done.err
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", ".", "a/b", "a\0b"])
def test_a_manifest_cannot_point_outside(model, name):
    manifest = json.loads((model / MANIFEST).read_text())
    manifest["files"][name] = {"bytes": 1, "sha256": ""}
    write_json(model / MANIFEST, manifest)
    with pytest.raises(ModelError, match="MANIFEST"):
        read_directory(model)


def test_not_a_model(tmp_path, call):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name in ("file", "empty", "missing"):
        done = call("inspect", tmp_path / name)
        assert done.code == 4
        assert str(tmp_path / name) in done.err


def test_a_failed_write_leaves_the_old_model(model):
    before = read_directory(model)

    def fail(directory):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_directory(model, {}, fail)
    assert read_directory(model) == before
    assert [path.name for path in model.parent.iterdir()] == [model.name]


def test_nothing_but_an_older_model_is_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="was not made by this command"):
        write_directory(tmp_path / "thesis", {}, lambda directory: None)
    assert (tmp_path / "thesis" / "thesis.tex").exists()
    for _ in range(2):
        write_directory(tmp_path / "model", {"model": {}}, lambda directory: write_json(directory / "a.json", 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "thesis"]


def test_a_model_is_known_by_its_manifest(shop, model):
    assert identify(model) == identify(shop / "rnn"), "a copy is the same model"
    assert identify(model) != identify(shop / "transformer")
    edit(model, name="another")
    sign(model)
    assert identify(model) != identify(shop / "rnn")
    with pytest.raises(ModelError, match="no such model directory"):
        identify(model / "missing")
