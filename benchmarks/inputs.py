"""What experiments need: their scale, the places of our side and of the peers, and inputs made from a seed.

Inputs (corpora, batches, models) are made once and lie in the work folder; nothing is measured while they are made.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import made
from benchmarks.installed import Peer
from benchmarks.measure import Job
from benchmarks.process import SCRATCH, Side, carry_out, knows, last_line, regard, run
from benchmarks.shapes import SHAPES
from regard.config import Data, Run, Text
from regard.data.loader import Loader
from regard.data.store import Store
from regard.data.tokenizer import CharacterTokenizer
from regard.prepare import prepare
from regard.tasks.translation import Translation

OURS = "regard"
TEXT = Text(source_unicode="none", target_unicode="none", source="characters", target="characters", joint=True)


@dataclass(frozen=True)
class Scale:
    """How much is done."""

    shapes: dict[str, str]  # the role of a model → its name in SHAPES
    pairs: int  # of the corpus for training against peers
    seconds: float  # each decoding case is repeated for
    cases: list[list[int]]  # of decoding: batch, beam
    length: int  # of every output, its end counted
    lesson: int  # updates in which our model learns it
    lines: int  # of the file for the command line
    beam: int  # for that file
    batches: list[int]  # sentences a peer decodes together: the best of these is taken
    corpora: list[int]  # pairs, for cost against size
    updates: list[int]  # for that: to warm up, then measured
    lengths: list[int]  # tokens of a sentence, for cost against length


FULL = Scale(
    shapes={"A": "A", "B": "B", "LSTM": "LSTM"},
    pairs=2000,
    seconds=2.0,
    cases=[[1, 1], [1, 4], [32, 1], [64, 1], [32, 4], [64, 4]],
    length=16,
    lesson=150,
    lines=10_000,
    beam=4,
    batches=[32, 64, 128],
    corpora=[62_500, 250_000, 1_000_000],
    updates=[4, 24],
    lengths=[16, 32, 64, 128, 256, 512],
)
TINY = Scale(
    shapes={"A": "tiny", "B": "tiny", "LSTM": "tiny LSTM"},
    pairs=300,
    seconds=0.01,
    cases=[[1, 1], [2, 4]],
    length=4,
    lesson=100,
    lines=20,
    beam=2,
    batches=[8],
    corpora=[300, 1200, 4800],
    updates=[1, 2],
    lengths=[16, 32],
)


@dataclass(frozen=True)
class Bench:
    """Where and how everything is measured."""

    work: Path
    scale: Scale
    peers: dict[str, Peer]
    seed: int = 1
    threads: int = 2

    def ours(self, task: str, name: str = OURS, **job: Any) -> Side:
        """A job for our side."""
        return Side(name, (sys.executable, "-m", "benchmarks.regard_side"), self._job(task, job))

    def theirs(self, peer: str, task: str, **job: Any) -> Side:
        """A job for a peer."""
        found = self.peers[peer]
        return Side(peer, (found.python, "-W", "ignore", "-m", found.module), self._job(task, job))

    def _job(self, task: str, job: Job) -> Job:
        return {"task": task, "seed": self.seed, "threads": self.threads, **job}

    def installed(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Those of the peers that are there, and a note for each that is not."""
        return [name for name in names if name in self.peers], [
            f"{name} is not installed" for name in names if name not in self.peers
        ]

    def folder(self, *names: object) -> Path:
        """A place in the work folder."""
        path = self.work.joinpath(*map(str, names))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def make_task(vocabulary: int) -> Translation:
    """One character for each id of made sentences, one vocabulary for both sides."""
    tokenizer = CharacterTokenizer(made.characters(vocabulary))
    return Translation(TEXT, tokenizer, tokenizer)


def corpus(bench: Bench, vocabulary: int, number: int, length: int = 0) -> Path:
    """A prepared corpus of made pairs; with `length` all sides are so long."""
    name = f"{number}-{length or 'natural'}-{vocabulary}"
    return prepared(bench, name, vocabulary, lambda size, seed: made.make_pairs(size, seed, vocabulary, length), number)


def lesson(bench: Bench, vocabulary: int) -> Path:
    """A prepared corpus in which every source has the same target, as long as outputs shall be."""

    def make(size: int, seed: int) -> made.Pairs:
        return made.make_lesson(size, seed, vocabulary, bench.scale.length)

    return prepared(bench, f"lesson-{vocabulary}", vocabulary, make, 500)


def prepared(bench: Bench, name: str, vocabulary: int, make: Callable[[int, int], made.Pairs], number: int) -> Path:
    """Pairs as files, and then by the same code as `regard prepare`."""
    directory, files = bench.folder("corpora", name), []
    if (directory / "prepared.json").exists():
        return directory
    for part, size, seed in (("train", number, bench.seed), ("valid", 16, bench.seed + 1)):
        files.append(bench.folder("text", f"{name}-{part}.tsv"))
        pairs = make(size, seed)
        made.write_lines(files[-1], pairs.source, pairs.target)
    data = Data(train=str(files[0]), valid=str(files[1]), max_length=1024)
    prepare(Run(seed=bench.seed, data=data, text=TEXT), directory, lambda _: None, make_task(vocabulary))
    return directory


def batches_of(bench: Bench, prepared: Path, vocabulary: int) -> tuple[Path, int, int]:
    """The batches of our second pass for the peers, and how many the first and the second pass have."""
    loader = Loader(Store(prepared / "train"), Data().batch_tokens, Data().batch_rows, bench.seed)
    warm, plan = loader.count(0), loader.plan(1)
    path = bench.folder("batches", f"{prepared.name}.npz")
    pairs = made.make_pairs(bench.scale.pairs, bench.seed, vocabulary)
    made.save_batches(path, pairs, [plan[number].astype("int64") for number in range(len(plan))])
    return path, warm, len(plan)


def text(bench: Bench, role: str, lines: int) -> Path:
    """A file of made sources."""
    vocabulary = SHAPES[bench.scale.shapes[role]].vocabulary
    path = bench.folder("text", f"{lines}-{vocabulary}.txt")
    if not path.exists():
        made.write_lines(path, made.make_pairs(lines, bench.seed + 2, vocabulary).source)
    return path


def learned_model(bench: Bench, role: str, name: str = "") -> Path:
    """A model of ours that answers every source with one sentence, so that outputs are equally long.

    With a name it is one of its own, for another export.
    """
    path, shape = bench.folder("models", role + name), bench.scale.shapes[role]
    if not (path / "model").exists():
        job = {"prepared": str(lesson(bench, SHAPES[shape].vocabulary)), "directory": str(path), "shape": shape}
        carry_out(bench.ours("learn", beam=bench.scale.beam, steps=bench.scale.lesson, **job), bench.threads)
    return path


def export(model: Path, lines: Path, quantization: str = "float32") -> tuple[Path | None, str]:
    """The model as CTranslate2 reads it, or why there is none; both engines are compared on some lines."""
    if not knows("--to", "export"):
        return None, "`regard export --to ctranslate2` is not there yet"
    if not knows("--engine", "translate"):
        return None, "`regard translate` does not know --engine yet"
    if not any(model.rglob("model.bin")):
        words = ("export", str(model), "--to", "ctranslate2", "--quantization", quantization)
        done = run(regard(*words, "--check", str(lines), "--check-lines", "20"))
        if done.returncode:
            return None, f"`regard export --to ctranslate2` failed: {last_line(done.stderr)}"
    found = next(model.rglob("model.bin"), None)
    return (found.parent, "") if found else (None, "`regard export --to ctranslate2` left no model.bin in the model")


def translating(bench: Bench, peer: str, model: Path, lines: Path, **more: Any) -> Side:
    """A peer's program that translates a file."""
    scale = bench.scale
    job = {"directory": str(model), "input": str(lines), "result": SCRATCH, "beam": scale.beam, "length": scale.length}
    return bench.theirs(peer, "translate", batch=scale.batches[0], **job, **more)


def tuned(bench: Bench, side: Side, lines: Path) -> tuple[Side, int]:
    """The side with the batch that is fastest on a smaller file, and that batch."""

    def with_batch(batch: int, **more: Any) -> Side:
        return replace(side, job={**(side.job or {}), "batch": batch, **more})

    def seconds(batch: int) -> float:
        start = time.monotonic()
        carry_out(with_batch(batch, input=str(lines)), bench.threads)
        return time.monotonic() - start

    fastest = min(bench.scale.batches, key=seconds)
    return with_batch(fastest), fastest
