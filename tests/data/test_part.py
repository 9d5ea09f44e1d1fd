"""A file made line by line: what is safe stays, and a job only goes on as it was."""

import pytest

from regard.data.part import Part
from regard.errors import ConfigError, DataError


def test_a_job_only_goes_on_as_it_was(tmp_path):
    output, description = tmp_path / "out.txt", {"model": 1, "search": 2}
    part = Part(output, description, resume=False)
    with part.open() as stream:
        stream.write(b"x\ny\n")
        part.commit(["a", "b"])
    assert Part(output, description, resume=True).skip(iter("abc")) == 2
    with pytest.raises(ConfigError, match="interrupted job"):
        Part(output, description, resume=False)
    with pytest.raises(ConfigError, match="made with another search"):
        Part(output, {"model": 1, "search": 3}, resume=True)
    with pytest.raises(DataError, match="other lines"):
        Part(output, description, resume=True).skip(iter("acb"))
    with pytest.raises(DataError, match="other lines"):
        Part(output, description, resume=True).skip(iter("a"))
    part.path.write_bytes(b"x\n")
    with pytest.raises(DataError, match="shorter"):
        Part(output, description, resume=True)
    part.state.write_bytes(b"{")
    with pytest.raises(DataError, match="damaged"):
        Part(output, description, resume=True)
    part.path.unlink()  # the job had finished, its state was left
    assert Part(output, description, resume=True).records == 0
