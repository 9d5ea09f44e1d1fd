import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from regard.errors import ConfigError, DataError
from regard.view.record import (
    AttentionReport,
    AttentionView,
    FilledPlaces,
    Map,
    WritingView,
    guess_kind,
    layers_of,
    record,
)


class FakeAttention(nn.Module):
    tap = None

    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        if self.tap is not None:
            self.tap(weights)
        return weights


class FakeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"self_attention": FakeAttention()})
        self.cross = FakeAttention()
        self.other = nn.Linear(2, 2)

    def forward(self, weights: torch.Tensor) -> None:
        self.cross(self.encoder["self_attention"](weights))


def taps(model: nn.Module) -> list[object]:
    return [module.tap for module in model.modules() if hasattr(module, "tap")]


def test_record_collects_by_name_and_lets_go():
    model, weights = FakeModel(), torch.rand(2, 3, 4, 5, requires_grad=True)
    with record(model) as maps:
        model(weights)
    assert list(maps) == ["encoder.self_attention", "cross"]
    assert len(maps) == 2
    assert torch.equal(maps["cross"], weights)
    assert not maps["cross"].requires_grad
    assert taps(model) == [None, None]
    model(weights)
    assert len(maps.calls["cross"]) == 1  # nothing is heard after the block


def test_recorded_weights_are_copies():
    model, weights = FakeModel(), torch.ones(1, 1, 1, 1)
    with record(model) as maps:
        model(weights)
        weights.zero_()
    assert maps["cross"].item() == 1


def test_record_lets_go_after_an_exception():
    model = FakeModel()
    with pytest.raises(KeyError), record(model):
        raise KeyError("inside")
    assert taps(model) == [None, None]


def test_nested_record_is_an_error_and_leaves_the_outer_one():
    model = FakeModel()
    with record(model) as maps:
        with pytest.raises(RuntimeError, match="recorded already"), record(model):
            pass
        model(torch.rand(1, 1, 1, 1))
    assert len(maps) == 2


def test_steps_are_joined_over_time_and_padded():
    model = FakeModel()
    with record(model) as maps:
        for step in range(1, 4):
            model.cross(torch.full((2, 1, 1, step), 1 / step))
    joined = maps["cross"]
    assert joined.shape == (2, 1, 3, 3)
    assert torch.allclose(joined.sum(-1), torch.ones(2, 1, 3))
    assert torch.equal(joined[0, 0, 0], torch.tensor([1.0, 0.0, 0.0]))


def test_different_batches_are_not_joined():
    model = FakeModel()
    with record(model) as maps:
        model.cross(torch.rand(2, 1, 1, 1))
        model.cross(torch.rand(3, 1, 1, 1))
    with pytest.raises(ValueError, match="cross: recorded calls of different batches"):
        maps["cross"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("encoder.layers.0.self", "encoder"),
        ("decoder.layers.3.cross", "cross"),
        ("decoder.layers.3.self_attention", "decoder"),
        ("attention", "cross"),
        ("decoder.attention", "cross"),
    ],
)
def test_guess_kind(name, kind):
    assert guess_kind(name) == kind


def test_layers_are_cut_to_their_lengths():
    maps = {"encoder.layers.0.self": torch.rand(2, 3, 6, 6), "decoder.layers.0.cross": torch.rand(2, 3, 4, 6)}
    encoder, cross = layers_of(maps, 1, source_length=5, target_length=2)
    assert (encoder.weights.shape, cross.weights.shape) == ((3, 5, 5), (3, 2, 5))
    assert (cross.queries, cross.keys) == ("target", "source")
    assert np.array_equal(cross.weights, maps["decoder.layers.0.cross"][1, :, :2, :5].numpy())


def test_json_round_trip(report):
    values = json.loads(json.dumps(report.to_dict()))
    again = AttentionReport.from_dict(values)
    assert again.to_dict() == values
    assert again.model == report.model
    for old, new in zip(report.views[0].layers, again.views[0].layers, strict=True):
        assert new.weights.dtype == np.float32
        assert np.abs(old.weights - new.weights).max() <= 5.1e-5


@pytest.mark.parametrize(
    "values", [{}, {"views": [], "model": {}}, {"views": [{"layers": 3}], "model": {}}, {"views": 1}]
)
def test_damaged_json_is_a_data_error(values):
    with pytest.raises(DataError, match="not an attention report"):
        AttentionReport.from_dict(values)


def test_scores_that_are_not_numbers_survive(make_view):
    view = make_view(["a"], ["b"], score=float("-inf"))
    assert np.isnan(AttentionView.from_dict(view.to_dict()).score)


def test_weights_must_fit_the_tokens():
    layer = Map("cross", "cross", "target", "source", np.zeros((1, 2, 3)))
    with pytest.raises(ValueError, match="do not fit"):
        AttentionView(["a"], ["b"], "a", "b", 0.0, [layer])
    with pytest.raises(ValueError, match="expected weights"):
        Map("cross", "cross", "target", "source", np.zeros((2, 3)))


def test_decoder_columns_are_shifted(report):
    view = report.views[0]
    decoder = next(layer for layer in view.layers if layer.kind == "decoder")
    rows, columns = view.labels(decoder)
    assert rows == ["eine", "kleine", "Katze", "</s>"]
    assert columns == ["<s>", "eine", "kleine", "Katze"]


def test_most_telling_head_is_sharp_and_moves():
    flat, same, moving = np.full((4, 4), 0.25), np.tile([0, 0, 0, 1.0], (4, 1)), np.eye(4)
    layer = Map("cross", "cross", "target", "source", np.stack([flat, same, moving, same]))
    assert np.allclose(layer.information(), [0, 0, 2, 0], atol=1e-5)
    view = AttentionView(list("abcd"), list("efgh"), "", "", 0.0, [layer])
    assert view.most_telling() == (layer, 2)
    assert view.most_telling("encoder") is None


@pytest.mark.parametrize("ending", ["html", "json", "png", "svg", "HTML"])
def test_save_by_ending(small_report, tmp_path, ending):
    path = small_report.save(tmp_path / f"x.{ending}")
    assert path.stat().st_size > 100


def test_unknown_ending_names_the_known_ones(small_report, tmp_path):
    with pytest.raises(ConfigError, match=r"\.docx.*\.html, \.json, \.png, \.svg"):
        small_report.save(tmp_path / "x.docx")


def test_saved_json_reads_back(report, tmp_path):
    path = report.save(tmp_path / "x.json")
    assert AttentionReport.from_dict(json.loads(path.read_text())).to_dict() == report.to_dict()


def test_how_words_were_written_comes_back(parallel_report):
    values = json.loads(json.dumps(parallel_report.to_dict()))
    again = AttentionReport.from_dict(values)
    writing = again.views[0].writing
    assert (writing.fertility, len(writing.passes)) == ([1, 1, 0], 2)
    assert writing.passes[1].tokens == ["ein", "Hund"]
    assert again.views[1].writing is None
    assert "writing" not in values["views"][1]
    with pytest.raises(ValueError, match="a pass over 1 places, expected 2"):
        WritingView(None, ["a", "b"], [FilledPlaces(["x"], [1.0], [True])])
    with pytest.raises(ValueError, match="2 fertilities do not fit 3 source tokens"):
        replace(parallel_report.views[0], writing=WritingView([1, 1], ["a"], []))
