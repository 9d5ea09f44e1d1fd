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
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from regard.config import Search, length_penalty
from regard.data.batch import BOS, EOS, PAD, Hypothesis
from regard.search.best import NATS, best_words, log_total
from regard.search.filters import NEVER, Decoder, Request, check_number, remaining, restrict


@torch.inference_mode()
def beam_search(decoder: Decoder, state: Any, request: Request, options: Search) -> list[list[Hypothesis]]:
    """The n best outputs of every sentence; `state` has one row for each."""
    width, device = options.beam, decoder.device
    found: list[list[Hypothesis]] = [[] for _ in range(len(request))]
    rows = list(range(len(request)))  # the sentence of each row of scores
    over = [False] * len(rows)
    scores = torch.zeros(len(rows), 1, device=device)  # in bits; one beginning before the first word, and K after it
    history = torch.empty(len(rows), 0, dtype=torch.long, device=device)
    tokens = torch.full((len(rows), 1), BOS, device=device)
    while True:
        beams = scores.size(1)
        logits, state = decoder.step(tokens, state)
        prices = logits.float()
        paid = scores - log_total(prices).view_as(scores)
        restrict(prices, history, [sentence for sentence in rows for _ in range(beams)], request, options)
        best, parents, chosen = complete(best_words(prices, paid, 2 * width), 2 * width)
        ends = chosen == EOS
        lines = history.view(len(rows), beams, -1)
        for row, place in ends[:, :width].nonzero().tolist():  # row by row, the best first
            if not over[row]:
                line, log_probability = lines[row, parents[row, place]], float(best[row, place]) * NATS
                found[rows[row]] += finished(line, log_probability, request.limits[rows[row]], options)
        alive = living(ends, width)
        scores = best.gather(1, alive)
        for row, top in enumerate(scores[:, 0].tolist()):
            over[row] = over[row] or done(found[rows[row]], top * NATS, request.limits[rows[row]], options)
        if all(over):
            break
        past = parents.gather(1, alive) + torch.arange(0, len(history), beams, device=device)[:, None]
        tokens, kept = chosen.gather(1, alive), None
        if stay := remaining(over):
            kept = torch.tensor(stay, device=device)
            scores, past, tokens = scores[kept], past[kept], tokens[kept]
            rows, over = [rows[row] for row in stay], [False] * len(stay)
        past, tokens = past.flatten(), tokens.view(-1, 1)
        history = torch.cat([history.index_select(0, past), tokens], 1)
        state = decoder.select(state, past, kept)
    return [sorted(outputs, key=lambda output: -output.score)[: options.nbest] for outputs in found]


def complete(candidates: tuple[Tensor, Tensor, Tensor], number: int) -> tuple[Tensor, Tensor, Tensor]:
    """So many candidates of each sentence; a small vocabulary has fewer, and those that are missing cannot win."""
    missing = number - candidates[0].size(1)
    if not missing:
        return candidates
    best, parents, chosen = candidates
    return F.pad(best, (0, missing), value=NEVER), F.pad(parents, (0, missing)), F.pad(chosen, (0, missing), value=PAD)


def living(ends: Bool[Tensor, "B C"], width: int) -> Int[Tensor, "B K"]:
    """Of the 2K candidates of each sentence, of which at most K end, the places of the K best that do not."""
    return ends.byte().sort(dim=1, stable=True).indices[:, :width]


def finished(line: Int[Tensor, " T"], log_probability: float, limit: int, options: Search) -> list[Hypothesis]:
    """A line that ends here as an output; none if it cannot be."""
    if not math.isfinite(log_probability):
        return []
    score = log_probability / length_penalty(len(line), options)
    return [Hypothesis(tuple(line.tolist()), score, log_probability, finished=len(line) < limit)]


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
