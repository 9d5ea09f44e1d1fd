"""The sweeps, what is checked of the options, and what a study tells."""

import pytest
import torch

from regard.config import validate
from regard.errors import ConfigError
from regard.nn.attention import masked_softmax
from regard.nn.self_attention import band
from regard.study.cost import Case, Cost
from regard.study.layers import QUICK, Settings, masked_difference, plan, study, tell_sweep
from regard.study.subject import SUBJECTS, Size, make_operation


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lengths": [512, 256]}, "lengths must be two or more ascending numbers, found 512, 256"),
        ({"lengths": [512]}, "two or more ascending numbers, found 512"),
        ({"operator_lengths": [8, 8]}, "operator_lengths must be two or more"),
        ({"lengths": [0, 8]}, "lengths"),
        ({"width": 30}, "width 30 cannot be divided into 4 heads"),
        ({"neighbourhood": 31}, "neighbourhood must be even, half on either side, found 31"),
        ({"kernel": 1}, "kernel must be above 1"),
        ({"cell": "mamba"}, "cell"),
        ({"kernal": 3}, "did you mean 'kernel'"),
    ],
)
def test_wrong_settings(values, message):
    with pytest.raises(ConfigError, match=message):
        validate(Settings, values, "layers")


def test_the_defaults_are_those_of_the_claim():
    """Attention alone at d_k = 64, n from 512 to 8192, r = 32."""
    sweep = plan(Settings())["operator"]
    assert list(sweep.sizes) == [512, 1024, 2048, 4096, 8192]
    assert {(size.width, size.heads, size.neighbourhood) for size in sweep.sizes.values()} == {(64, 1, 32)}
    assert set(sweep.subjects) == {"attention alone", "unfused alone", "restricted alone"}


@pytest.mark.parametrize(
    ("width", "heads", "widths"), [(256, 4, [64, 128, 256, 512]), (12, 3, [3, 6, 12, 24]), (8, 8, [8, 16])]
)
def test_widths_can_be_divided_into_the_heads(width, heads, widths):
    assert Settings(width=width, heads=heads).widths == widths


def test_one_number_changes_in_a_sweep():
    for name, sweep in plan(Settings()).items():
        changing = {"n": "length", "d": "width", "k": "kernel", "r": "neighbourhood"}[sweep.by]
        for x, size in sweep.sizes.items():
            assert getattr(size, changing) == x, name
        others = {
            tuple((key, value) for key, value in vars(size).items() if key != changing) for size in sweep.sizes.values()
        }
        assert len(others) == 1, name
        assert set(sweep.subjects) <= set(SUBJECTS)


@pytest.mark.parametrize(("length", "neighbourhood"), [(64, 32), (200, 32), (130, 6)])
def test_restricted_attention_equals_a_masked_square(length, neighbourhood):
    sweep = plan(Settings(operator_lengths=(length, length + 1), neighbourhood=neighbourhood))["operator"]
    found = masked_difference(sweep, [])
    assert found["lengths"] == [length, length + 1]
    assert found["largest"] <= 1e-5
    operation = make_operation("restricted alone", sweep.sizes[length])
    query, keys, values = operation.inputs
    allowed = band(length, length, 0, neighbourhood // 2, neighbourhood // 2)
    by_hand = masked_softmax(query @ keys.mT / 8, allowed) @ values
    torch.testing.assert_close(operation.function(query, keys, values), by_hand, atol=1e-5, rtol=0)


def test_a_difference_would_be_seen(monkeypatch):
    sweep = plan(Settings(operator_lengths=(40, 64)))["operator"]
    monkeypatch.setattr(
        "regard.study.layers.band", lambda n, *rest: torch.ones(n, n, dtype=torch.bool).tril(3).triu(-3)
    )
    assert masked_difference(sweep, [])["largest"] > 1e-2
    assert masked_difference(sweep, list(sweep.sizes.values())) == {"largest": 0.0, "lengths": []}


def test_a_case_that_was_left_out_has_no_point():
    sweep = plan(Settings(**QUICK))["operator"]
    small = sweep.sizes[128]
    costs = {Case("unfused alone", small): {mode: Cost((1.0,), 5) for mode in ("forward", "gradient")}}
    told = tell_sweep(sweep, costs)["layers"]["unfused alone"]["forward"]
    assert [point["at"] for point in told["points"]] == [128]
    assert told["time"] is None
    assert told["memory"] is None


def test_a_study():
    tiny = Settings(
        lengths=(4, 8), operator_lengths=(8, 40), key_width=4, width=8, heads=2, kernel=2, neighbourhood=4, length=8,
        kernels=(2, 3), neighbourhoods=(2, 4), repeat=1, least_seconds=1e-6, path_lengths=(4, 8), path_kernels=(2, 3),
        path_neighbourhoods=(2, 4), step_lengths=(4, 8),
    )  # fmt: skip
    ticks = []
    result = study(tiny, lambda *what: ticks.append(what))
    assert set(result["sweeps"]) == {"operator", "length", "width", "kernel", "neighbourhood"}
    assert result["skipped"] == []
    assert result["paths"]["recurrence"]["law"]["name"] == "n"
    cases = {case for sweep in plan(tiny).values() for case in sweep.cases}
    assert [what for what in ticks if what[0] == "time and memory"][-1] == (
        "time and memory",
        4 * len(cases),
        4 * len(cases),
    )
    assert isinstance(next(iter(cases)).size, Size)


def test_laws_of_the_paper_are_found(made_layers):
    paper = {"attention": "1", "recurrence": "n", "convolution": "n/k", "dilated": "log_k n", "restricted": "n/r"}
    assert {name: path["law"]["name"] for name, path in made_layers["paths"].items()} == paper
    assert {name: SUBJECTS[name].path for name in paper} == paper
    steps = {name: found["law"] for name, found in made_layers["steps"].items()}
    assert steps == {name: "n" if name == "recurrence" else "1" for name in paper}
