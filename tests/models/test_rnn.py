"""The recurrent models against their papers' equations, written as loops over rows and steps.

The contract they share with all models is in tests/test_models.py.
"""

import pytest
import torch

from regard.data.batch import make_batch
from regard.errors import ConfigError
from regard.models.base import build_model, model_options, shift_right

SMALL = {"kind": "rnn", "width": 6, "embedding": 5, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
BATCH = make_batch([[4, 5, 6, 2], [2], [7, 2]], [[4, 5, 2], [6, 6, 7, 4, 2], [2]])


def cell(model, inputs, states):
    """One decoder step of one row: the output and the states of all layers, each [layers, D]."""
    output, after = model.decoder(inputs[None, None], tuple(part[None] for part in states))
    return output[0, 0], tuple(part[0] for part in after)


def mean(weights, annotations):
    return sum(weight * annotation for weight, annotation in zip(weights, annotations, strict=True))


def softmax(scores):
    powers = [torch.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def maxout(model, *parts):
    read = model.readout.weight @ torch.cat(parts) + model.readout.bias
    return torch.stack([read[i : i + 2].max() for i in range(0, len(read), 2)])


def by_hand(model, row: int) -> torch.Tensor:
    """Hidden vectors of one target from the equations in the docstring of regard/models/rnn.py."""
    kind, options = model.options.attention, model.options
    source = torch.as_tensor(BATCH.source[row, : BATCH.source_length[row]])
    annotations = model.encoder.layers(model.source.weight[source][None] * 5**0.5)[0][0]
    forward, backward = annotations[-1, : options.width], annotations[0, options.width :]
    summary = torch.cat([forward, backward])  # with one direction the second half is empty
    if kind == "additive" and options.bidirectional:
        summary = backward  # Bahdanau: s_0 = tanh(W · first backward state)
    start = torch.tanh(model.bridge.weight @ summary + model.bridge.bias).view(-1, 2, options.width)
    states, feed, hidden = tuple(start), torch.zeros(options.width), []
    context = torch.cat([forward, backward])
    if model.narrow is not None:
        annotations = annotations @ model.narrow.weight.t()
    target = torch.as_tensor(BATCH.target[row : row + 1, : BATCH.target_length[row]])
    for token in shift_right(target)[0]:
        y = model.target.weight[token] * 5**0.5
        if kind in ("none", "additive"):
            if kind == "additive":
                context = look(model, states[0][-1], annotations)
            s, states = cell(model, torch.cat([y, context]), states)
            hidden.append(maxout(model, s, y, context))
        else:
            s, states = cell(model, torch.cat([y, feed]) if options.input_feeding else y, states)
            feed = torch.tanh(model.combine.weight @ torch.cat([look(model, s, annotations), s]))
            hidden.append(feed)
    return torch.stack(hidden)


def look(model, s, annotations):
    """The context of one query."""
    attention, kind = model.attention, model.options.attention
    if kind in ("additive", "concat"):
        scores = [
            attention.score.weight[0]
            @ torch.tanh(attention.query.weight @ s + attention.memory.weight @ h + attention.memory.bias)
            for h in annotations
        ]
    elif kind == "general":
        scores = [s @ attention.memory.weight @ h for h in annotations]
    else:
        scores = [s @ h for h in annotations]
    return mean(softmax(scores), annotations)


@pytest.mark.parametrize("bidirectional", [True, False], ids=["both", "forward"])
@pytest.mark.parametrize("cell_kind", ["vanilla", "gru", "lstm"])
@pytest.mark.parametrize(
    ("attention", "feeding"),
    [("none", True), ("additive", True)]
    + [(kind, feeding) for kind in ("dot", "general", "concat") for feeding in (True, False)],
)
@torch.no_grad()
def test_decoder_follows_its_papers_equations(tiny_model, attention, feeding, cell_kind, bidirectional):
    section = SMALL | {
        "attention": attention,
        "input_feeding": feeding,
        "cell": cell_kind,
        "bidirectional": bidirectional,
        "attention_width": 4,
    }
    model = tiny_model(section, 0, 8, 8, scale=0.5)
    batch = model.tensors(BATCH)
    hidden, _ = model.decode(shift_right(batch.target), model.encode(batch))
    for row, length in enumerate(BATCH.target_length):
        wanted = by_hand(model, row)
        assert (hidden[row, :length] - wanted).abs().max() <= 1e-5


def test_only_luong_feeds_and_starts_with_zeros(tiny_model):
    for attention, fed in [("none", False), ("additive", False), ("dot", True), ("general", True), ("concat", True)]:
        model = tiny_model(SMALL | {"attention": attention}, 0, 8, 8)
        state = model.start(model.encode(model.tensors(BATCH)))
        assert (state.feed is not None) == fed, attention
        if fed:
            assert state.feed.shape == (3, 6)
            assert not state.feed.any()
    model = tiny_model(SMALL | {"attention": "dot", "input_feeding": False}, 0, 8, 8)
    assert model.start(model.encode(model.tensors(BATCH))).feed is None


def test_without_attention_the_memory_is_one_vector(tiny_model):
    """However long the source is."""
    model = tiny_model(SMALL | {"attention": "none"}, 0, 8, 8)
    memory = model.encode(model.tensors(BATCH))
    assert memory.values.shape == (3, 1, 12)
    assert memory.mask.all()
    assert memory.projected == ()


def test_tied_weights_are_one_tensor():
    for attention in ("additive", "dot"):
        for tie, source, output in [("none", 0, 0), ("output", 0, 1), ("embeddings", 1, 0), ("all", 1, 1)]:
            model = build_model(SMALL | {"attention": attention, "embedding": 6, "tie": tie}, 9, 9)
            assert (model.source.weight is model.target.weight) == bool(source), tie
            assert (model.output_weights()[0] is model.target.weight) == bool(output), tie


def test_options_that_cannot_be():
    with pytest.raises(ConfigError, match="needs embedding = width, found 5 and 6"):
        model_options(SMALL | {"attention": "dot", "tie": "output"})
    model_options(SMALL | {"attention": "additive", "tie": "output"})  # the maxout is as wide as an embedding
    with pytest.raises(ConfigError, match="found 9 and 8 pieces"):
        build_model(SMALL | {"tie": "embeddings"}, 9, 8)
    with pytest.raises(ConfigError, match="attention"):
        model_options(SMALL | {"attention": "multiplicative"})
