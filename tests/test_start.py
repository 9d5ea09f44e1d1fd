"""Runs that begin with the weights of a model: all of them, some of its layers, or its encoder."""

import pytest
import torch

import regard
from regard.errors import ConfigError, ModelError


def borrowing(shop, start, **model):
    section = {"kind": "nonautoregressive", "width": 16, "heads": 2, "feed_forward": 24, "encoder_layers": 1}
    return {
        "start_encoder": str(start),
        "data": {"train": str(shop / "test.tsv"), "valid": str(shop / "test.tsv"), "batch_tokens": 400},
        "text": {"source": "words", "target": "words", "joint": True},
        "model": section | {"decoder_layers": 1} | model,
        "train": {"max_steps": 1, "decode_limit": 0, "rate": 1e-9, "optimiser": "sgd", "schedule": "constant"},
    }


def test_an_encoder_can_be_lent(tmp_path, shop):
    lender = borrowing(shop, "", kind="transformer")
    del lender["start_encoder"]
    teacher = regard.train(lender, tmp_path / "lender", quiet=True).engine.models[0]
    values = borrowing(shop, tmp_path / "lender")
    model = regard.train(values, tmp_path / "run", quiet=True).engine.models[0]
    theirs, ours = dict(teacher.named_parameters()), dict(model.named_parameters())
    lent = [name for name in ours if name.startswith(("source.", "encoder"))]
    assert len(lent) > 10
    for name in lent:
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-6, rtol=0)
    with pytest.raises(
        ConfigError, match=r"start_encoder = '.*lender': encoder\.0\..* is \[24\] there, this model has \[20\]"
    ):
        regard.train(borrowing(shop, tmp_path / "lender", feed_forward=20), tmp_path / "other", quiet=True)
    taught = regard.train(values | {"start_decoder": True}, tmp_path / "taught", quiet=True).engine.models[0]
    own = []
    for name, weight in taught.named_parameters():
        known = name.replace("place_attention", "self_attention")
        if known in theirs and not name.startswith("canvas"):
            torch.testing.assert_close(weight, theirs[known], atol=1e-6, rtol=0)
        else:
            own.append(name)
    assert all("positions" in name or name.startswith(("fertility", "canvas")) for name in own)
    with pytest.raises(ConfigError, match="start_decoder = true needs start_encoder"):
        regard.train(lender | {"start_decoder": True}, tmp_path / "none", quiet=True)
    with pytest.raises(ConfigError, match="give start or start_encoder"):
        regard.train(values | {"start": str(tmp_path / "lender")}, tmp_path / "both", quiet=True)


@pytest.mark.parametrize(("layers", "kept"), [(1, [0]), (2, [0, 3]), (3, [0, 2, 3]), (4, [0, 1, 2, 3])])
def test_a_run_can_start_with_some_layers_of_a_deeper_model(tmp_path, shop, layers, kept):
    deep = borrowing(shop, "", kind="transformer", decoder_layers=4)
    del deep["start_encoder"]
    theirs = dict(regard.train(deep, tmp_path / "deep", quiet=True).engine.models[0].named_parameters())
    values = deep | {"start": str(tmp_path / "deep"), "model": deep["model"] | {"decoder_layers": layers}}
    model = regard.train(values, tmp_path / "run", quiet=True).engine.models[0]
    assert len(model.decoder) == layers
    for name, weight in model.named_parameters():
        if name.startswith("decoder."):
            _, number, rest = name.split(".", 2)
            name = f"decoder.{kept[int(number)]}.{rest}"
        torch.testing.assert_close(weight, theirs[name], atol=1e-6, rtol=0)


def test_a_run_cannot_start_with_fewer_layers_or_other_widths(tmp_path, shop):
    start = borrowing(shop, "", kind="transformer")
    del start["start_encoder"]
    regard.train(start, tmp_path / "start", quiet=True)
    for change, what in (({"decoder_layers": 2}, "decoder.1."), ({"feed_forward": 20}, "encoder.0.feed_forward")):
        values = start | {"start": str(tmp_path / "start"), "model": start["model"] | change}
        with pytest.raises(ModelError, match=rf"model\.safetensors.*{what}"):
            regard.train(values, tmp_path / "run", quiet=True)
