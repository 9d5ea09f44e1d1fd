"""From files of pairs to a prepared corpus: tokenizers, memory-mapped stores, and what is odd about the data.

prepared.json        what it was made from (written last: without it the folder counts as unfinished)
tokenizer.json …     the tokenizers
train/  valid/       stores of ids
valid.jsonl          the raw validation pairs, for scores on finished text
audit.json           duplicates, overlaps, empty, identical and extreme pairs
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Corpus, Run, Text, validate
from regard.data.audit import Audit
from regard.data.store import Store, write_store
from regard.data.text import Pair, read_pairs
from regard.directory import read_json, write_json
from regard.errors import ConfigError, DataError
from regard.tasks.translation import Translation

Say = Callable[[str], None]


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
        self.share = 0.0
        self.number = 0

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

    def measure(self, number: int) -> None:
        """Settle the share that is held out, knowing the number of pairs."""
        self.number = number
        if self.data.valid is None and number:
            self.share = min(self.data.valid_fraction, self.data.valid_limit / number)

    def held_out(self, pair: Pair) -> bool:
        digest = hashlib.blake2b(f"{self.seed}\0{pair.source}".encode(errors="replace"), digest_size=8).digest()
        return int.from_bytes(digest, "big") < self.share * 2**64

    def train(self) -> Iterator[Pair]:
        """The pairs to learn from."""
        return (pair for pair in self.all() if not self.share or not self.held_out(pair))

    def valid(self) -> Iterator[Pair]:
        """The pairs to validate on."""
        if self.data.valid is not None:
            return self.read(self.data.valid)
        return (pair for pair in self.all() if self.held_out(pair))


def prepare(run: Run, directory: Path, say: Say, task: Translation | None = None) -> Prepared:
    """Make the prepared corpus of a run, or open it if it is there and was made from the same options.

    A given `task` lends its tokenizers; otherwise they are trained on the corpus.
    """
    wanted = fingerprint(run)
    marker = directory / "prepared.json"
    if marker.exists() and read_json(marker).get("made_from") == wanted:
        return open_prepared(directory)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    splitter = Splitter(run)
    say("reading the corpus")
    audits = {"train": Audit(run.data.max_length)}
    digest = hashlib.sha256()
    for pair in counted(splitter.all(), say):
        audits["train"].add(pair)
        digest.update(f"{pair.source}\t{pair.target}\n".encode(errors="surrogatepass"))
    splitter.measure(len(audits["train"]))
    if not splitter.number:
        raise DataError(f"{run.data.train}: no pairs in it")
    for name, corpus in (("valid", run.data.valid), ("test", run.data.test)):
        if corpus:
            audits[name] = Audit(run.data.max_length).add_all(splitter.read(corpus))
    if task is None:
        say("training the tokenizers")
        task = Translation.learn(run.text, splitter.train, splitter.number)
    task.save(directory)
    say(f"vocabulary: {task.source.tokenizer.size} source, {task.target.tokenizer.size} target pieces")
    kept: list[Pair] = []
    facts: dict[str, Any] = {"data_sha256": digest.hexdigest()}
    facts["train"] = store_pairs(task, counted(splitter.train(), say), directory / "train", run, None)
    facts["valid"] = store_pairs(task, splitter.valid(), directory / "valid", run, kept)
    if not facts["train"]["pairs"] or not facts["valid"]["pairs"]:
        raise DataError(
            f"{run.data.train}: {facts['train']['pairs']} training and {facts['valid']['pairs']} validation pairs "
            f"are left (empty sides and pairs above data.max_length = {run.data.max_length} are not used)"
        )
    with (directory / "valid.jsonl").open("w", encoding="utf-8", errors="surrogatepass") as stream:
        for pair in kept:
            stream.write(json.dumps({"source": pair.source, "target": pair.target}) + "\n")
    write_json(directory / "audit.json", audit_report(audits))
    write_json(marker, {"made_from": wanted, "text": run.text.model_dump(mode="json"), "facts": facts})
    return open_prepared(directory)


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


def store_pairs(
    task: Translation, pairs: Iterable[Pair], directory: Path, run: Run, kept: list[Pair] | None
) -> dict[str, Any]:
    """Write the usable pairs as a store; `kept` receives their raw text."""
    longest = run.data.max_length
    counts = {"empty": 0, "too_long": 0}

    def usable() -> Iterator[tuple[list[int], list[int]]]:
        source_text: list[Pair] = []

        def remembered() -> Iterator[Pair]:
            for pair in pairs:
                if kept is not None:
                    source_text.append(pair)
                yield pair

        for number, (source, target) in enumerate(task.rows(remembered())):
            if not source or not target:
                counts["empty"] += 1
            elif max(len(source), len(target)) + 1 > longest:
                counts["too_long"] += 1
            else:
                if kept is not None:
                    kept.append(source_text[number])
                yield source, target

    sizes = task.source.tokenizer.size, task.target.tokenizer.size
    store = write_store(directory, usable(), *sizes)
    source, target = store.lengths()
    return {"pairs": len(store), "source_tokens": int(source.sum()), "target_tokens": int(target.sum()), **counts}


def counted(pairs: Iterable[Pair], say: Say, every: int = 500_000) -> Iterator[Pair]:
    """Tell now and then how far a long pass has come."""
    for number, pair in enumerate(pairs, 1):
        yield pair
        if number % every == 0:
            say(f"… {number:,} pairs")


def open_prepared(directory: Path) -> Prepared:
    """A prepared corpus by its path."""
    marker = directory / "prepared.json"
    if not marker.exists():
        raise DataError(f"{directory}: not a prepared corpus (prepared.json is missing)")
    made = read_json(marker)
    task = Translation.load(directory, validate(Text, made["text"], str(marker)))
    with (directory / "valid.jsonl").open(encoding="utf-8", errors="surrogatepass", newline="\n") as stream:
        records = [json.loads(line) for line in stream]
    pairs = [Pair(record["source"], record["target"]) for record in records]
    return Prepared(directory, task, Store(directory / "train"), Store(directory / "valid"), pairs, made["facts"])
