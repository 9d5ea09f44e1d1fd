"""What is the Transformer's own; the contract it shares with all models is in tests/test_models.py."""

import pytest
import torch

from regard import record
from regard.data.batch import make_batch
from regard.errors import ConfigError
from regard.models.base import build_model, model_options
from regard.models.transformer import TransformerState
from regard.nn.position import sinusoidal
from regard.nn.step import Stepper

SMALL = {"kind": "transformer", "width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 2, "decoder_layers": 2}


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    ("positions", "join", "equivariant"),
    [
        ("none", "add", True),
        ("sinusoidal", "add", False),
        ("learned", "add", False),
        ("sinusoidal", "concatenate", False),
        ("learned", "concatenate", False),
    ],
)
@torch.no_grad()
def test_encoder_is_permutation_equivariant_without_positions_only(tiny_model, norm, positions, join, equivariant):
    section = SMALL | {"norm": norm, "positions": positions, "position_join": join, "tie": "none"}
    model = tiny_model(section, 0, 9, 9)
    source, order = torch.tensor([[4, 5, 6, 7, 8, 2], [8, 8, 5, 2, 0, 0]]), torch.tensor([2, 0, 1])
    moved = source.clone()
    moved[:, :3] = source[:, order]
    memories = [model.encode(model.tensors(make_batch(rows.tolist()))).values for rows in (source, moved)]
    same = torch.allclose(memories[1][:, :3], memories[0][:, order], atol=1e-5)
    assert same == equivariant
    assert torch.allclose(memories[1][:, 3:], memories[0][:, 3:], atol=1e-5) == equivariant


@torch.no_grad()
def test_a_long_target_goes_on_where_its_state_stands(tiny_model):
    """Over several sizes of the cache and of the position table."""
    model = tiny_model(SMALL, 0, 9, 9)
    model.target.positions.table = sinusoidal(4, 8)
    memory = model.encode(model.tensors(make_batch([[4, 5, 2], [2]])))
    tokens = torch.randint(3, 9, (2, 50), generator=torch.Generator().manual_seed(0))
    whole, nothing = model.decode(tokens, memory)
    assert nothing is None  # training keeps no cache
    state = model.start(memory)
    for place in range(50):
        hidden, state = model.decode(tokens[:, place : place + 1], memory, state)
        assert state.position == place + 1
        assert (hidden[:, 0] - whole[:, place]).abs().max() <= 1e-5


def test_learned_positions_limit_the_length():
    model = build_model(SMALL | {"positions": "learned", "max_length": 5}, 9, 9)
    assert model.limit == 5
    model(make_batch([[4, 4, 4, 4, 2]], [[5, 5, 5, 5, 2]]))
    with pytest.raises(ValueError, match="beyond the learned table of 5"):
        model(make_batch([[4, 4, 4, 4, 4, 2]], [[2]]))
    assert build_model(SMALL | {"max_length": 5}, 9, 9).limit is None


def test_tied_weights_are_one_tensor():
    for tie, source, output in [("none", 0, 0), ("output", 0, 1), ("embeddings", 1, 0), ("all", 1, 1)]:
        model = build_model(SMALL | {"tie": tie}, 9, 9)
        table = model.target.tokens.weight
        assert (model.source.tokens.weight is table) == bool(source), tie
        assert (model.output_weights()[0] is table) == bool(output), tie


def test_dropout_on_embeddings_is_that_of_the_layers_unless_given():
    ids = torch.full((50, 4), 5)
    for options, kept in [({}, 0.5), ({"embedding_dropout": 0.0}, 1.0), ({"embedding_dropout": 0.9}, 0.1)]:
        model = build_model(SMALL | {"dropout": 0.5, "positions": "none"} | options, 9, 9).train()
        assert (model.source(ids) != 0).float().mean().item() == pytest.approx(kept, abs=0.1)


def test_cross_attention_keys_are_projected_once(tiny_model):
    model = tiny_model(SMALL, 0, 9, 9)
    memory = model.encode(model.tensors(make_batch([[4, 5, 2]])))
    assert len(memory.projected) == 2
    model.decoder[1].cross_attention.memory = None  # decoding has no use for it any more
    state = model.start(memory)
    model.decode(torch.tensor([[1]]), memory, state)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 9}, "9 cannot be divided into 2 heads"),
        ({"position_join": "concatenate", "tie": "all"}, "tie must be none or embeddings"),
        ({"position_join": "concatenate", "tie": "none", "positions": "none"}, "needs positions"),
        ({"position_join": "concatenate", "tie": "none", "position_width": 8}, "must be below width"),
        ({"activation": "tanh"}, "activation"),
        ({"encoder_layer": 3}, "did you mean 'encoder_layers'"),
        ({"width": 6, "positions": "rotary"}, r"the width of a head \(3\) is odd"),
        ({"neighbourhood": 3}, "3 is odd"),
        ({"self_attention": False, "neighbourhood": 4}, "need self_attention"),
        ({"self_attention": False, "positions": "shaw"}, "need self_attention"),
        ({"self_attention": False, "feed_forward": 0}, "needs self_attention or feed_forward"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ConfigError, match=message):
        model_options(SMALL | options)


def test_shared_embeddings_need_one_vocabulary():
    with pytest.raises(ConfigError, match="found 9 and 8 pieces"):
        build_model(SMALL | {"tie": "all"}, 9, 8)


def test_unknown_model_is_an_error_that_names_the_known_ones():
    with pytest.raises(ConfigError, match="unknown model 'lstm'; known: rnn, bytenet, convs2s, transformer"):
        model_options({"kind": "lstm"})


@torch.no_grad()
def test_steps_are_not_taken_where_somebody_looks_on(tiny_model):
    model = tiny_model(SMALL, 0, 9, 9)
    memory, layout = model.encode(model.tensors(make_batch([[4, 5, 2]]))), model.lay_out()
    assert isinstance(model.start(memory, layout), Stepper)
    with record(model):
        assert isinstance(model.start(memory, layout), TransformerState)
    assert isinstance(model.start(memory, None), TransformerState)
