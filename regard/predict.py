"""The Predictor: the one path from raw input to finished output, for command line, library and every engine.

It drives an engine (`ids, options → Hypotheses`): sorts and batches, keeps blank lines away from the model,
cuts what is too long into parts, copies unknown words from where the model looked, and puts all back in order.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from regard.config import Search, Text, validate
from regard.data.batch import EOS, UNK, Hypothesis
from regard.directory import read_directory
from regard.errors import ModelError
from regard.tasks.translation import Translation

if TYPE_CHECKING:
    from regard.view.record import AttentionReport, Description, Map

BLANK = Hypothesis(ids=(), score=0.0, log_probability=0.0)


class Engine(Protocol):
    """What computes: torch, or a compiled model."""

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

    def attend(self, source: Sequence[int], target: Sequence[int]) -> "list[Map]": ...

    def cross_attention(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> np.ndarray | None: ...


class Predictor:
    """A loaded model: `translate`, `score` and `attend` take raw text.

    `counts` tells what was special so far: blank lines, parts of too long ones, copied unknown words, outputs
    cut off at the maximum length.
    """

    def __init__(self, task: Translation, engine: Engine, search: Search, longest: int, about: dict[str, Any]) -> None:
        self.task = task
        self.engine = engine
        self.search = search
        self.longest = min(longest, engine.limit or longest)  # source tokens, EOS counted
        self.about = about  # the model's config.json
        self.counts: Counter[str] = Counter()

    def translate(self, texts: Sequence[str], *, align: bool = False, **options: Any) -> list[Hypothesis]:
        """The best output for each text; `options` are those of the search (beam=1, alpha=0.6 …)."""
        return [outputs[0] for outputs in self.nbest(texts, align=align, **options)]

    def nbest(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        align: bool = False,
        first: int = 0,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Several outputs for each text, best first; `first` numbers the texts for the seeds of sampling."""
        search = validate(Search, self.search.model_dump() | options, "search")
        parts: list[tuple[int, str]] = []  # (text it belongs to, part of it)
        for number, text in enumerate(texts):
            if not text.strip():
                self.counts["blank"] += 1
                continue
            pieces = split_long(text, lambda part: len(self.task.source.ids(part)) < self.longest)
            self.counts["too long"] += len(pieces) > 1
            parts += [(number, piece) for piece in pieces]
        results: list[list[list[Hypothesis]]] = [[] for _ in texts]
        forced = None if prefixes is None else [self.task.target.ids(prefixes[number]) for number, _ in parts]
        found = self._search(
            [part for _, part in parts], search, forced, [first + number for number, _ in parts], align
        )
        for (number, _), outputs in zip(parts, found, strict=True):
            results[number].append(outputs)
        return [join(outputs) for outputs in results]

    def _search(
        self, texts: list[str], options: Search, prefixes: list[list[int]] | None, seeds: list[int], align: bool
    ) -> list[list[Hypothesis]]:
        sources = [[*ids, EOS] for ids in self.task.source.many(texts)]
        results: list[list[Hypothesis]] = [[] for _ in texts]
        width = options.beam if options.method == "beam" else 1
        for rows in length_batches([len(source) for source in sources], max(1, options.batch_tokens // width)):
            outputs = self.engine.search(
                [sources[row] for row in rows],
                options,
                None if prefixes is None else [prefixes[row] for row in rows],
                [seeds[row] for row in rows],
            )
            for row, hypotheses in zip(rows, outputs, strict=True):
                results[row] = [self._finish(texts[row], sources[row], hypothesis, align) for hypothesis in hypotheses]
        return results

    def _finish(self, text: str, source: list[int], hypothesis: Hypothesis, align: bool) -> Hypothesis:
        """Ids → text, with unknown words copied from the source word most looked at."""
        self.counts["cut off"] += not hypothesis.finished
        tokenizer = self.task.target.tokenizer
        source_tokens = tuple(self.task.source.tokens(text))
        unknown = [place for place, token in enumerate(hypothesis.ids) if token == UNK]
        links = self._links(source, hypothesis.ids) if (align or unknown) and hypothesis.ids else None
        copies = None
        if unknown and links is not None:
            copies = [source_tokens[link] if link < len(source_tokens) else "" for link in links]
            self.counts["unknown words copied"] += len(unknown)
        output = self.task.finish(self.task.inner_text(hypothesis.ids, copies))
        tokens = tuple(tokenizer.pieces(hypothesis.ids))
        alignment = None
        if align and links is not None:
            alignment = tuple((link, place) for place, link in enumerate(links) if link < len(source_tokens))
        return replace(hypothesis, text=output, tokens=tokens, source_tokens=source_tokens, alignment=alignment)

    def _links(self, source: list[int], ids: Sequence[int]) -> list[int] | None:
        """The source token each output token looks at most."""
        weights = self.engine.cross_attention([source], [[*ids, EOS]])
        return None if weights is None else weights[0, : len(ids)].argmax(-1).tolist()

    def score(self, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096) -> list[Hypothesis]:
        """Each target with the probability the model gives it after its source."""
        pairs = [
            ([*source, EOS], [*target, EOS])
            for source, target in zip(self.task.source.many(sources), self.task.target.many(targets), strict=True)
        ]
        results: list[Hypothesis] = [BLANK] * len(pairs)
        for rows in length_batches([max(len(source), len(target)) for source, target in pairs], batch_tokens):
            prices = self.engine.score([pairs[row][0] for row in rows], [pairs[row][1] for row in rows])
            for row, price in zip(rows, prices, strict=True):
                total, ids = float(price.sum(dtype=np.float64)), pairs[row][1][:-1]
                tokens = tuple(self.task.target.tokenizer.pieces(ids))
                results[row] = Hypothesis(tuple(ids), total / len(price), total, targets[row], tokens)
        return results

    def attend(self, text: str, output: str | None = None, **options: Any) -> "AttentionReport":
        """What every attention looks at, for each of the n best outputs or for a given output."""
        from regard.view.record import AttentionReport, AttentionView

        source = [*self.task.source.ids(text), EOS]
        hypotheses = self.nbest([text], **options)[0] if output is None else self.score([text], [output])
        views = [
            AttentionView(
                source_tokens=[*self.task.source.tokens(text), "</s>"],
                target_tokens=[*self.task.target.tokenizer.pieces(hypothesis.ids), "</s>"],
                source=text,
                text=hypothesis.text,
                score=hypothesis.score,
                layers=self.engine.attend(source, [*hypothesis.ids, EOS]),
            )
            for hypothesis in hypotheses
        ]
        return AttentionReport(views, self.describe())

    def describe(self) -> "Description":
        """The model in one line, for reports."""
        from regard.view.record import Description

        kind = self.about["model"].get("kind", "transformer")
        return Description(self.about["name"], kind, self.about.get("parameters", 0))


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


def split_long(text: str, fits: Any) -> list[str]:
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


def length_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Row numbers in batches of similar length, longest first; rows × longest stays within the budget."""
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def load(*paths: str | Path, device: str = "cpu") -> Predictor:
    """A model directory, or several as an ensemble → a Predictor."""
    if not paths:
        raise ModelError("no model directory given")
    found = [read_directory(path) for path in paths]
    directory, config = found[0]
    where = str(directory / "config.json")
    task = Translation.load(directory, validate(Text, config.get("text", {}), where))
    for other, other_config in found[1:]:
        if not same_text(directory, config, other, other_config):
            raise ModelError(
                f"{other}: cannot join {directory} in an ensemble: their text options or tokenizers differ"
            )
    sizes = {"source": task.source.tokenizer.size, "target": task.target.tokenizer.size}
    if sizes != config.get("vocabulary"):
        raise ModelError(f"{where}: vocabulary {config.get('vocabulary')}, but the tokenizers have {sizes}")
    from regard.engine.native import load_engine

    engine = load_engine([path for path, _ in found], [each for _, each in found], device)
    search = validate(Search, config.get("search", {}), where)
    return Predictor(task, engine, search, int(config.get("longest", 256)), {"name": str(paths[0]), **config})


def same_text(one: Path, one_config: dict[str, Any], other: Path, other_config: dict[str, Any]) -> bool:
    """Whether two models read and write the same ids."""
    if one_config.get("text") != other_config.get("text"):
        return False
    names = [name for name in ("tokenizer.json", "source.json", "target.json") if (one / name).exists()]
    return all((other / name).exists() and (one / name).read_bytes() == (other / name).read_bytes() for name in names)
