"""The Predictor: the one path from raw input to finished output, for command line, library and every engine.

It drives an engine (`ids, options → Hypotheses`): sorts and batches, keeps blank lines away from the model,
cuts what is too long into parts, copies unknown words from where the model looked, and puts all back in order.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from regard.config import Search, Text, change_search, validate
from regard.data.batch import BOS, EOS, PAD, UNK, Hypothesis, Writing
from regard.directory import find_directory, read_directory
from regard.engine.base import Engine
from regard.errors import ConfigError, DataError, ModelError
from regard.passage import BLANK, Passage, join, split_long
from regard.tasks.translation import Side, Translation

if TYPE_CHECKING:
    from regard.view.record import AttentionReport, Description, WritingView

Section = TypeVar("Section", Text, Search)
Item = TypeVar("Item")
Result = TypeVar("Result")
IMPOSSIBLE = -1e20  # a log-probability below this is that of an output the model cannot write
EngineName = Literal["auto", "torch", "ctranslate2"]


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
        self.watch: Callable[[int], None] | None = None  # is told how many more parts of texts are done
        self._counting = Lock()  # several callers may search at a time

    def close(self) -> None:
        """End the processes of an engine that has some."""
        self.engine.close()

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
        parts: list[Passage] | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Several outputs for each text, best first.

        `first` numbers the texts for the seeds of sampling; `parts` is what `read` made of them before.
        """
        if isinstance(texts, str):
            raise TypeError("expected a list of texts, found one string")
        search = change_search(self.search, options)
        parts = self.read(texts) if parts is None else parts
        results: list[list[list[Hypothesis]]] = [[] for _ in texts]
        forced = None
        if prefixes is not None:  # the first part of a text takes its beginning
            if len(prefixes) != len(texts):
                raise DataError(f"{len(prefixes)} prefixes for {len(texts)} texts; expected one for each")
            beginnings = dict(enumerate(self.task.target.many(prefixes)))
            forced = [beginnings.pop(part.number, []) for part in parts]
        found = self._search(parts, search, forced, [first + part.number for part in parts], align)
        for part, outputs in zip(parts, found, strict=True):
            results[part.number].append(outputs)
        return [join(outputs) for outputs in results]

    def read(self, texts: Sequence[str]) -> list[Passage]:
        """The texts as the model takes them: none of a blank one, several parts of one that is too long."""
        return [part for text in self._read(texts) for part in self._cut(text)]

    def _read(self, texts: Sequence[str]) -> Iterator[Passage]:
        """The texts as the model reads them."""
        inner = [self.task.source.normaliser(text) for text in texts]
        ids = self.task.source.tokenizer.encode_many(inner)
        for number, text in enumerate(texts):
            yield Passage(number, text, inner[number], [*ids[number], EOS])

    def _cut(self, whole: Passage) -> list[Passage]:
        """The parts of a text that the model can take: none of a blank one, several of one that is too long."""
        if len(whole.ids) == 1:
            self.counts["blank"] += 1
            return []
        if len(whole.ids) <= self.longest:
            return [whole]
        self.counts["too long"] += 1
        pieces = split_long(whole.text, lambda text: len(self.task.source.ids(text)) < self.longest)
        return [replace(part, number=whole.number) for part in self._read(pieces) if len(part.ids) > 1]

    def _search(
        self, parts: list[Passage], options: Search, prefixes: list[list[int]] | None, seeds: list[int], align: bool
    ) -> list[list[Hypothesis]]:
        def find(rows: list[int]) -> list[list[Hypothesis]]:
            counts: Counter[str] = Counter()  # of this batch: several may be worked on at a time
            outputs = self.engine.search(
                [parts[row].ids for row in rows],
                options,
                None if prefixes is None else [prefixes[row] for row in rows],
                [seeds[row] for row in rows],
            )
            finished = [
                [self._finish(parts[row], hypothesis, align, counts) for hypothesis in hypotheses]
                for row, hypotheses in zip(rows, outputs, strict=True)
            ]
            with self._counting:
                self.counts.update(counts)
                if self.watch:
                    self.watch(len(rows))
            return finished

        results: list[list[Hypothesis]] = [[] for _ in parts]
        width = options.candidates
        batches = length_batches([len(part.ids) for part in parts], max(1, options.batch_tokens // width))
        for rows, found in zip(batches, in_parallel(find, batches, self.engine.workers), strict=True):
            for row, hypotheses in zip(rows, found, strict=True):
                results[row] = hypotheses
        return results

    def _finish(self, part: Passage, hypothesis: Hypothesis, align: bool, counts: Counter[str]) -> Hypothesis:
        """Ids → text, with unknown words copied from the source word most looked at."""
        counts["cut off"] += not hypothesis.finished
        tokenizer = self.task.source.tokenizer
        known = UNK not in part.ids  # the ids then say all, and quicker
        source_tokens = tuple(tokenizer.pieces(part.ids[:-1]) if known else tokenizer.split(part.inner))
        unknown = hypothesis.ids.count(UNK)
        links = self._links(part.ids, hypothesis.ids) if (align or unknown) and hypothesis.ids else None
        copies = None
        if unknown and links is not None:
            copies = [source_tokens[link] for link in links]
        counts["unknown words copied" if copies else "unknown words"] += unknown
        output = self.task.finish(self.task.inner_text(hypothesis.ids, copies))
        tokens = tuple(self.task.target.tokenizer.pieces(hypothesis.ids))
        alignment = tuple((link, place) for place, link in enumerate(links)) if align and links is not None else None
        return replace(hypothesis, text=output, tokens=tokens, source_tokens=source_tokens, alignment=alignment)

    def _links(self, source: list[int], ids: Sequence[int]) -> list[int] | None:
        """The source token, EOS aside, each output token looks at most."""
        weights = self.engine.cross_attention([source], [[*ids, EOS]])
        return None if weights is None else weights[0, : len(ids), : len(source) - 1].argmax(-1).tolist()

    def fits(self, source: str, target: str) -> bool:
        """Whether the model can take a pair whole, to score it."""
        limit = self.engine.limit
        return limit is None or max(len(self.task.source.ids(source)), len(self.task.target.ids(target))) < limit

    def score(
        self, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096, first: int = 0
    ) -> list[Hypothesis]:
        """Each target with the probability the model gives it after its source; `first` is the number of the first."""
        pairs = [
            ([*source, EOS], [*target, EOS])
            for source, target in zip(self.task.source.many(sources), self.task.target.many(targets), strict=True)
        ]
        for number, pair in enumerate(pairs, first + 1):
            if self.engine.limit and max(map(len, pair)) > self.engine.limit:
                raise DataError(f"pair {number}: longer than the model's {self.engine.limit} tokens")
        results: list[Hypothesis] = [BLANK] * len(pairs)
        for rows in length_batches([max(len(source), len(target)) for source, target in pairs], batch_tokens):
            prices = self.engine.score([pairs[row][0] for row in rows], [pairs[row][1] for row in rows])
            for row, price in zip(rows, prices, strict=True):
                total, ids = float(price.sum(dtype=np.float64)), pairs[row][1][:-1]
                if total < IMPOSSIBLE:
                    total = -math.inf
                tokens = tuple(self.task.target.tokenizer.pieces(ids))
                results[row] = Hypothesis(tuple(ids), total / len(price), total, targets[row], tokens)
        return results

    def attend(self, text: str, output: str | None = None, **options: Any) -> "AttentionReport":
        """What every attention looks at, for each of the n best outputs or for a given output."""
        from regard.view.record import AttentionReport, AttentionView

        source = [*self.task.source.ids(text), EOS]
        if not 1 < len(source) <= self.longest:
            raise DataError(f"the text has {len(source) - 1} tokens; expected 1 to {self.longest - 1}, to look at")
        hypotheses = self.nbest([text], **options)[0] if output is None else self.score([text], [output])
        search = change_search(self.search, options)
        writings = self.engine.writings(source, search) if output is None else {}
        views = [
            AttentionView(
                source_tokens=[*self.task.source.tokens(text), "</s>"],
                target_tokens=[*self.task.target.tokenizer.pieces(hypothesis.ids), "</s>"],
                source=text,
                text=hypothesis.text,
                score=hypothesis.score,
                layers=self.engine.attend(source, [*hypothesis.ids, EOS], writing),
                writing=self._describe_writing(writing),
            )
            for hypothesis in hypotheses
            for writing in [writings.get(hypothesis.ids)]
        ]
        return AttentionReport(views, self.describe())

    def _describe_writing(self, writing: Writing | None) -> "WritingView | None":
        """How words were written all at once, in words; a place with no word shows as a dot."""
        from regard.view.record import FilledPlaces, WritingView

        if writing is None:
            return None

        def words(ids: Sequence[int], side: Side) -> list[str]:
            pieces = side.tokenizer.pieces(ids)
            return ["·" if number in (PAD, BOS) else piece for number, piece in zip(ids, pieces, strict=True)]

        target = self.task.target
        passes = [FilledPlaces(words(each.tokens, target), each.certain, each.fresh) for each in writing.passes]
        start = words(writing.start, self.task.source if writing.copied else target)
        return WritingView(writing.fertility, start, passes)

    def describe(self) -> "Description":
        """The model in one line, for reports."""
        from regard.view.record import Description

        kind = self.about["model"].get("kind", "transformer")
        return Description(self.about["name"], kind, self.about.get("parameters", 0))


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """`function` of each item, several at a time; if one fails or we are stopped, what has not begun is dropped."""
    if workers == 1 or len(items) < 2:
        return [function(item) for item in items]
    pool = ThreadPoolExecutor(workers)
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def length_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Row numbers in batches of similar length, longest first; rows × longest stays within the budget."""
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def load(
    *paths: str | Path,
    device: str = "auto",
    engine: EngineName = "torch",
    workers: int = 1,
    threads: int | None = None,
    rescore: str | Path | None = None,
) -> Predictor:
    """A model directory, or several as an ensemble → a Predictor; the model `rescore` chooses among its outputs.

    `workers` searches go on at a time, each with `threads` threads. `engine="auto"` is ctranslate2 where the
    model directory holds an export; its searches stop by count (see docs/search.md).
    """
    if not paths:
        raise ModelError("no model directory given")
    found = [read_directory(path) for path in paths]
    judge = [read_directory(rescore)] if rescore is not None else []
    directory, config = found[0]
    task = load_task(directory, config)
    search = read_section(Search, directory, config, "search")
    for other, other_config in [*found[1:], *judge]:
        if config.get("text") != other_config.get("text") or not same_tokenizers(directory, other):
            raise ModelError(f"{other}: does not fit {directory}: their text options or tokenizers differ")
    sizes = {"source": task.source.tokenizer.size, "target": task.target.tokenizer.size}
    for other, other_config in [*found, *judge]:
        check_sizes(other, other_config, sizes)
    if (find_engine(paths, device)[0] if engine == "auto" else engine) == "ctranslate2":
        search = search.model_copy(update={"stop": "count"})
        computing = load_fast(found, device, workers, threads)
    else:
        computing = load_torch(found, device, workers, threads)
    if judge:
        from regard.engine.rescore import Rescoring

        computing = Rescoring(computing, load_torch(judge, device, workers, threads))
    return Predictor(
        task, computing, search, config.get("longest", 256), {"name": Path(paths[0]).resolve().name, **config}
    )


def find_engine(paths: Sequence[str | Path], device: str) -> tuple[EngineName, str]:
    """What `auto` is; and if there is an export that cannot be used, why."""
    from regard.engine.ctranslate2 import FOLDER, is_installed

    if not is_installed() or not any((find_directory(path) / FOLDER).is_dir() for path in paths):
        return "torch", ""
    if len(paths) > 1:
        return "torch", "an ensemble"
    return ("ctranslate2", "") if device in ("auto", "cpu") else ("torch", f"--device {device}")


def load_fast(found: Sequence[tuple[Path, Any]], device: str, workers: int, threads: int | None) -> Engine:
    """The export of the one model."""
    from regard.engine.ctranslate2 import load_engine, refuse

    if len(found) > 1:
        raise refuse("an ensemble")
    if device not in ("auto", "cpu"):
        raise refuse(f"--device {device}")
    return load_engine(found[0][0], workers, threads or 1)


def load_torch(found: Sequence[tuple[Path, Any]], device: str, workers: int, threads: int | None) -> Engine:
    """The models themselves, in this process or in several others."""
    if workers > 1:
        from regard.engine.workers import Workers

        if device not in ("auto", "cpu"):
            raise ConfigError(f"--device {device}: several workers need the CPU")
        return Workers([path for path, _ in found], workers, threads or 1)
    from regard.engine.native import load_engine

    return load_engine([path for path, _ in found], [config for _, config in found], device)


def load_task(directory: Path, config: dict[str, Any]) -> Translation:
    """The text column of a model directory."""
    return Translation.load(directory, read_section(Text, directory, config, "text"))


def read_section(schema: type[Section], directory: Path, config: dict[str, Any], name: str) -> Section:
    """A section of config.json as options."""
    try:
        return validate(schema, config.get(name, {}), f"{directory / 'config.json'}: {name}")
    except ConfigError as error:
        raise ModelError(str(error)) from None


def check_sizes(directory: Path, config: dict[str, Any], vocabulary: dict[str, int]) -> None:
    """Refuse sizes the files cannot have, before anything of such a size is built."""
    from safetensors import SafetensorError, safe_open

    where, path = directory / "config.json", directory / "model.safetensors"
    if config.get("vocabulary") != vocabulary:
        raise ModelError(f"{where}: vocabulary {config.get('vocabulary')}, but the tokenizers have {vocabulary}")
    if type(config.get("longest", 256)) is not int or config.get("longest", 256) < 2:
        raise ModelError(f"{where}: longest {config['longest']!r}, expected a number of tokens above 1")
    try:
        with safe_open(str(path), "np") as weights:
            tensors = len(list(weights.keys()))
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None
    for key, value in config["model"].items():
        if key.endswith("layers") and isinstance(value, int) and value > tensors:
            raise ModelError(f"{where}: model.{key} = {value}, but {path.name} holds only {tensors} tensors")


def same_tokenizers(one: Path, other: Path) -> bool:
    """Whether two directories hold the same tokenizers."""
    names = ("tokenizer.json", "source.json", "target.json")
    one_has, other_has = (
        {name: (where / name).read_bytes() for name in names if (where / name).exists()} for where in (one, other)
    )
    return one_has == other_has
