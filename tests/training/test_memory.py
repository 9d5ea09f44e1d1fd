"""Memory goes back to the system, that of a large process."""

import sys

import pytest
import torch

from regard.training import memory
from regard.training.memory import give_back, resident

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def test_only_a_large_process(monkeypatch):
    monkeypatch.setattr(memory, "MUCH", 10**15)
    assert not give_back()
    monkeypatch.setattr(memory, "MUCH", 0)
    assert give_back()


def test_holes_in_the_heap_are_given_back(monkeypatch):
    monkeypatch.setattr(memory, "MUCH", 0)
    blocks = [torch.ones(30_000) for _ in range(1000)]  # each too small for a mapping of its own
    kept = blocks[::50]
    del blocks
    before = resident()
    give_back()
    assert before - resident() > 50_000_000
    assert all(block.sum() == 30_000 for block in kept)
