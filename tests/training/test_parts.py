"""Parts of a batch, computed in threads, give what the whole batch gives."""

import numpy as np
import pytest
import torch

from regard.config import Train
from regard.data.batch import make_batch
from regard.models.base import build_model
from regard.objective import LikelihoodObjective
from regard.training import parts, update
from regard.training.parts import Parts, add, cut
from regard.training.update import Updater

GENERATOR = np.random.default_rng(1)


def make(rows: int):
    def side(shortest: int) -> list[list[int]]:
        return [[*GENERATOR.integers(4, 20, GENERATOR.integers(shortest, 9)), 2] for _ in range(rows)]

    return make_batch(side(0), side(1), range(rows))


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_every_row_is_in_one_part_and_nothing_is_cut_off(number):
    batch = make(23)
    found = {}
    for part in cut(batch, number):
        assert part.source.shape[1] == part.source_length.max() or number == 1
        assert not found.keys() & {*part.index.tolist()}
        found |= words(part)
    assert found == words(batch)


def words(batch) -> dict[int, tuple[list[int], list[int]]]:
    """The rows of a batch by their numbers, without padding."""
    rows = zip(batch.index, batch.source, batch.source_length, batch.target, batch.target_length, strict=True)
    return {
        int(number): (source[:long].tolist(), target[:size].tolist()) for number, source, long, target, size in rows
    }


def test_parts_are_of_about_equal_cost():
    batch = make(200)
    costs = [int((part.source_length + part.target_length).sum()) for part in cut(batch, 4)]
    assert max(costs) < 1.05 * min(costs)


def test_columns_of_their_own_stay_as_wide_as_they_were():
    batch = make(10)
    batch.extra["fertility"] = np.arange(10 * batch.source.shape[1]).reshape(10, -1)
    for part in cut(batch, 3):
        assert part.extra["fertility"].shape == part.source.shape
        assert (part.extra["fertility"][:, 0] == part.index * batch.source.shape[1]).all()


@pytest.mark.parametrize(
    ("threads", "rows", "wanted"),
    [(1, 8, 1), (2, 8, 1), (2, 40, 2), (2, 400, 6), (1, 400, 5), (4, 120, 4), (2, 1, 1)],
)
def test_the_number_of_parts_depends_on_threads_and_size(threads, rows, wanted, monkeypatch):
    monkeypatch.setattr(parts, "SMALL", 1000)
    monkeypatch.setattr(parts, "CACHED", 8000)
    batch = make_batch([[4] * 5] * rows, [[4] * 5] * rows)
    assert Parts(lambda part: (torch.zeros(()), 0, []), 10, threads).number(batch) == wanted


def test_what_has_no_gradient_in_one_part_may_have_one_in_another():
    first = torch.tensor(1.0), 2, [torch.tensor([1.0]), None, None]
    second = torch.tensor(2.0), 3, [torch.tensor([4.0]), torch.tensor([5.0]), None]
    loss, tokens, gradients = add([first, second])
    assert (loss, tokens, gradients[2]) == (3, 5, None)
    assert [float(each) for each in gradients[:2]] == [5, 5]


TRANSFORMER = {"kind": "transformer", "width": 16, "heads": 2, "feed_forward": 32, "decoder_layers": 1}
RNN = {"kind": "rnn", "width": 16, "embedding": 16, "decoder_layers": 2}
MODELS = {
    "transformer": TRANSFORMER,
    "additive": RNN | {"attention": "additive"},
    "concat": RNN | {"attention": "concat", "cell": "lstm"},
}


def updated(threads: int, dropout: float, batches, kind: str = "transformer") -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    section = MODELS[kind] | {"encoder_layers": 1, "dropout": dropout}
    if kind == "transformer":
        section |= {"attention_dropout": dropout}
    model = build_model(section, 20, 20).train()
    assert model.in_parts
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        updater = Updater(LikelihoodObjective(model, 0.1), Train(clip=0.0, optimiser="sgd", rate=1.0), 16, seed=3)
        outcome = updater.update(batches, 1)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    loss, _ = outcome.read()
    return {"loss": torch.tensor(loss), **model.state_dict()}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("count", [1, 2])
def test_parts_in_threads_make_the_same_update(count, kind, monkeypatch):
    batches = [make(20) for _ in range(count)]
    whole = updated(1, 0.0, batches, kind)
    monkeypatch.setattr(parts, "SMALL", 8)
    monkeypatch.setattr(parts, "CACHED", 1024)
    found = updated(3, 0.0, batches, kind)
    for name, weight in whole.items():
        torch.testing.assert_close(found[name], weight, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_drawn_by_chance_does_not_depend_on_which_thread_is_faster(kind, monkeypatch):
    monkeypatch.setattr(parts, "SMALL", 8)
    monkeypatch.setattr(parts, "CACHED", 1024)
    batches = [make(30)]
    first, *others = [updated(3, 0.4, batches, kind) for _ in range(4)]
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)


def test_a_large_model_is_not_computed_in_parts(monkeypatch):
    batches = [make(12), make(9)]
    small = updated(2, 0.0, batches)
    monkeypatch.setattr(update, "LARGE", 10)
    monkeypatch.setattr(update, "Parts", None)
    large = updated(2, 0.0, batches)
    for name, weight in small.items():
        torch.testing.assert_close(large[name], weight, atol=1e-5, rtol=1e-5)


def test_an_error_in_a_thread_is_an_error(monkeypatch):
    monkeypatch.setattr(parts, "SMALL", 8)

    def fail(part):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Parts(fail, 16, 2).sum([make(8)], np.random.SeedSequence(1))
