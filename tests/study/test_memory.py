"""Memory is that of a process of its own, which tells its mistakes to the one who asked."""

import io
import json
import sys

import pytest

from regard.config import Search
from regard.errors import ModelError, RegardError
from regard.study import memory
from regard.study.memory import measure_memory
from regard.study.row import Row


def test_memory_of_a_real_process(shop):
    found = measure_memory(Row("rnn", shop / "rnn", None), ["a b c"], Search(), "cpu", 1)
    assert found["peak_bytes"] > found["before_loading_bytes"] > 10_000_000
    assert memory.peak() > 10_000_000


def test_a_mistake_is_told_to_the_one_who_asked(tmp_path, monkeypatch, capsys):
    job = {"directory": str(tmp_path / "missing"), "how": {}, "texts": ["a"], "search": {}}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(job)))
    monkeypatch.setattr(sys, "argv", ["memory", json.dumps(["cpu", 1])])
    monkeypatch.setattr(memory, "ignore_signals", lambda: None)
    memory.main()
    answer = capsys.readouterr().out.encode()
    assert json.loads(answer)["kind"] == "ModelError"

    class Process:
        returncode = 0

        def communicate(self, _):
            return self.said, b""

        def kill(self):
            pass

        def wait(self, timeout=0):
            return 1

    process = Process()
    monkeypatch.setattr(memory, "start_helper", lambda *_: process)
    process.said = answer
    with pytest.raises(ModelError, match="no such model directory"):
        measure_memory(Row("x", tmp_path, None), ["a"], Search(), "cpu", 1)
    process.said, process.pid = b"", 5
    with pytest.raises(RegardError, match="ended early: exit code 1"):
        measure_memory(Row("x", tmp_path, None), ["a"], Search(), "cpu", 1)
