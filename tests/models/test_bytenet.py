"""ByteNet against the paper's description, written as loops over rows and columns."""

import pytest
import torch
import torch.nn.functional as F

from regard.data.batch import make_batch
from regard.errors import ConfigError
from regard.models.base import build_model, shift_right
from regard.models.bytenet import unfolded

SECTION = {
    "kind": "bytenet", "width": 6, "encoder_layers": 3, "decoder_layers": 3, "dilations": 2, "dropout": 0.0,
    "encoder_kernel": 3, "decoder_kernel": 2,
}  # fmt: skip
SOURCES = [[4, 5, 6, 4, 7, 2], [2], [7, 2]]
BATCH = make_batch(SOURCES, [[4, 5, 2], [6, 6, 7, 4, 2], [2]])


@pytest.fixture
def model():
    torch.manual_seed(1)
    return build_model(SECTION, 9, 8).eval()


def block(module, columns, places):
    """x + W3 ρ(conv(ρ(W1 ρ(x)))), where position t sees the positions t + place."""

    def rho(number, x):
        return F.relu(module.norms[number](x))

    inner = [rho(1, module.down(rho(0, x))) for x in columns]
    convolution = module.convolution.convolution
    after = []
    for t, x in enumerate(columns):
        total = convolution.bias
        for number, place in enumerate(places):
            if 0 <= t + place < len(columns):
                total = total + convolution.weight[:, :, number] @ inner[t + place]
        after.append(x + module.up(rho(2, total)))
    return after


@torch.no_grad()
def test_encoder_and_decoder_follow_the_paper(model):
    batch = model.tensors(BATCH)
    memory = model.encode(batch)
    hidden, _ = model.decode(shift_right(batch.target), memory)
    for row, (source, target) in enumerate(zip(SOURCES, [[1, 4, 5], [1, 6, 6, 7, 4], [1]], strict=True)):
        columns = [model.source.weight[token] * 6**0.5 for token in source]
        columns += [torch.zeros(6)] * (unfolded(len(source)) - len(source))
        for layer, dilation in zip(model.encoder, [1, 2, 1], strict=True):
            columns = block(layer, columns, [-dilation, 0, dilation])
        torch.testing.assert_close(memory.values[row, : len(columns)], torch.stack(columns))
        x = []
        for t, token in enumerate(target):
            column = columns[t] if t < len(columns) else torch.zeros(6)  # on until EOS, beyond the last column
            x.append(model.join(torch.cat([model.target.weight[token] * 6**0.5, column])))
        for layer, dilation in zip(model.decoder, [1, 2, 1], strict=True):
            x = block(layer, x, [-dilation, 0])
        for t, vector in enumerate(x):
            torch.testing.assert_close(hidden[row, t], F.relu(model.last(F.relu(model.norm(vector)))))


def test_a_source_gets_a_fifth_more_columns():
    assert [unfolded(length) for length in (1, 2, 4, 5, 6, 10, 100)] == [2, 3, 5, 6, 8, 12, 120]
    assert unfolded(torch.tensor([1, 5, 6])).tolist() == [2, 6, 8]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"width": 7}, "even"), ({"decoder_kernel": 1}, "decoder_kernel: should be greater than or equal to 2")],
)
def test_what_cannot_work_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        build_model({**SECTION, **change}, 9, 8)
