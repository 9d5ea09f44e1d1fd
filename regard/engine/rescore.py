"""One model finds outputs, another chooses among them: `--rescore MODEL`.

With a model that writes all words at once this is noisy parallel decoding (Gu et al. 2018, section 3.4): its `beam`
candidates are scored by an autoregressive teacher in one batch each, which is as parallel as making them was.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from regard.config import Search, length_penalty
from regard.data.batch import EOS, Hypothesis, Writing
from regard.engine.base import Engine
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.view.record import Map


class Rescoring:
    """An engine whose outputs are put in order by the scores of another one with the same tokenizers."""

    def __init__(self, finder: Engine, judge: Engine) -> None:
        self.finder = finder
        self.judge = judge
        self.name = finder.name
        self.workers = min(finder.workers, judge.workers)

    @property
    def limit(self) -> int | None:
        """Longest source or target both can take."""
        limits = [engine.limit for engine in (self.finder, self.judge) if engine.limit is not None]
        return min(limits) if limits else None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Search,
        prefixes: Sequence[Sequence[int]] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """All that the finder finds, the judge's favourites first; those that are cut off come last."""
        if options.candidates == 1:
            raise ConfigError("--rescore chooses among several outputs, and this search finds one: give --beam")
        found = self.finder.search(sources, self._every(options), prefixes, seeds)
        limit = self.judge.limit or math.inf
        pairs = [
            (source, [*output.ids, EOS])
            for source, outputs in zip(sources, found, strict=True)
            for output in outputs
            if len(output.ids) < limit
        ]
        judged = iter(self.judge.score(*map(list, zip(*pairs, strict=True))) if pairs else ())
        results: list[list[Hypothesis]] = []
        for outputs in found:  # what is too long for the judge comes last
            prices = [next(judged).sum(dtype=np.float64) if len(each.ids) < limit else -math.inf for each in outputs]
            ordered = [with_price(*each, options) for each in zip(outputs, map(float, prices), strict=True)]
            results.append(sorted(ordered, key=lambda each: (not each.finished, -each.score))[: options.nbest])
        return results

    @staticmethod
    def _every(options: Search) -> Search:
        """The search with all outputs it finds."""
        return options.model_copy(update={"nbest": options.beam if options.method == "beam" else options.nbest})

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """By the model itself."""
        return self.finder.score(sources, targets)

    def attend(self, source: Sequence[int], target: Sequence[int], writing: Writing | None = None) -> "list[Map]":
        """By the model itself."""
        return self.finder.attend(source, target, writing)

    def cross_attention(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> np.ndarray | None:
        """By the model itself."""
        return self.finder.cross_attention(sources, targets)

    def writings(self, source: Sequence[int], options: Search) -> dict[tuple[int, ...], Writing]:
        """Of all outputs the judge may choose from."""
        return self.finder.writings(source, self._every(options))

    def close(self) -> None:
        """End the processes of both."""
        self.finder.close()
        self.judge.close()


def with_price(output: Hypothesis, price: float, options: Search) -> Hypothesis:
    """The output with the judge's log-probability."""
    return replace(output, log_probability=price, score=price / length_penalty(len(output.ids), options))
