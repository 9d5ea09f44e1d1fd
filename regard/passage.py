"""A text as a model reads it, or the parts of one that is too long for it, and the outputs of parts made one."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from regard.data.batch import Hypothesis

BLANK = Hypothesis(ids=(), score=0.0, log_probability=0.0)


@dataclass(frozen=True)
class Passage:
    """A text, or a part of one that is too long, as the model reads it."""

    number: int  # of the text it belongs to
    text: str
    inner: str  # normalised
    ids: list[int]  # with EOS


def join(parts: list[list[Hypothesis]]) -> list[Hypothesis]:
    """Outputs of the parts of one text → outputs of the whole; no part at all is a blank line."""
    if not parts:
        return [BLANK]
    if len(parts) == 1:
        return parts[0]
    return [join_part([outputs[min(rank, len(outputs) - 1)] for outputs in parts]) for rank in range(len(parts[0]))]


def join_part(parts: list[Hypothesis]) -> Hypothesis:
    """One output from those of consecutive parts."""
    alignment: list[tuple[int, int]] = []
    sources = targets = 0
    for part in parts:
        alignment += [(source + sources, target + targets) for source, target in part.alignment or ()]
        sources, targets = sources + len(part.source_tokens), targets + len(part.tokens)
    return Hypothesis(
        ids=tuple(token for part in parts for token in part.ids),
        score=sum(part.score for part in parts),
        log_probability=sum(part.log_probability for part in parts),
        text=" ".join(part.text for part in parts if part.text),
        tokens=tuple(token for part in parts for token in part.tokens),
        source_tokens=tuple(token for part in parts for token in part.source_tokens),
        alignment=None if parts[0].alignment is None else tuple(alignment),
        finished=all(part.finished for part in parts),
    )


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Halve a text that does not fit, at the end of a sentence or a space nearest its middle, until it does."""
    if len(text) < 2 or fits(text):
        return [text]
    middle = len(text) // 2
    for pattern in (r"(?<=[.!?;。！？])\s+", r"\s+"):
        cuts = [match.end() for match in re.finditer(pattern, text) if 0 < match.end() < len(text)]
        cut = min(cuts, key=lambda place: abs(place - middle), default=0)
        if cut and (pattern == r"\s+" or len(text) // 4 < cut < 3 * len(text) // 4):
            break
    cut = cut or middle
    return [part for half in (text[:cut], text[cut:]) if half.strip() for part in split_long(half, fits)]
