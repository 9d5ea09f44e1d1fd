"""Beam search: keep the K most probable beginnings, extend each by every word, keep the K best again.

At each step the 2K best candidates are taken; those among the first K that end leave as finished outputs, and
the K best that do not end go on. A sentence is done

    bound   when no living beam can still enter the n best: log p only falls, so a beam's score cannot get
            above  log p / penalty(longest length)
    count   when K outputs are finished (what CTranslate2 does)

and leaves the batch. The search knows logits and an opaque state, neither model nor text.
"""

from typing import Any

import torch
from torch import Tensor

from regard.config import Search
from regard.data.batch import BOS, EOS, Hypothesis
from regard.search.filters import NEVER, Decoder, Request, check_number, length_penalty, restrict


@torch.inference_mode()
def beam_search(decoder: Decoder, state: Any, request: Request, options: Search) -> list[list[Hypothesis]]:
    """The n best outputs of every sentence; `state` has one row for each."""
    width, device = options.beam, decoder.device
    found: list[list[Hypothesis]] = [[] for _ in range(len(request))]
    alive = list(range(len(request)))
    state = decoder.select(state, torch.arange(len(alive), device=device).repeat_interleave(width), None)
    scores = torch.full((len(alive), width), NEVER, device=device)
    scores[:, 0] = 0
    history = torch.empty(len(alive) * width, 0, dtype=torch.long, device=device)
    tokens = torch.full((len(alive) * width, 1), BOS, device=device)
    while alive:
        logits, state = decoder.step(tokens, state)
        prices = logits.float().log_softmax(-1)
        restrict(prices, history, [sentence for sentence in alive for _ in range(width)], request, options)
        best, parents, chosen = candidates(scores, prices, width)
        finish(found, alive, best, parents, chosen, history, request, options)
        scores, order = living(best, chosen, width)
        stay = [
            row
            for row, sentence in enumerate(alive)
            if not done(found[sentence], float(scores[row, 0]), request.limits[sentence], options)
        ]
        kept = torch.tensor(stay, dtype=torch.long, device=device)
        shrink = len(stay) < len(alive)
        alive = [alive[row] for row in stay]
        if not alive:
            break
        rows = (kept[:, None] * width + parents.gather(1, order)[kept]).flatten()
        tokens = chosen.gather(1, order)[kept].view(-1, 1)
        scores = scores[kept]
        history = torch.cat([history.index_select(0, rows), tokens], 1)
        state = decoder.select(state, rows, kept if shrink else None)
    return [sorted(outputs, key=lambda output: -output.score)[: options.nbest] for outputs in found]


def candidates(scores: Tensor, prices: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The 2K best extensions of each sentence [B,2K]: log-probability, beam they extend, token."""
    vocabulary = prices.size(-1)
    total = scores[:, :, None] + prices.view(len(scores), width, vocabulary)
    best, where = total.flatten(1).topk(2 * width, 1)
    return best, where // vocabulary, where % vocabulary


def living(best: Tensor, chosen: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Of the 2K candidates, of which at most K end, the K best that do not: log-probability and place [B,K]."""
    order = (chosen == EOS).to(torch.uint8).sort(dim=1, stable=True).indices[:, :width]
    return best.gather(1, order), order


def finish(
    found: list[list[Hypothesis]],
    alive: list[int],
    best: Tensor,
    parents: Tensor,
    chosen: Tensor,
    history: Tensor,
    request: Request,
    options: Search,
) -> None:
    """Candidates among the first K that end become outputs."""
    width, length = options.beam, history.size(1)
    ends = (chosen[:, :width] == EOS) & best[:, :width].isfinite()
    for row, place in ends.nonzero().tolist():
        ids = tuple(history[row * width + int(parents[row, place])].tolist())
        log_probability = float(best[row, place])
        score = log_probability / length_penalty(length, options)
        cut = length >= request.limits[alive[row]]
        found[alive[row]].append(Hypothesis(ids, score, log_probability, finished=not cut))


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
