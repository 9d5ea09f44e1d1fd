"""Where training gets its random numbers: from torch's generator, or from one that belongs to the thread.

Parts of a batch are computed in threads side by side. Each has a generator of its own, or what a part draws would
depend on which thread was faster. Whatever is drawn in training, on any device, is drawn through this file.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import local

import torch
from torch import Tensor

_own = local()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """This thread draws from the given generator."""
    before = present()
    _own.generator = generator
    try:
        yield
    finally:
        _own.generator = before


def present() -> torch.Generator | None:
    """The generator of this thread; None: torch's own."""
    return getattr(_own, "generator", None)


def uniform(shape: Sequence[int], device: torch.device) -> Tensor:
    """Numbers from 0 to 1."""
    return torch.rand(*shape, device=device, generator=present())


def draw(among: Tensor, number: Tensor) -> Tensor:
    """So many of the places of each row that are True, any of them with the same chance: [N, T], [N] → [N, T]."""
    order = uniform(among.shape, among.device).masked_fill(~among, 2).argsort(1)  # the others come last
    return among & (order.argsort(1) < number[:, None])


def gumbel(noise: Tensor) -> Tensor:
    """From numbers from 0 to 1, what to add to log-probabilities so that the largest is a draw by them."""
    return -(-noise.clamp_min(1e-20).log()).clamp_min(1e-20).log()


def choose_places(number: int, rate: float) -> Tensor:
    """Some of the places 0 … number − 1, each with the chance `rate`, in ascending order [int64, on the CPU].

    Drawing how far it is to the next one costs less than drawing for each place whether it is one:
    distance d has the chance rate · (1 − rate)^(d−1).
    """
    table = _distances(rate)
    likely = int(number * rate + 6 * math.sqrt(number * rate)) + 16  # enough, but for one time in a billion
    found, last = [], -1
    while last < number:
        words = torch.empty(-(-likely // 4), dtype=torch.int64).random_(-(2**63), None, generator=present())
        places = table.index_select(0, words.view(torch.uint16).to(torch.int32)).cumsum(0).add_(last)
        found.append(places)
        last = int(places[-1])
    places = found[0] if len(found) == 1 else torch.cat(found)
    return places[: int(torch.searchsorted(places, number))]


@lru_cache(maxsize=16)
def _distances(rate: float) -> Tensor:
    """The distance that each number of 16 bits stands for."""
    share = (torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16
    return (share.log() / math.log1p(-rate)).clamp_max(2**40).floor().long() + 1
