import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.config import Search
from regard.data.batch import EOS, make_batch
from regard.engine.native import NativeEngine, check_shapes, expected_shapes, find_device, load_engine, load_model
from regard.errors import ConfigError, ModelError

RNN = {"kind": "rnn", "width": 8, "embedding": 8, "encoder_layers": 2, "dropout": 0.0}
TRANSFORMER = {
    "kind": "transformer",
    "width": 8,
    "heads": 2,
    "feed_forward": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "dropout": 0.3,
}
SOURCES = [[4, 5, 6, 2], [2], [6, 2]]
TARGETS = [[5, 2], [4, 4, 8, 2], [2]]


@pytest.fixture
def models(tiny_model):
    return [tiny_model(RNN, 0, 7, 9), tiny_model(TRANSFORMER, 1, 7, 9)]


@torch.no_grad()
def distributions(model, source: list[int], target: list[int]) -> np.ndarray:
    """Log-probabilities [T,V] before each target token, one step of one sentence at a time."""
    memory = model.encode(model.tensors(make_batch([source])))
    state, prices = model.start(memory), []
    for before in [1, *target[:-1]]:
        hidden, state = model.decode(torch.tensor([[before]]), memory, state)
        prices.append(model.output(hidden)[0, 0].double().log_softmax(-1).numpy())
    return np.stack(prices)


def by_hand(model, source: list[int], target: list[int]) -> np.ndarray:
    """Log-probability of each target token."""
    return distributions(model, source, target)[np.arange(len(target)), target]


def test_score_is_the_price_of_each_token(models):
    for model in models:
        for source, target, found in zip(SOURCES, TARGETS, NativeEngine([model]).score(SOURCES, TARGETS), strict=True):
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, by_hand(model, source, target), atol=1e-5)


def test_a_source_that_comes_again_is_read_once(models, monkeypatch):
    for model in models:
        engine, read = NativeEngine([model]), []
        encode = model.encode
        monkeypatch.setattr(
            model, "encode", lambda batch, encode=encode, read=read: read.append(batch) or encode(batch)
        )
        rows = [0, 1, 0, 2, 0, 1]
        sources, targets = (
            [SOURCES[row] for row in rows],
            [TARGETS[(row + place) % 3] for place, row in enumerate(rows)],
        )
        for source, target, found in zip(sources, targets, engine.score(sources, targets), strict=True):
            np.testing.assert_allclose(found, by_hand(model, source, target), atol=1e-5)
        assert len(read[0].source) == 3


def test_models_are_used_in_evaluation_mode(tiny_model):
    """Dropout would change every call."""
    engine = NativeEngine([tiny_model(TRANSFORMER, 1, 7, 9).train()])
    first, second = (engine.score(SOURCES, TARGETS) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


# Ensembles


def test_an_ensemble_is_the_mean_of_probabilities(models, tiny_model):
    models = [*models, tiny_model(RNN, 5, 7, 9)]
    for source, target, found in zip(SOURCES, TARGETS, NativeEngine(models).score(SOURCES, TARGETS), strict=True):
        prices = np.array([by_hand(model, source, target) for model in models])
        np.testing.assert_allclose(found, np.log(np.exp(prices).mean(0)), atol=1e-5)
        assert not np.allclose(found, prices.mean(0), atol=1e-3)  # which is the mean of logarithms


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_the_search_of_an_ensemble_follows_the_same_mean(models, method):
    engine = NativeEngine(models)
    outputs = engine.search(SOURCES, Search(method=method, beam=3, maximum_length=6))
    for source, (output,) in zip(SOURCES, outputs, strict=True):
        prices = np.array([by_hand(model, source, [*output.ids, EOS]) for model in models])
        assert output.log_probability == pytest.approx(np.log(np.exp(prices).mean(0)).sum(), abs=1e-4)
        if method == "greedy":  # each word is the best of the mean
            shares = np.mean([np.exp(distributions(model, source, [*output.ids, EOS])) for model in models], 0)
            assert (2 + shares[:-1, 2:].argmax(-1)).tolist() == list(output.ids)


def test_an_ensemble_of_one_model_twice_is_that_model(models):
    options = Search(beam=3, nbest=3, maximum_length=6)
    for model in models:
        one, two = NativeEngine([model]), NativeEngine([model, model])
        for some, same in zip(one.search(SOURCES, options), two.search(SOURCES, options), strict=True):
            assert [output.ids for output in some] == [output.ids for output in same]
            np.testing.assert_allclose([o.score for o in some], [o.score for o in same], atol=1e-4)


# How long an output may get


@pytest.fixture
def endless(tiny_model):
    """A model that never wants to end: each output is as long as it may be."""
    model = tiny_model(RNN, 0, 7, 9)
    with torch.no_grad():
        model.projection.bias[EOS] = -100
    return NativeEngine([model])


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_the_longest_output_grows_with_its_source(endless, method):
    found = endless.search(SOURCES, Search(method=method, growth=1.5))
    assert [len(outputs[0].ids) for outputs in found] == [16, 12, 13]  # ⌈1.5 · length⌉ + 10
    assert not any(outputs[0].finished for outputs in found)


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_the_longest_output_can_be_given(endless, method):
    found = endless.search(SOURCES, Search(method=method, maximum_length=4))
    assert [len(outputs[0].ids) for outputs in found] == [4, 4, 4]


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_no_output_is_longer_than_the_shortest_table_of_positions(tiny_model, method):
    learned = TRANSFORMER | {"positions": "learned"}
    models = [tiny_model(learned | {"max_length": size}, 0, 7, 9) for size in (8, 6)]
    engine = NativeEngine([*models, tiny_model(RNN, 0, 7, 9)])
    assert engine.limit == 6
    found = engine.search(SOURCES, Search(method=method, minimum_length=9, beam=2))
    assert [len(outputs[0].ids) for outputs in found] == [5, 5, 5]  # and EOS is the sixth
    scores = engine.score(SOURCES, [[*outputs[0].ids, EOS] for outputs in found])
    for outputs, score in zip(found, scores, strict=True):
        assert outputs[0].log_probability == pytest.approx(score.sum(), abs=1e-4)


def test_models_without_a_table_have_no_limit(models):
    assert NativeEngine(models).limit is None


def test_a_damaged_model_is_an_error(models):
    with torch.no_grad():
        models[0].bridge.weight.fill_(math.nan)
    for options in (Search(), Search(method="greedy"), Search(method="sample")):
        with pytest.raises(ModelError, match="not numbers"):
            NativeEngine(models).search(SOURCES, options)


# What is looked at


def test_attend_gives_the_maps_of_the_first_model(models):
    rnn, transformer = models
    (only,) = NativeEngine([rnn, transformer]).attend(SOURCES[0], TARGETS[1])
    assert (only.name, only.kind, only.weights.shape) == ("attention", "cross", (1, 4, 4))
    maps = NativeEngine([transformer, rnn]).attend(SOURCES[2], TARGETS[1])
    encoder, decoder = [("encoder", (2, 2, 2))] * 2, [("decoder", (2, 4, 4)), ("cross", (2, 4, 2))] * 3
    assert [(each.kind, each.weights.shape) for each in maps] == encoder + decoder
    for each in (only, *maps):
        np.testing.assert_allclose(each.weights.sum(-1), 1, atol=1e-5)


def test_cross_attention_is_the_mean_over_layers_and_heads(models):
    engine = NativeEngine(models[1:])
    found = engine.cross_attention(SOURCES, TARGETS)
    assert found.shape == (3, 4, 4)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        cross = [each.weights for each in engine.attend(source, target) if each.kind == "cross"]
        wanted = sum(layer[head] for layer in cross for head in range(2)) / 6
        np.testing.assert_allclose(found[row, : len(target), : len(source)], wanted, atol=1e-5)


def test_without_attention_there_is_nothing_to_show(tiny_model):
    engine = NativeEngine([tiny_model(RNN | {"attention": "none"}, 0, 7, 9)])
    assert engine.cross_attention(SOURCES, TARGETS) is None
    assert engine.attend(SOURCES[0], TARGETS[0]) == []


# Reading a model


@pytest.fixture
def saved(models, tmp_path):
    """A directory with the Transformer's weights, and its configuration."""
    save_file({name: tensor.detach() for name, tensor in models[1].named_parameters()}, tmp_path / "model.safetensors")
    return tmp_path, {"model": TRANSFORMER, "vocabulary": {"source": 7, "target": 9}}


def test_loaded_engine_gives_the_same_scores(saved, models):
    directory, config = saved
    engine = load_engine([directory, directory], [config, config])
    assert len(engine.models) == 2
    wanted = NativeEngine(models[1:]).score(SOURCES, TARGETS)
    for found, same in zip(engine.score(SOURCES, TARGETS), wanted, strict=True):
        np.testing.assert_allclose(found, same, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": {"source": 8, "target": 9}}, r"source.tokens.weight' has shape \(7, 8\)"),
        ({"model": TRANSFORMER | {"decoder_layers": 4}}, r"decoder\.3.* has shape None"),
        ({"model": TRANSFORMER | {"decoder_layers": 2}}, r"decoder\.2.* implies None"),
        ({"model": TRANSFORMER | {"wide": 1}}, r"config\.json: .*wide"),
        ({"model": {"kind": "perceptron"}}, r"config\.json: .*unknown model 'perceptron'"),
        ({"vocabulary": {}}, r"config\.json: missing or wrong entry: 'source'"),
        ({"vocabulary": 3}, r"config\.json: missing or wrong entry"),
        ({"vocabulary": {"source": 2**40, "target": 9}}, r"config\.json: implies far more weights than model\.safe"),
        ({"model": TRANSFORMER | {"width": 2**16}}, r"config\.json: implies far more weights"),
        ({"model": TRANSFORMER | {"encoder_layers": 10**6}}, r"config\.json: implies far more weights"),
    ],
)
def test_weights_must_be_those_of_the_configuration(saved, change, message):
    directory, config = saved
    with pytest.raises(ModelError, match=message):
        load_model(directory, config | change)


def test_unreadable_weights_are_an_error_that_names_the_file(saved):
    directory, config = saved
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be read"):
        load_model(directory, config)
    path.unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be read"):
        load_model(directory, config)


def test_expected_shapes_name_every_stored_weight(saved, models):
    path = saved[0] / "model.safetensors"
    shapes = expected_shapes(models[1])
    found = {name: tuple(tensor.shape) for name, tensor in load_file(path).items()}
    assert shapes == found
    check_shapes(path, shapes, found)
    with pytest.raises(ModelError, match="extra"):
        check_shapes(path, shapes, found | {"extra": (1,)})


def test_devices_by_name():
    assert find_device("cpu") == torch.device("cpu")
    assert find_device("auto").type in ("cpu", "cuda")
    with pytest.raises(ConfigError, match="--device abacus"):
        find_device("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="--device cuda:7"):
            find_device("cuda:7")
