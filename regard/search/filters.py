"""What a search may not choose: filters set prices to −∞ and leave the others as the model gave them.

Nothing is renormalised, so the score of an output is the score the model gives it by teacher forcing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.config import Search
from regard.data.batch import EOS
from regard.errors import ModelError

NEVER = float("-inf")


@dataclass(frozen=True)
class Decoder:
    """All that a search knows of a model: two functions over an opaque state, and where its tensors live."""

    step: Callable[[Tensor, Any], tuple[Tensor, Any]]  # tokens [N,T], state → their last logits [N,V] in bits, state
    select: Callable[[Any, Tensor, Tensor | None], Any]  # state, rows, sentences (None: all stay) → state
    device: torch.device


@dataclass(frozen=True)
class Request:
    """The sentences of one search: how long each output may get, how it must begin, and its own random seed."""

    limits: Sequence[int]  # tokens without EOS
    prefixes: Sequence[Sequence[int]] | None = None
    seeds: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.limits)


def check_number(log_probability: float) -> None:
    """A damaged model must not search for ever, nor return a score that is no number."""
    if math.isnan(log_probability):
        raise ModelError("the model gives probabilities that are not numbers: its weights are damaged")


def restrict(scores: Tensor, history: Tensor, sentences: Sequence[int], request: Request, options: Search) -> Tensor:
    """Apply all filters to prices [N,V] in place; row r belongs to `sentences[r]`, history is [N,t]."""
    step = history.size(1)
    forced = forced_tokens(step, sentences, request)
    rows, tokens = list(forced), list(forced.values())
    prices = scores[rows, tokens] if forced else None  # as the model gives them
    ends = scores[:, EOS].clone() if options.no_repeat else None
    if step < options.minimum_length:
        scores[:, : EOS + 1] = NEVER
    else:
        scores[:, :EOS] = NEVER  # PAD and BOS
    if ends is not None and step >= options.no_repeat:
        forbid_repeats(scores, history, options.no_repeat)
        stuck = scores.amax(-1) == NEVER
        scores[stuck, EOS] = ends[stuck]  # an output that cannot go on ends, even below the minimum length
    if prices is not None:
        scores[rows] = NEVER
        scores[rows, tokens] = prices
    return scores


def remaining(over: Sequence[bool]) -> list[int] | None:
    """The rows to go on with when some are over; None while at most a quarter are, since leaving costs a copy."""
    alive = [row for row, end in enumerate(over) if not end]
    return None if 4 * len(alive) >= 3 * len(over) else alive


def forced_tokens(step: int, sentences: Sequence[int], request: Request) -> dict[int, int]:
    """Rows with only one choice, which no filter takes away: the end at the limit, before it the given prefix."""
    if request.prefixes is None and step < min(request.limits):
        return {}
    forced = {}
    for row, sentence in enumerate(sentences):
        if step >= request.limits[sentence]:
            forced[row] = EOS
        elif request.prefixes is not None and step < len(request.prefixes[sentence]):
            forced[row] = request.prefixes[sentence][step]
    return forced


def forbid_repeats(scores: Tensor, history: Tensor, size: int) -> None:
    """No n-gram twice: forbid each token that followed the last size−1 tokens before."""
    grams = history.unfold(1, size, 1)  # [N, t−size+1, size]
    last = history[:, history.size(1) - size + 1 :]
    same = (grams[:, :, :-1] == last[:, None]).all(-1)
    for row, position in same.nonzero().tolist():
        scores[row, grams[row, position, -1]] = NEVER
