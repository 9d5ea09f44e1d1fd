"""Memory is exact and grows as the paper says; rounds are interleaved; nothing here depends on a clock."""

import time

import pytest
import torch

from regard.study import cost
from regard.study.cost import (
    MODES,
    RUN,
    Case,
    Cost,
    available_bytes,
    calls_needed,
    in_turn,
    measure,
    peak_bytes,
    split_by_memory,
)
from regard.study.fit import fit_exponent
from regard.study.subject import Size, make_operation


def test_the_peak_is_what_was_held_together():
    def run() -> None:
        kept = torch.empty(1000)
        for _ in range(3):
            torch.empty(500)
        del kept
        torch.empty(1200)

    run()
    assert peak_bytes(run) == 4 * 1500
    assert peak_bytes(lambda: None) == 0


def memory(name: str, mode: str, lengths: tuple[int, ...]) -> dict[int, int]:
    found = {}
    for n in lengths:
        operation = make_operation(name, Size(n, 64))
        RUN[mode](operation)
        found[n] = peak_bytes(lambda operation=operation: RUN[mode](operation))
    return found


LENGTHS = (512, 1024, 2048)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("restricted alone", 0.9, 1.15), ("unfused alone", 1.8, 2.05), ("attention alone", 0, 1.15)],
)
def test_memory_of_attention_alone(name, low, high, mode):
    found = memory(name, mode, LENGTHS)
    assert low <= fit_exponent(list(found.items())).exponent <= high
    assert memory(name, mode, LENGTHS[:1]) == {512: found[512]}  # counted, so the same every time


@pytest.mark.parametrize("name", ["recurrence", "convolution", "dilated"])
def test_memory_of_the_others_is_linear_at_most(name):
    assert fit_exponent(list(memory(name, "gradient", LENGTHS[:2]).items())).exponent <= 1.05


def test_a_gradient_is_made_for_inputs_and_weights(monkeypatch):
    operation = make_operation("convolution", Size(8, 4))
    asked = []
    gradient = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *rest: asked.extend(rest[1]) or gradient(*rest))
    RUN["gradient"](operation)
    assert len(asked) == 3
    RUN["forward"](operation)
    assert len(asked) == 3


def test_a_short_operation_is_called_often():
    calls = []
    number = calls_needed(lambda: calls.append(1), 0.001)
    assert 2 < number <= cost.MOST_CALLS
    assert calls_needed(lambda: time.sleep(0.003), 0.001) == 1


def test_every_round_has_every_case_once_and_begins_elsewhere():
    keys = [(Case(name, Size(4, 4)), mode) for name in ("a", "b", "c") for mode in MODES]
    found = list(in_turn(keys, 3))
    rounds = [found[start : start + 6] for start in (0, 6, 12)]
    assert all(set(each) == set(keys) for each in rounds)
    assert len({each[0] for each in rounds}) == 3


def test_measure():
    cases = [Case("convolution", Size(8, 4)), Case("restricted alone", Size(70, 4))]
    ticks = []
    found = measure(cases, 3, 1e-5, lambda: ticks.append(1))
    assert list(found) == cases
    assert len(ticks) == 2 * 2 * (3 + 1)
    for modes in found.values():
        assert set(modes) == set(MODES)
        assert all(len(each.rounds) == 3 and each.seconds > 0 and each.bytes > 0 for each in modes.values())
    convolution = found[cases[0]]
    assert convolution["gradient"].bytes > convolution["forward"].bytes


def test_median_and_spread():
    assert Cost((4.0, 1.0, 2.0), 1).seconds == 2
    assert Cost((4.0, 1.0, 2.0), 1).spread == 1.5


def test_what_would_not_fit_is_left_out(monkeypatch):
    small, large = Case("unfused", Size(100, 8, 2)), Case("unfused alone", Size(1000, 8))
    fused = Case("attention", Size(1000, 8))
    monkeypatch.setattr(cost, "available_bytes", lambda: 2 * 5 * 4 * 1000**2 - 1)
    assert split_by_memory([small, large, fused]) == ([small, fused], [large])
    monkeypatch.setattr(cost, "available_bytes", lambda: None)
    assert split_by_memory([small, large, fused]) == ([small, large, fused], [])


def test_the_system_tells_its_memory_or_nothing():
    found = available_bytes()
    assert found is None or found > 0


def test_a_container_may_have_less(monkeypatch, tmp_path):
    monkeypatch.setattr(cost, "CONTAINER", tmp_path)
    whole = available_bytes()
    if whole is None:
        pytest.skip("the system does not tell its memory")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert available_bytes() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes() > 600
