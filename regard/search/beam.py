"""Beam search: keep the K most probable beginnings, extend each by every word, keep the K best again.

At each step the 2K best candidates are taken; those among the first K that end leave as finished outputs, and
the K best that do not end go on. A sentence is done

    bound   when no living beam can still enter the n best: log p only falls, so a beam's score cannot get
            above  log p / penalty(longest length)
    count   when K outputs are finished (what CTranslate2 does)

and leaves the batch with the next quarter that is. The search knows logits and an opaque state, neither model nor text.
"""

import math
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.config import Search, length_penalty
from regard.data.batch import BOS, EOS, PAD, Hypothesis
from regard.search.best import best_words, priced
from regard.search.filters import NEVER, Decoder, Request, check_number, remaining, restrict


@torch.inference_mode()
def beam_search(decoder: Decoder, state: Any, request: Request, options: Search) -> list[list[Hypothesis]]:
    """The n best outputs of every sentence; `state` has one row for each."""
    width, device = options.beam, decoder.device
    found: list[list[Hypothesis]] = [[] for _ in range(len(request))]
    rows = list(range(len(request)))  # the sentence of each row of scores
    over = [False] * len(rows)
    scores = torch.zeros(len(rows), 1, device=device)  # there is one beginning before the first word, and K after it
    history = torch.empty(len(rows), 0, dtype=torch.long, device=device)
    tokens = torch.full((len(rows), 1), BOS, device=device)
    while True:
        beams = scores.size(1)
        logits, state = decoder.step(tokens, state)
        prices, total = priced(logits.float())
        restrict(prices, history, [sentence for sentence in rows for _ in range(beams)], request, options)
        candidates = best_words(prices, scores - total.view_as(scores), 2 * width)
        best, parents, chosen = (
            complete(each.tolist(), 2 * width, none) for each, none in zip(candidates, (NEVER, 0, PAD), strict=True)
        )
        lines = history.view(len(rows), beams, -1)
        finish(found, rows, over, best, parents, chosen, lines, request, options)
        alive = [living(words, width) for words in chosen]
        for row, places in enumerate(alive):
            top = best[row][places[0]]
            over[row] = over[row] or done(found[rows[row]], top, request.limits[rows[row]], options)
        if all(over):
            break
        stay = remaining(over)
        kept = stay if stay else range(len(rows))
        scores = torch.tensor([[best[row][place] for place in alive[row]] for row in kept], device=device)
        past = torch.tensor([row * beams + parents[row][place] for row in kept for place in alive[row]], device=device)
        tokens = torch.tensor([[chosen[row][place]] for row in kept for place in alive[row]], device=device)
        history = torch.cat([history.index_select(0, past), tokens], 1)
        state = decoder.select(state, past, torch.tensor(stay, device=device) if stay else None)
        if stay:
            rows, over = [rows[row] for row in stay], [False] * len(stay)
    return [sorted(outputs, key=lambda output: -output.score)[: options.nbest] for outputs in found]


def complete(lists: list[list[Any]], number: int, none: float) -> list[list[Any]]:
    """So many candidates of each sentence; a small vocabulary has fewer, and those that are missing cannot win."""
    return [each + [none] * (number - len(each)) for each in lists]


def living(words: list[int], width: int) -> list[int]:
    """Of the 2K candidates of a sentence, of which at most K end, the places of the K best that do not."""
    return [place for place, word in enumerate(words) if word != EOS][:width]


def finish(
    found: list[list[Hypothesis]],
    rows: list[int],
    over: list[bool],
    best: list[list[float]],
    parents: list[list[int]],
    chosen: list[list[int]],
    lines: Int[Tensor, "B K T"],
    request: Request,
    options: Search,
) -> None:
    """Candidates among the first K that end become outputs."""
    width, length = options.beam, lines.size(2)
    for row, words in enumerate(chosen):
        for place in [place for place in range(width) if words[place] == EOS and not over[row]]:
            log_probability = best[row][place]
            if not math.isfinite(log_probability):
                continue
            ids = tuple(lines[row, parents[row][place]].tolist())
            score = log_probability / length_penalty(length, options)
            cut = length >= request.limits[rows[row]]
            found[rows[row]].append(Hypothesis(ids, score, log_probability, finished=not cut))


def done(outputs: list[Hypothesis], top: float, limit: int, options: Search) -> bool:
    """Whether a sentence whose best living beam has log-probability `top` needs no further step."""
    check_number(top)
    if top == NEVER:
        return True
    if options.stop == "count":
        return len(outputs) >= options.beam
    if len(outputs) < options.nbest:
        return False
    worst = sorted((output.score for output in outputs), reverse=True)[options.nbest - 1]
    return worst >= top / length_penalty(limit, options)
