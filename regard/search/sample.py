"""One output word after word: the most probable (greedy), or drawn at random.

Sampling takes the arg max of log p / temperature + Gumbel noise, among the top k words or the smallest set
of probability p. Each output draws from a generator of its own, so it does not depend on its batch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import Search, length_penalty
from regard.data.batch import BOS, EOS, Hypothesis
from regard.nn.chance import gumbel
from regard.search.best import NATS, log_total, most_probable
from regard.search.filters import NEVER, Decoder, Request, check_number, remaining, restrict

Choose = Callable[[Tensor, list[int]], Tensor]  # prices [N,V] in bits, sentence of each row → tokens [N]


def greedy_search(decoder: Decoder, state: Any, request: Request, options: Search) -> list[list[Hypothesis]]:
    """The most probable word at each step."""
    return follow(decoder, state, request, options, lambda prices, _: most_probable(prices))


def sample_search(decoder: Decoder, state: Any, request: Request, options: Search) -> list[list[Hypothesis]]:
    """`nbest` outputs drawn from the model for every sentence, best score first."""
    seeds = request.seeds or list(range(len(request)))
    drawn: list[list[Hypothesis]] = [[] for _ in range(len(request))]
    everything = torch.arange(len(request), device=decoder.device)
    for number in range(options.nbest):
        generators = [generator(options.seed, seed, number) for seed in seeds]

        def choose(prices: Tensor, sentences: list[int], generators: list[torch.Generator] = generators) -> Tensor:
            noise = torch.stack([torch.rand(prices.size(-1), generator=generators[sentence]) for sentence in sentences])
            return (narrow(prices * NATS, options) + gumbel(noise).to(prices.device)).argmax(-1)

        start = decoder.select(state, everything, None)
        for sentence, outputs in enumerate(follow(decoder, start, request, options, choose)):
            drawn[sentence] += outputs
    return [sorted(outputs, key=lambda output: -output.score) for outputs in drawn]


def generator(*numbers: int) -> torch.Generator:
    """Random numbers of their own for each tuple of numbers."""
    state = np.random.SeedSequence([number % 2**32 for number in numbers]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))


def narrow(prices: Tensor, options: Search) -> Tensor:
    """Prices after temperature, top-k and top-p; what is out is −∞."""
    prices = prices / options.temperature
    if options.top_k:
        least = prices.topk(min(options.top_k, prices.size(-1)), -1).values[:, -1:]
        prices = prices.masked_fill(prices < least, NEVER)
    if options.top_p < 1:
        ordered, order = prices.softmax(-1).sort(-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= options.top_p
        prices = prices.masked_fill(beyond.scatter(-1, order, beyond), NEVER)
    return prices


@torch.inference_mode()
def follow(decoder: Decoder, state: Any, request: Request, options: Search, choose: Choose) -> list[list[Hypothesis]]:
    """Extend each sentence by the chosen word until EOS; what has ended leaves the batch."""
    device = decoder.device
    found: list[list[Hypothesis]] = [[] for _ in range(len(request))]
    rows = list(range(len(request)))  # the sentence of each row
    over = [False] * len(rows)
    totals = [0.0] * len(rows)
    history = torch.empty(len(rows), 0, dtype=torch.long, device=device)
    tokens = torch.full((len(rows), 1), BOS, device=device)
    while not all(over):
        logits, state = decoder.step(tokens, state)
        prices = logits.float()
        taken = log_total(prices)
        chosen = choose(restrict(prices, history, rows, request, options), rows)
        paid = ((prices.gather(1, chosen[:, None])[:, 0] - taken) * NATS).tolist()
        totals = [total + price for total, price in zip(totals, paid, strict=True)]
        length = history.size(1)
        for row, token in enumerate(chosen.tolist()):
            if token == EOS and not over[row]:
                check_number(totals[row])
                score = totals[row] / length_penalty(length, options)
                cut = length >= request.limits[rows[row]]
                found[rows[row]] = [Hypothesis(tuple(history[row].tolist()), score, totals[row], finished=not cut)]
                over[row] = True
        history = torch.cat([history, chosen[:, None]], 1)
        tokens = chosen[:, None]
        stay = remaining(over)
        if stay:
            kept = torch.tensor(stay, dtype=torch.long, device=device)
            rows, totals, over = [rows[row] for row in stay], [totals[row] for row in stay], [False] * len(stay)
            history, tokens = history[kept], tokens[kept]
            state = decoder.select(state, kept, kept)
    return found


SEARCHES = {"greedy": greedy_search, "sample": sample_search}
