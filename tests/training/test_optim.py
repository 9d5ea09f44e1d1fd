"""Schedules against their formulas; the optimiser's groups; its state through flat names."""

import math

import pytest
import torch
from torch import nn

from regard.config import Train
from regard.errors import ConfigError, ModelError
from regard.training.optim import load_optimiser, make_optimiser, optimiser_tensors, rate


@pytest.mark.parametrize("step", [1, 7, 399, 400, 401, 5000])
def test_noam(step):
    options = Train(schedule="noam", rate=2.0, warmup=400)
    assert rate(step, options, 256) == pytest.approx(2.0 / 16 * min(1 / math.sqrt(step), step / (400 * 20)), rel=1e-12)


def test_noam_peaks_where_the_warm_up_ends():
    options = Train(schedule="noam", rate=1.0, warmup=50)
    rates = [rate(step, options, 64) for step in range(1, 200)]
    assert rates.index(max(rates)) == 49
    assert max(rates) == pytest.approx(1 / 8 / math.sqrt(50))


@pytest.mark.parametrize(("step", "expected"), [(1, 0.01), (5, 0.05), (10, 0.1), (40, 0.05), (1000, 0.01)])
def test_inverse_square_root(step, expected):
    assert rate(step, Train(schedule="inverse_sqrt", rate=0.1, warmup=10), 8) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(5, 0.05), (10, 0.1), (35, 0.02 + 0.08 * (0.5 + math.sqrt(0.125))), (60, 0.06), (110, 0.02), (500, 0.02)],
)
def test_cosine(step, expected):
    options = Train(schedule="cosine", rate=0.1, warmup=10, max_steps=110, minimum_rate=0.02)
    assert rate(step, options, 8) == pytest.approx(expected)


def test_constant_and_plateau():
    assert rate(5, Train(schedule="constant", rate=0.1, warmup=10), 8) == pytest.approx(0.05)
    assert rate(500, Train(schedule="constant", rate=0.1, warmup=10), 8) == 0.1
    plateau = Train(schedule="plateau", rate=0.1, warmup=10, minimum_rate=0.03)
    assert rate(500, plateau, 8, 0.5) == 0.05
    assert rate(500, plateau, 8, 0.25) == 0.03


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "cosine", "plateau", "constant"])
def test_no_warm_up_is_allowed(schedule):
    options = Train(schedule=schedule, rate=0.1, warmup=0, max_steps=10)
    assert all(math.isfinite(rate(step, options, 8)) for step in range(1, 20))


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_only_matrices_decay(name, kind):
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    model[0].bias.requires_grad_(False)
    optimiser = make_optimiser(model, Train(optimiser=name, weight_decay=0.1, betas=(0.8, 0.9), epsilon=1e-7))
    assert type(optimiser) is kind
    decay = {id(item): group["weight_decay"] for group in optimiser.param_groups for item in group["params"]}
    assert decay == {id(model[0].weight): 0.1, id(model[1].weight): 0.0, id(model[1].bias): 0.0}
    assert optimiser.defaults["betas"] == (0.8, 0.9)
    assert optimiser.defaults["eps"] == 1e-7
    assert optimiser.defaults["fused"]


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_that_of_the_papers(nesterov):
    """v ← μ v + g;  w ← w − ε v, or with Nesterov's look ahead  w − ε (g + μ v)."""
    name = "nesterov" if nesterov else "sgd"
    model = nn.Linear(3, 1, bias=False)
    optimiser = make_optimiser(model, Train(optimiser=name, momentum=0.9, rate=0.1))
    weight, speed = model.weight.detach().clone(), torch.zeros(1, 3)
    for step in range(4):
        gradient = torch.tensor([[1.0, -2.0, step]])
        model.weight.grad = gradient.clone()
        optimiser.step()
        speed = 0.9 * speed + gradient
        weight -= 0.1 * (gradient + 0.9 * speed if nesterov else speed)
        torch.testing.assert_close(model.weight.detach(), weight)


def test_a_first_step_that_is_skipped_leaves_no_momentum():
    model = nn.Linear(3, 1, bias=False)
    optimiser = make_optimiser(model, Train(optimiser="nesterov", momentum=0.9, rate=0.1))
    before = model.weight.detach().clone()
    model.weight.grad = torch.full((1, 3), math.nan)
    optimiser.found_inf = torch.ones(())
    optimiser.step()
    assert torch.equal(model.weight, before)
    assert not optimiser.state[model.weight]["momentum_buffer"].any()


def test_adadelta_is_that_of_the_paper():
    """Zeiler 2012: E[g²], then w ← w − √(E[Δ²] + ε) / √(E[g²] + ε) · g, then E[Δ²]."""
    model = nn.Linear(2, 1, bias=False)
    optimiser = make_optimiser(model, Train(optimiser="adadelta", decay=0.95, epsilon=1e-6, rate=1.0))
    weight, squares, changes = model.weight.detach().clone(), torch.zeros(1, 2), torch.zeros(1, 2)
    for step in range(4):
        gradient = torch.tensor([[1.0, -2.0 - step]])
        model.weight.grad = gradient.clone()
        optimiser.step()
        squares = 0.95 * squares + 0.05 * gradient**2
        change = (changes + 1e-6).sqrt() / (squares + 1e-6).sqrt() * gradient
        changes = 0.95 * changes + 0.05 * change**2
        weight -= change
        torch.testing.assert_close(model.weight.detach(), weight)


def test_nothing_to_train_is_told():
    with pytest.raises(ConfigError, match="no parameters"):
        make_optimiser(nn.Linear(2, 2).requires_grad_(False), Train())


def step_once(model, optimiser, seed):
    torch.manual_seed(seed)
    optimiser.zero_grad()
    model(torch.rand(2, 3)).square().sum().backward()
    optimiser.step()


KEPT = {
    "adam": {"step", "exp_avg", "exp_avg_sq"},
    "adamw": {"step", "exp_avg", "exp_avg_sq"},
    "sgd": {"momentum_buffer"},
    "nesterov": {"momentum_buffer"},
    "adadelta": {"step", "square_avg", "acc_delta"},
}


@pytest.mark.parametrize("name", KEPT)
def test_state_comes_back_bit_identical(name):
    model, other = nn.Linear(3, 4), nn.Linear(3, 4)
    options = Train(optimiser=name, momentum=0.9)
    first, second = make_optimiser(model, options), make_optimiser(other, options)
    step_once(model, first, 1)
    step_once(model, first, 2)
    tensors = {name: tensor.clone() for name, tensor in optimiser_tensors(first, model).items()}
    assert set(tensors) == {f"{parameter}/{key}" for parameter in ("weight", "bias") for key in KEPT[name]}
    other.load_state_dict(model.state_dict())
    load_optimiser(second, other, tensors)
    step_once(model, first, 3)
    step_once(other, second, 3)
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)
    assert second.state[other.weight].get("step", 3) == 3


def test_state_of_another_model_is_refused():
    model = nn.Linear(3, 4)
    optimiser = make_optimiser(model, Train())
    with pytest.raises(ModelError, match="unknown parameter 'weights'"):
        load_optimiser(optimiser, model, {"weights/step": torch.ones(())})
    with pytest.raises(ModelError, match="expected \\[4, 3\\]"):
        load_optimiser(optimiser, model, {"weight/exp_avg": torch.ones(3)})
