"""metrics.jsonl: cut where a checkpoint says, no broken lines, TensorBoard on the side."""

import sys

import pytest
from toy_run import trainer

from regard.errors import ConfigError
from regard.training.journal import Journal


def test_lines_after_the_known_length_are_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    journal = Journal(path, 0, pytest.fail)
    journal.write({"step": 1})
    known = journal.sync()
    journal.write({"step": 2})
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"half')
    journal = Journal(path, known, pytest.fail)
    journal.write({"step": "zwei"})
    journal.close()
    assert path.read_bytes() == b'{"step":1}\n{"step":"zwei"}\n'


def test_a_shorter_file_is_told(tmp_path):
    told = []
    Journal(tmp_path / "metrics.jsonl", 100, told.append).close()
    assert "100 bytes of the log are missing" in told[0]


def test_a_line_the_disk_refused_comes_later(tmp_path):
    told = []
    journal = Journal(tmp_path / "metrics.jsonl", 0, told.append)
    journal.write({"step": 1})
    real = journal._file

    class Full:
        def write(self, data):
            if len(data) > 3:
                return real.write(data[:3])
            raise OSError(28, "No space left on device")

        def truncate(self, length):
            return real.truncate(length)

    journal._file = Full()
    journal.write({"step": 2})
    with pytest.raises(OSError, match="No space"):
        journal.sync()
    journal._file = real
    journal.write({"step": 3})
    assert journal.sync() == (tmp_path / "metrics.jsonl").stat().st_size
    journal.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step":1}\n{"step":2}\n{"step":3}\n'
    assert len(told) == 1


def test_tensorboard_files(tmp_path):
    pytest.importorskip("tensorboard")
    trainer(tmp_path, max_steps=3, tensorboard=True).run()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert {"train/loss", "validation/loss", "validation/score"} <= set(events.Tags()["scalars"])


def test_missing_tensorboard_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install regard\[track\]"):
        trainer(tmp_path, max_steps=3, tensorboard=True).run()
