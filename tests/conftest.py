"""One thread, checked shapes, the stored data, and tiny models whose outputs are sharp."""

import io
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from jaxtyping import config, install_import_hook

torch.set_num_threads(1)  # before anything of regard runs; the tests share the machine with others

# Every shape written in a signature of these rooms becomes a check for the whole test run.
install_import_hook(["regard.nn", "regard.models"], "beartype.beartype")


@pytest.fixture
def unchecked():
    """Long loops over what other tests have checked go without the checks, which cost more than tiny models."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def data() -> Path:
    """The stored data sets: $REGARD_DATA, or ../shared/data beside the repository."""
    path = Path(os.environ.get("REGARD_DATA") or Path(__file__).parents[1] / ".." / "shared" / "data").resolve()
    if not path.is_dir():
        pytest.skip(f"no data at {path}: set REGARD_DATA")
    return path


@pytest.fixture(scope="session")
def tiny_model():
    """A function that builds a small model with random weights, larger than fresh ones, so that its
    distributions are peaked and differ from one seed to the next."""
    from regard.models.base import Model, build_model

    def build(section: dict, seed: int, source: int = 7, target: int = 5, scale: float = 1.0) -> Model:
        torch.manual_seed(seed)
        model = build_model(section, source, target)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * scale * (0.3 if parameter.dim() == 1 else 0.5))
        return model.eval()

    return build


class Outcome(NamedTuple):
    """What a command gave back."""

    code: int
    out: bytes
    err: str


@pytest.fixture(scope="session")
def call():
    """A function that runs one command of the command line in this process."""
    from regard.__main__ import main

    def run(*words: object, stdin: bytes = b"") -> Outcome:
        streams = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin, b"", b"")]
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = streams
        try:
            code = main([str(word) for word in words])
        except SystemExit as leave:
            code = int(leave.code or 0)
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
        for stream in streams[1:]:
            stream.flush()
        out, err = (stream.buffer.getvalue() for stream in streams[1:])  # type: ignore[attr-defined]
        return Outcome(code, out, err.decode())

    return run


RECIPE = """
seed = 3
data = {train = "pairs.tsv", batch_tokens = 400}
text = {source = "characters", target = "characters"}
[model]
kind = "transformer"
width = 16
heads = 2
encoder_layers = 1
decoder_layers = 1
feed_forward = 32
[train]
max_steps = 12
warmup = 2
rate = 1e-2
validate_every = 6
decode_limit = 8
log_every = 4
average = 2
"""


@pytest.fixture(scope="session")
def shop(tmp_path_factory, call) -> Path:
    """A folder with pairs (`pairs.tsv`, `test.tsv`), a recipe (`tiny.toml`) and two trained run directories:
    `transformer` reads characters, `rnn` reads words."""
    from regard.tasks.made import reverse, write_tsv

    folder = tmp_path_factory.mktemp("shop")
    write_tsv(folder / "pairs.tsv", reverse(200, 1, 8, 1, 5))
    write_tsv(folder / "test.tsv", reverse(30, 2, 8, 1, 5))
    (folder / "tiny.toml").write_text(RECIPE)
    done = call("train", folder / "tiny.toml", "-o", folder / "transformer", "--quiet")
    assert (done.code, done.out) == (0, b""), done.err
    words = ["text.source=words", "text.target=words", "model={kind='rnn', width=16, embedding=16}"]
    done = call("train", folder / "tiny.toml", "-o", folder / "rnn", *words, "--quiet")
    assert (done.code, done.out) == (0, b""), done.err
    return folder
