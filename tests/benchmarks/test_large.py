"""The large corpus: made from a seed, and really prepared and trained on."""

import json
import sys

import pytest

from benchmarks import large


def test_a_corpus_is_made_from_its_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(large, "BLOCK", 50)
    monkeypatch.setattr(large, "WORDS", 300)
    paths = [tmp_path / name for name in ("a.tsv", "b.tsv", "c.tsv")]
    numbers = [large.write_corpus(path, 20_000, seed) for path, seed in zip(paths, (1, 1, 2), strict=True)]
    assert paths[0].read_bytes() == paths[1].read_bytes() != paths[2].read_bytes()
    lines = paths[0].read_text().splitlines()
    assert len(lines) == numbers[0]
    assert paths[0].stat().st_size >= 20_000
    assert all(line.count("\t") == 1 and len(line.split("\t")[0].split()) <= large.LONGEST for line in lines)


def test_the_memory_of_a_command_is_that_of_its_own_process():
    small, big = (
        large.measure((sys.executable, "-c", f"import time; x = b'x' * {size}; time.sleep(0.3)"))
        for size in (1, 200_000_000)
    )
    assert big["peak_bytes"] - small["peak_bytes"] > 150_000_000
    with pytest.raises(SystemExit, match="exit code 3"):
        large.measure((sys.executable, "-c", "raise SystemExit(3)"))


def test_it_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(large, "BLOCK", 300)
    monkeypatch.setattr(large, "WORDS", 300)
    words = ["--gigabytes", "0.00001", "--steps", "1", "--work", str(tmp_path / "work")]
    large.main([*words, "--result", str(tmp_path / "large.json")])
    record = json.loads((tmp_path / "large.json").read_text())
    assert record["pairs"] == 300
    assert min(record[name]["peak_bytes"] for name in ("prepare", "train")) > 10_000_000
    assert str(tmp_path) not in record["command"]
    assert record["commit"]
    large.main([*words, "--train-only", "--result", str(tmp_path / "large.json")])
    again = json.loads((tmp_path / "large.json").read_text())
    assert again["prepare"] == record["prepare"]
    assert again["train"]["seconds"] != record["train"]["seconds"]
    with pytest.raises(SystemExit):
        large.main(["--train-only", "--result", str(tmp_path / "none.json")])
