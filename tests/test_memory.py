"""Memory goes back to the system, that of a large process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import memory
from regard.memory import give_back, resident

PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@pytest.mark.parametrize(("keeps", "limit", "other"), [(False, "MUCH", "KEPT"), (True, "KEPT", "MUCH")])
def test_only_a_large_process(keeps, limit, other, monkeypatch):
    monkeypatch.setattr(memory, "_keeps", keeps)
    monkeypatch.setattr(memory, limit, 10**15)
    monkeypatch.setattr(memory, other, 0)
    assert not give_back()
    monkeypatch.setattr(memory, limit, 0)
    assert give_back()


def test_holes_in_the_heap_are_given_back(monkeypatch):
    monkeypatch.setattr(memory, "_keeps", False)
    monkeypatch.setattr(memory, "MUCH", 0)
    blocks = [torch.ones(30_000) for _ in range(1000)]  # each too small for a mapping of its own
    kept = blocks[::50]
    del blocks
    before = resident()
    give_back()
    assert before - resident() > 50_000_000
    assert all(block.sum() == 30_000 for block in kept)


def test_what_is_freed_stays_with_the_process():
    """In a process of its own: the options of the C library hold for all that comes after."""
    script = (
        "import resource, torch\n"
        "from regard.memory import keep_memory\n"
        "assert keep_memory()\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "def ask(): return [torch.ones(2**20 + 1000 * i) for i in range(20)]\n"
        "ask(); ask(); before = faults(); ask(); print(faults() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2000, "20 blocks of 1024 pages"


@pytest.mark.skipif(
    not Path(PAGES).exists() or "[never]" in Path(PAGES).read_text(encoding="ascii"), reason="no huge pages here"
)
def test_what_is_asked_for_lies_on_huge_pages():
    """Of a block from the heap, and only what is used: in a process of its own, as above."""
    script = (
        "import torch\n"
        "from regard.memory import resident, use_huge_pages\n"
        "torch.ones(1); before = resident()\n"
        "assert use_huge_pages() and use_huge_pages()\n"
        "assert resident() - before < 2**24\n"
        "block = torch.ones(2**22)\n"
        "facts = open('/proc/self/smaps_rollup').read().split()\n"
        "print(facts[facts.index('AnonHugePages:') + 1])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 2**12, "kB, of 2^14"
