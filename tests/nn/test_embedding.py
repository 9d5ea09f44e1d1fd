import pytest
import torch

from regard.nn.embedding import Embedding, token_table
from regard.nn.position import sinusoidal

IDS = torch.tensor([[4, 2, 0], [5, 5, 2]])


def test_fresh_vectors_have_unit_variance_after_scaling():
    torch.manual_seed(0)
    vectors = Embedding(token_table(500, 64), 64)(torch.arange(500)[None])
    assert vectors.std().item() == pytest.approx(1, abs=0.02)


def test_without_positions_it_is_the_scaled_table():
    table = token_table(6, 16)
    assert torch.equal(Embedding(table, 16)(IDS, 3), table.weight[IDS] * 4)


@pytest.mark.parametrize("start", [0, 5])
def test_positions_are_added(start):
    table = token_table(6, 16)
    found = Embedding(table, 16, "sinusoidal", "add")(IDS, start)
    assert torch.equal(found, table.weight[IDS] * 4 + sinusoidal(start + 3, 16)[start:])


@pytest.mark.parametrize("start", [0, 5])
def test_positions_are_set_beside(start):
    table = token_table(6, 12)
    found = Embedding(table, 16, "sinusoidal", "concatenate")(IDS, start)
    assert found.shape == (2, 3, 16)
    assert torch.equal(found[:, :, :12], table.weight[IDS] * 4)
    assert torch.equal(found[:, :, 12:], sinusoidal(start + 3, 4)[start:].expand(2, -1, -1))


@pytest.mark.parametrize("join", ["add", "concatenate"])
def test_learned_positions_learn(join):
    embedding = Embedding(token_table(6, 16 if join == "add" else 12), 16, "learned", join, limit=8)
    assert embedding.positions.table.shape == (8, 16 if join == "add" else 4)
    embedding(IDS, 2).square().sum().backward()
    used = embedding.positions.table.grad.any(1)
    assert used.tolist() == [False, False, True, True, True, False, False, False]


def test_dropout_is_applied_in_training_only():
    embedding = Embedding(token_table(6, 64), 64, "sinusoidal", dropout=0.5)
    still = embedding.eval()(IDS)
    noisy = embedding.train()(IDS)
    assert 0.3 < (noisy == 0).float().mean() < 0.7
    assert torch.equal(embedding.eval()(IDS), still)
