"""A random Transformer in both engines."""

import pytest
import torch
from safetensors.torch import save_file

from regard.config import Search
from regard.directory import read_directory, write_directory
from regard.engine.ctranslate2 import load_engine
from regard.engine.export import write_export
from regard.engine.native import NativeEngine

WORDS = 20


@torch.no_grad()
def silence(model, ending) -> None:
    """<pad> and <s> get no probability, as in a trained model, and the end `ending` more log-probability.

    One element of the last hidden vector, always 5, says so.
    """
    norm = model.decoder_norm if model.options.norm == "pre" else model.decoder[-1].around_feed_forward.norm
    norm.weight[0], norm.bias[0] = 0, 5
    weight = model.output_weights()[0]
    weight[:, 0], weight[:2, 0], weight[2, 0] = 0, -20, ending / 5


@pytest.fixture
def exported(tiny_model, tmp_path):
    """A function: options and seed of a random model → the same model in both engines."""

    def make(section, seed=0, quiet=True, longest=64, ending=0.0):
        model = tiny_model(section, seed, WORDS, WORDS)
        if quiet:
            silence(model, ending)
        weights = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
        config = {"model": section, "vocabulary": {"source": WORDS, "target": WORDS}, "longest": longest}
        path = tmp_path / f"model-{seed}"
        write_directory(path, config, lambda fresh: save_file(weights, fresh / "model.safetensors"))
        directory, config = read_directory(path)
        write_export(directory, config, Search(), "float32", lambda folder, facts: {"sentences": 0})
        return NativeEngine([model]), load_engine(directory)

    return make
