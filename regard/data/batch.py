"""The two types in which the text column and the tensor column meet: `Batch` in, `Hypothesis` out.

A batch holds numpy arrays; a model turns them into tensors at its own door. Every source row ends in
EOS (so no row is empty); a target row ends in EOS and carries no BOS: the decoder's input is the target
shifted right behind BOS. Rows are padded with PAD on the right, and lengths count the EOS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")


@dataclass(frozen=True)
class Batch:
    """Padded examples: numpy arrays outside a model, tensors inside it."""

    source: Any  # [B,S] ids
    source_length: Any  # [B]
    target: Any = None  # [B,T] ids, or None when there is nothing to learn from
    target_length: Any = None  # [B]
    index: Any = None  # [B] number of each example in its store
    extra: dict[str, Any] = field(default_factory=dict)  # further named arrays, batch first

    def __len__(self) -> int:
        return len(self.source)

    def map(self, function: Callable[[Any], Any]) -> "Batch":
        """The same batch with `function` applied to every array."""
        changed = {
            name: None if (value := getattr(self, name)) is None else function(value)
            for name in ("source", "source_length", "target", "target_length", "index")
        }
        return replace(self, **changed, extra={name: function(value) for name, value in self.extra.items()})


def pad(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids → one matrix padded with PAD, and the lengths."""
    lengths = [len(row) for row in rows]
    matrix = np.full((len(rows), max(lengths, default=0)), PAD, dtype=np.int64)
    for number, row in enumerate(rows):
        matrix[number, : len(row)] = row
    return matrix, np.array(lengths, dtype=np.int64)


def make_batch(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]] | None = None,
    index: Sequence[int] | None = None,
) -> Batch:
    """Id rows that already end in EOS → a batch."""
    source, source_length = pad(sources)
    target, target_length = pad(targets) if targets is not None else (None, None)
    numbers = None if index is None else np.asarray(index, dtype=np.int64)
    return Batch(source, source_length, target, target_length, numbers)


@dataclass(frozen=True)
class Hypothesis:
    """One finished output: search fills the first three fields, the Predictor the text."""

    ids: tuple[int, ...]  # without BOS and EOS
    score: float  # what the search ranks by: log-probability over the length penalty
    log_probability: float  # sum over the tokens and the EOS
    text: str = ""
    tokens: tuple[str, ...] = ()  # the pieces as one would show them
    source_tokens: tuple[str, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = (
        None  # (source, target) token numbers, strongest link of each target token
    )
    finished: bool = True  # False: cut off at the maximum length


@dataclass(frozen=True)
class Pass:
    """The places of an output after they have been filled once more."""

    tokens: tuple[int, ...]
    certain: tuple[float, ...]  # probability of each
    fresh: tuple[bool, ...]  # whether this pass has filled it


@dataclass(frozen=True)
class Writing:
    """How an output came about whose words were written all at once."""

    start: tuple[int, ...]  # what stood at the places before they were filled
    copied: bool  # whether those are source tokens, not target tokens
    fertility: tuple[int, ...] | None  # of each source token, where the model has it
    passes: tuple[Pass, ...]
