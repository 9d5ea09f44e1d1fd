"""What every engine can do: turn ids into outputs, score, and tell what was looked at."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from regard.config import Search
from regard.data.batch import Hypothesis, Writing

if TYPE_CHECKING:
    from regard.view.record import Map


class Engine(Protocol):
    """What computes: torch, or a compiled model."""

    name: str
    workers: int  # calls it can work on at a time

    @property
    def limit(self) -> int | None: ...

    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Search,
        prefixes: Sequence[Sequence[int]] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]: ...

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]: ...

    def attend(self, source: Sequence[int], target: Sequence[int], writing: Writing | None = None) -> "list[Map]": ...

    def cross_attention(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> np.ndarray | None: ...

    def writings(self, source: Sequence[int], options: Search) -> dict[tuple[int, ...], Writing]: ...

    def close(self) -> None: ...
