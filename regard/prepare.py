"""From files of pairs to a prepared corpus: tokenizers, memory-mapped stores, and what is odd about the data.

prepared.json        what it was made from (complete only at the end: until then the folder counts as unfinished)
tokenizer.json …     the tokenizers
train/  valid/       stores of ids
valid.jsonl          the raw validation pairs, for scores on finished text
audit.json           duplicates, overlaps, empty, identical and extreme pairs
"""

import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Corpus, Run, Text, differing, validate
from regard.data.audit import Audit
from regard.data.store import Store, write_store
from regard.data.text import Pair, read_pairs
from regard.directory import check_free, read_directory, read_json, write_json
from regard.errors import ConfigError, DataError
from regard.predict import load_task
from regard.tasks.translation import Translation

Say = Callable[[str], None]
MOST = 2**64  # the hashes of sources lie below it


@dataclass(frozen=True)
class Prepared:
    """A corpus that is ready for training."""

    directory: Path
    task: Translation
    train: Store
    valid: Store
    valid_pairs: list[Pair]  # raw, in the order of the valid store
    facts: dict[str, Any]  # counts and hashes


class Splitter:
    """Reads the training pairs; where no validation file is given, a part is split off by a hash of the source.

    So equal sources fall on the same side, and the split is a pure function of (seed, text).
    """

    def __init__(self, run: Run) -> None:
        self.data = run.data
        self.seed = run.seed
        if not run.data.train:
            raise ConfigError("data.train: no training file given")
        self.number = 0
        self.limit = 0  # sources with a hash below it are held out

    def read(self, corpus: Corpus) -> Iterator[Pair]:
        """The pairs of one corpus."""
        data = self.data
        yield from read_pairs(corpus, data.format, data.source_key, data.target_key, data.decode)

    def all(self) -> Iterator[Pair]:
        """Every pair of the training files, before the split."""
        for number, pair in enumerate(self.read(self.data.train or "")):
            if self.data.max_pairs and number >= self.data.max_pairs:
                return
            yield pair

    def measured(self) -> Iterator[Pair]:
        """Every pair; afterwards it is settled which share is held out: by their number, but at least one source."""
        lowest = MOST
        for pair in self.all():
            self.number += 1
            lowest = min(lowest, self.hash(pair))
            yield pair
        if self.data.valid is None and self.number:
            share = min(self.data.valid_fraction, self.data.valid_limit / self.number)
            self.limit = max(int(share * MOST), lowest + 1)

    def hash(self, pair: Pair) -> int:
        digest = hashlib.blake2b(f"{self.seed}\0{pair.source}".encode(errors="replace"), digest_size=8).digest()
        return int.from_bytes(digest, "big")

    def held_out(self, pair: Pair) -> bool:
        return self.hash(pair) < self.limit

    def depends(self) -> dict[str, Any]:
        """What the pairs depend on beside the options and the files; it is kept among the facts."""
        return {}

    def train(self) -> Iterator[Pair]:
        """The pairs to learn from."""
        return (pair for pair in self.all() if not self.limit or not self.held_out(pair))

    def valid(self) -> Iterator[Pair]:
        """The pairs to validate on."""
        if self.data.valid is not None:
            return self.read(self.data.valid)
        return (pair for pair in self.all() if self.held_out(pair))


def prepare(
    run: Run,
    directory: Path,
    say: Say,
    task: Translation | None = None,
    begun: bool = False,
    splitter: Splitter | None = None,
) -> Prepared:
    """Make the prepared corpus of a run, or open it if it is there and was made from the same options and files.

    A given `task` lends its tokenizers; otherwise they are trained on the corpus. A run that has `begun` stays
    with the corpus it began with, whatever has happened to the files since. A given `splitter` has the pairs.
    """
    if splitter is None and run.distill:
        raise ConfigError("a [distill] section needs `regard distill` or `regard train`, which have the teacher decode")
    splitter = splitter or Splitter(run)
    wanted, files = fingerprint(run) | splitter.depends(), stamps(run)
    marker = directory / "prepared.json"
    made = read_json(marker) if marker.exists() else {}
    if made.get("made_from") == wanted and (begun or made.get("files") == files):
        return open_prepared(directory)
    check_free(directory, marker.name)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_json(marker, {"unfinished": True})
    say("reading the corpus")
    audits = {"train": Audit(run.data.max_length)}
    digest = hashlib.sha256()
    for pair in counted(splitter.measured(), say):
        audits["train"].add(pair)
        digest.update(f"{pair.source}\t{pair.target}\n".encode(errors="surrogatepass"))
    if not splitter.number:
        raise DataError(f"{named(run.data.train)}: no pairs in it")
    for name, corpus in (("valid", run.data.valid), ("test", run.data.test)):
        if corpus:
            audits[name] = Audit(run.data.max_length).add_all(splitter.read(corpus))
    write_json(directory / "audit.json", audit_report(audits))
    audits.clear()
    if task is None:
        say("training the tokenizers")
        task = Translation.learn(run.text, splitter.train, splitter.number)
    task.save(directory)
    say(f"vocabulary: {task.source.tokenizer.size} source, {task.target.tokenizer.size} target pieces")
    kept: list[Pair] = []
    facts: dict[str, Any] = {
        **splitter.depends(),
        "data_sha256": digest.hexdigest(),
        "train": store_pairs(task, counted(splitter.train(), say), directory / "train", run, None),
        "valid": store_pairs(task, splitter.valid(), directory / "valid", run, kept),
    }
    with (directory / "valid.jsonl").open("w", encoding="utf-8", errors="surrogatepass") as stream:
        for pair in kept:
            stream.write(json.dumps({"source": pair.source, "target": pair.target}) + "\n")
    text = task.options.model_dump(mode="json")
    write_json(marker, {"made_from": wanted, "files": files, "text": text, "facts": facts})
    return open_prepared(directory)


def named(corpus: Corpus | None) -> str:
    """A corpus as a message calls it."""
    return corpus if isinstance(corpus, str) else " and ".join(corpus or ())


def start_task(run: Run) -> Translation | None:
    """The tokenizers of the model a run goes on from, wholly or with its encoder alone."""
    start = run.start or run.start_encoder
    if start is None:
        return None
    task = load_task(*read_directory(start))
    require_same(task.options, run.text, f"{start} was trained")
    return task


def require_same(before: Text, now: Text, what: str) -> None:
    """Tokenizers that are there already settle the text section."""
    for key in sorted(differing(before.model_dump(), now.model_dump())):
        old, new = (json.dumps(getattr(text, key)) for text in (before, now))
        raise ConfigError(f"text.{key} = {new}, but {what} with {old}")


def audit_report(audits: dict[str, Audit]) -> dict[str, Any]:
    """What is odd about each corpus, and what of the held-out ones training has seen (lengths in words)."""
    found: dict[str, Any] = {name: audit.report().to_dict() for name, audit in audits.items()}
    for name in audits.keys() - {"train"}:
        found[name]["seen_in_training"] = audits["train"].overlap(audits[name]).to_dict()
    return found


def fingerprint(run: Run) -> dict[str, Any]:
    """Everything a prepared corpus depends on."""
    batching = {"batch_tokens", "batch_rows", "workers", "prepared"}
    data = run.data.model_dump(mode="json", exclude=batching)
    return {"seed": run.seed, "data": data, "text": run.text.model_dump(mode="json")}


def stamps(run: Run) -> list[list[int]]:
    """Size and time of every file a corpus is made from, to see whether one has changed."""
    corpora = [corpus for corpus in (run.data.train, run.data.valid, run.data.test) if corpus]
    paths = [Path(name) for corpus in corpora for name in ([corpus] if isinstance(corpus, str) else corpus)]
    return [[path.stat().st_size, path.stat().st_mtime_ns] for path in paths if path.exists()]


def store_pairs(
    task: Translation, pairs: Iterable[Pair], directory: Path, run: Run, kept: list[Pair] | None
) -> dict[str, Any]:
    """Write the usable pairs as a store; `kept` receives their raw text."""
    longest = run.data.max_length
    counts = {"pairs": 0, "empty": 0, "too_long": 0}
    waiting: deque[Pair] = deque()  # read, but not yet given back as ids

    def remembered() -> Iterator[Pair]:
        for pair in pairs:
            waiting.append(pair)
            yield pair

    def usable() -> Iterator[tuple[list[int], list[int]]]:
        for source, target in task.rows(remembered()):
            pair = waiting.popleft()
            if not source or not target:
                counts["empty"] += 1
            elif max(len(source), len(target)) + 1 > longest:
                counts["too_long"] += 1
            else:
                counts["pairs"] += 1
                if kept is not None:
                    kept.append(pair)
                yield source, target
        if not counts["pairs"]:
            corpus = (directory.name == "valid" and run.data.valid) or run.data.train
            raise DataError(
                f"{named(corpus)}: no pair is left for {directory.name}: {counts['empty']} are empty on a side, "
                f"{counts['too_long']} have more than data.max_length = {longest} tokens"
            )

    sizes = task.source.tokenizer.size, task.target.tokenizer.size
    store = write_store(directory, usable(), *sizes)
    return {**counts, "source_tokens": store.source_tokens, "target_tokens": store.target_tokens}


def counted(pairs: Iterable[Pair], say: Say, every: int = 500_000) -> Iterator[Pair]:
    """Tell now and then how far a long pass has come."""
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number % every == 0:
            say(f"… {number:,} pairs")


def open_prepared(directory: Path) -> Prepared:
    """A prepared corpus by its path."""
    marker = directory / "prepared.json"
    made = read_json(marker) if marker.exists() else {}
    if "made_from" not in made:
        problem = "it was not finished" if made else "prepared.json is missing"
        raise DataError(f"{directory}: not a prepared corpus: {problem}")
    task = Translation.load(directory, validate(Text, made["text"], str(marker)))
    pairs = list(read_pairs(str(directory / "valid.jsonl"), decode="replace"))
    return Prepared(directory, task, Store(directory / "train"), Store(directory / "valid"), pairs, made["facts"])
