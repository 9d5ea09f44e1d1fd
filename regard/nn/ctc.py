"""Connectionist temporal classification (Graves, Fernández, Gomez and Schmidhuber 2006).

T places are filled with the L words of a target or left blank; equal words that follow each other count as one. Every
way to do so is a path through 2L + 1 states: blank, word 1, blank, word 2, …, blank.

    p(y) = Σ_paths Π_t p(state of place t)
    α_t(s) = p_t(s) · (α_{t−1}(s) + α_{t−1}(s−1) + α_{t−1}(s−2) where s is a word, other than the one before it)

Only the probabilities of the blank and of the target's own words are needed, not those of the whole vocabulary.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NEVER = -1e30  # a logarithm of 0 that has a gradient


def path_prices(
    words: Float[Tensor, "N T L"], blank: Float[Tensor, "N T"], length: Int[Tensor, "N"]
) -> Float[Tensor, "N T Z"]:
    """Log-probability of every state (Z = 2L + 1) at every place; words beyond a target's length never come."""
    real = torch.arange(words.size(2), device=words.device) < length[:, None]
    words = words.masked_fill(~real[:, None], NEVER)
    pairs = torch.stack([blank[:, :, None].expand_as(words), words], -1).flatten(2)
    return torch.cat([pairs, blank[:, :, None]], -1)


def may_skip(target: Int[Tensor, "N L"]) -> Bool[Tensor, "N Z"]:
    """The states one may come to from two states before: words that differ from the word before them."""
    skip = torch.zeros(len(target), 2 * target.size(1) + 1, dtype=torch.bool, device=target.device)
    skip[:, 3::2] = target[:, 1:] != target[:, :-1]
    return skip


def ctc_log_probability(
    prices: Float[Tensor, "N T Z"], target: Int[Tensor, "N L"], places: Int[Tensor, "N"], length: Int[Tensor, "N"]
) -> Float[Tensor, "N"]:
    """log p of each target, all paths taken together; about NEVER where it does not fit into its places."""
    skip = may_skip(target)
    alpha = torch.cat([prices[:, 0, :2], torch.full_like(prices[:, 0, 2:], NEVER)], 1)
    for place in range(1, prices.size(1)):
        after = torch.stack(_before(alpha, skip)).logsumexp(0) + prices[:, place]
        alpha = torch.where((place < places)[:, None], after.clamp_min(NEVER), alpha)
    return _ends(alpha, length).logsumexp(1)


def best_path(
    prices: Float[Tensor, "N T Z"], target: Int[Tensor, "N L"], places: Int[Tensor, "N"], length: Int[Tensor, "N"]
) -> Int[Tensor, "N T"]:
    """The state of every place on the most probable path (Viterbi); behind the last place that of the last."""
    skip = may_skip(target)
    alpha = torch.cat([prices[:, 0, :2], torch.full_like(prices[:, 0, 2:], NEVER)], 1)
    steps: list[Tensor] = []  # how many states back, for each place and state
    for place in range(1, prices.size(1)):
        best = torch.stack(_before(alpha, skip)).max(0)
        on = (place < places)[:, None]
        alpha = torch.where(on, (best.values + prices[:, place]).clamp_min(NEVER), alpha)
        steps.append(best.indices.masked_fill(~on, 0))
    state = (2 * length - _ends(alpha, length).argmax(1)).clamp_min(0)
    path = [state]
    for step in reversed(steps):
        state = state - step.gather(1, state[:, None])[:, 0]
        path.append(state)
    return torch.stack(path[::-1], 1)


def _before(alpha: Float[Tensor, "N Z"], skip: Bool[Tensor, "N Z"]) -> list[Tensor]:
    """What comes to each state from itself, from one state before and from two."""
    never = torch.full_like(alpha[:, :2], NEVER)
    one = torch.cat([never[:, :1], alpha[:, :-1]], 1)
    two = torch.cat([never, alpha[:, :-2]], 1)[:, : alpha.size(1)]
    return [alpha, one, two.masked_fill(~skip, NEVER)]


def _ends(alpha: Float[Tensor, "N Z"], length: Int[Tensor, "N"]) -> Float[Tensor, "N 2"]:
    """The two states a path may end in: the blank behind the last word, and that word."""
    last = alpha.gather(1, torch.stack([2 * length, (2 * length - 1).clamp_min(0)], 1))
    never = torch.stack([torch.zeros_like(length), length == 0], 1).bool()
    return last.masked_fill(never, NEVER)


def collapse(tokens: Sequence[int], blank: int) -> list[int]:
    """What places say: equal neighbours are one, blanks are nothing."""
    return [token for place, token in enumerate(tokens) if token != blank and (not place or tokens[place - 1] != token)]
