"""All words at once: the places a model proposes are filled, and the best of several candidates is taken.

With several passes (mask-predict, Ghazvininejad 2019) the least certain places are hidden and filled again: of T places
T · (1 − i/n) after pass i of n.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.config import Search, length_penalty
from regard.data.batch import PAD, UNK, Hypothesis, Pass, Writing
from regard.search.best import NATS, most_probable
from regard.search.filters import Request, check_number
from regard.search.sample import generator

ROWS = 256  # places whose logits are made at a time
Step = tuple[Tensor, Tensor, Tensor]  # after a pass: tokens [N,T], their log-probabilities, which it has filled


@dataclass(frozen=True)
class Filler:
    """All that a parallel search knows of a model."""

    # candidates of a sentence, generators, whether fertilities are means → places, candidate by candidate
    propose: Callable[[int, Sequence[Any], bool], Any]
    fill: Callable[[Any], Tensor]  # places → what stands there: vectors [N,T,D]
    output: Callable[[Tensor], Tensor]  # vectors [P,D] → logits [P,V] in bits
    hide: Callable[[Any, Tensor, Tensor], Any] | None  # places, tokens [N,T], which are hidden → places to fill again
    read: Callable[[Sequence[int]], list[int]]  # the tokens of filled places → ids of an output
    copies: bool = True  # whether places hold source tokens before they are filled
    blank: int | None = None  # the token that stands for "nothing here", where there is one


@torch.inference_mode()
def parallel_search(filler: Filler, request: Request, options: Search) -> list[list[Hypothesis]]:
    """The outputs of every sentence, best first."""
    canvas, steps = write(filler, request, options)
    return [[output for output, _ in found] for found in rank(filler, canvas, steps[-1], request, options)]


@torch.inference_mode()
def trace(filler: Filler, request: Request, options: Search) -> list[dict[tuple[int, ...], Writing]]:
    """How each output of every sentence came about, by its ids."""
    canvas, steps = write(filler, request, options)
    return [
        {output.ids: make_writing(filler, canvas, steps, row) for output, row in found}
        for found in rank(filler, canvas, steps[-1], request, options)
    ]


def write(filler: Filler, request: Request, options: Search) -> tuple[Any, list[Step]]:
    """The places of all candidates, and how they stood after each pass."""
    number = options.candidates
    seeds = request.seeds or list(range(len(request)))
    generators = [[generator(options.seed, seed, candidate) for candidate in range(1, number)] for seed in seeds]
    canvas = filler.propose(number, generators, options.mean_fertility)
    steps = [(*choose(filler, canvas), canvas.mask)]
    passes = options.passes if filler.hide else 1
    for done in range(1, passes):
        hidden = (canvas.length * (passes - done) // passes).clamp_min(1)
        steps.append(refine(filler, canvas, *steps[-1][:2], hidden))
    return canvas, steps


def rank(
    filler: Filler, canvas: Any, step: Step, request: Request, options: Search
) -> list[list[tuple[Hypothesis, int]]]:
    """The different outputs of every sentence, best first, each with the row of its candidate."""
    tokens, prices, _ = step
    number = len(canvas.length) // len(request)  # candidates of a sentence; a model may have fewer than were asked for
    lines, lengths, totals = tokens.tolist(), canvas.length.tolist(), (prices.sum(1) + canvas.price).tolist()
    found: list[list[tuple[Hypothesis, int]]] = []
    for sentence, limit in enumerate(request.limits):
        outputs: dict[tuple[int, ...], tuple[Hypothesis, int]] = {}  # several candidates may say the same
        for row in range(sentence * number, (sentence + 1) * number):
            ids, price = tuple(filler.read(lines[row][: lengths[row]])), totals[row]
            check_number(price)
            cut = len(ids) > limit
            ids = ids[:limit]
            output = Hypothesis(ids, price / length_penalty(len(ids), options), price, finished=not cut)
            if ids not in outputs or outputs[ids][0].score < output.score:
                outputs[ids] = output, row
        found.append(sorted(outputs.values(), key=lambda each: -each[0].score)[: options.nbest])
    return found


def make_writing(filler: Filler, canvas: Any, steps: list[Step], row: int) -> Writing:
    """How one candidate came about."""
    places = int(canvas.length[row])
    passes = [
        Pass(
            tuple(tokens[row, :places].tolist()),
            tuple(prices[row, :places].exp().tolist()),
            tuple(fresh[row, :places].tolist()),
        )
        for tokens, prices, fresh in steps
    ]
    fertility = None if canvas.fertility is None else tuple(canvas.fertility[row].tolist())
    return Writing(tuple(canvas.tokens[row, :places].tolist()), filler.copies, fertility, tuple(passes))


def choose(filler: Filler, canvas: Any) -> tuple[Tensor, Tensor]:
    """The most probable token of every place, and its log-probability; nothing where there is no place."""
    hidden = filler.fill(canvas)
    if len(hidden) == 1:  # such a row has all its places
        words, prices = choose_words(filler, hidden[0])
        return words[None], prices[None]
    mask = canvas.mask
    words, prices = choose_words(filler, hidden[mask])
    tokens = words.new_full(mask.shape, PAD).masked_scatter_(mask, words)
    return tokens, prices.new_zeros(mask.shape).masked_scatter_(mask, prices)


def choose_words(filler: Filler, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The same of single places [P,D], some of them at a time."""
    if len(hidden) > ROWS:
        words, prices = zip(*(choose_words(filler, part) for part in hidden.split(ROWS)), strict=True)
        return torch.cat(words), torch.cat(prices)
    logits = filler.output(hidden).float()
    first = UNK if filler.blank is None else 0  # a model with one has logits that rule out PAD, BOS and EOS
    words = most_probable(logits[:, first:]) + first
    share = logits.sub_(logits.gather(1, words[:, None])).exp2_().sum(1)  # of all tokens, a best word being 1
    return words, share.log2_().mul_(-NATS)


def refine(filler: Filler, canvas: Any, tokens: Tensor, prices: Tensor, hidden: Tensor) -> Step:
    """Hide so many of the least certain places of each candidate, and fill them again."""
    assert filler.hide is not None
    certain = prices.masked_fill(~canvas.mask, float("inf"))
    rank = certain.argsort(-1).argsort(-1)
    again = (rank < hidden[:, None]) & canvas.mask
    new_tokens, new_prices = choose(filler, filler.hide(canvas, tokens, again))
    return torch.where(again, new_tokens, tokens), torch.where(again, new_prices, prices), again
