"""Sequence-level knowledge distillation (Kim & Rush 2016, "Sequence-Level Knowledge Distillation"; section 3.2, 3.3).

Idea: the teacher decodes the source x of every training pair (x, y), and the student learns its output ŷ instead of y.
A model's outputs are more regular than people's, so that a smaller model, or one that writes all words at once, can
learn them.

    best       ŷ = argmax p(ŷ | x), as beam search finds it                    (their Seq-KD)
    closest    ŷ = argmax BLEU(ŷ, y) over the n best of the beam search        (their Seq-Inter)

    distilled.jsonl    source, target, reference of each training pair
    distilled.json     teacher, search, hash and counts; how near the outputs come to the references
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.config import Distill, Run, differing
from regard.data.batch import Hypothesis
from regard.data.part import Part
from regard.data.text import Pair, read_lines, write_line
from regard.directory import find_directory, hash_file, identify, read_directory, read_json, write_json
from regard.engine.ctranslate2 import FOLDER, unable
from regard.errors import ConfigError, DataError, Interrupted
from regard.metrics import bleu_metric, sentence_bleu
from regard.origin import usable_cores
from regard.predict import EngineName, Predictor, find_engine, load, load_task
from regard.prepare import Say, Splitter, named
from regard.tasks.translation import Translation

if TYPE_CHECKING:
    from regard.training.progress import Progress

BLOCK = 1000  # pairs that are sorted, decoded and written together
FILE = "distilled.jsonl"
FACTS = "distilled.json"


class DistilledPairs(Splitter):
    """The pairs of a run with a teacher: training targets are its outputs, validation stays as it is."""

    def __init__(self, run: Run, directory: Path, facts: dict[str, Any]) -> None:
        super().__init__(run)
        assert run.distill
        self.mix = run.distill.mix
        self.path = directory / FILE
        self.facts = facts

    def depends(self) -> dict[str, Any]:
        return {"distilled": {**self.facts, "mix": self.mix}}

    def train(self) -> Iterator[Pair]:
        """The distilled pairs; mixed, each is followed by the real one where that is another."""
        for record in read_records(self.path):
            yield Pair(record["source"], record["target"])
            if self.mix and record["target"] != record["reference"]:
                yield Pair(record["source"], record["reference"])


def distill(run: Run, directory: Path, progress: "Progress", device: str, begun: bool) -> DistilledPairs:
    """The training pairs of a run with the teacher's outputs as targets: decoded once, in as many sittings as it takes.

    A run that has `begun` to train stays with the pairs it began with.
    """
    assert run.distill
    job = describe(run.distill)
    path, noted = directory / FILE, directory / FACTS
    if begun or path.exists():
        facts = read_json(noted)
        if changed := [key for key in job if facts.get(key) != job[key]]:
            hint = "choose another -o" if begun else "delete it to decode anew"
            raise ConfigError(f"{path}: was made with another {', '.join(changed)}; {hint}")
        if not begun:
            check_unchanged(run, path, facts)
    else:
        job |= computed_by(run.distill, device)
        part = Part(path, job, resume=True)
        decode(run, part, progress, device)
        facts = job | measure(read_records(part.path), ignores_case(run.distill))
        facts |= {"pairs_sha256": part.hash.hexdigest(), "sha256": hash_file(part.path)}
        write_json(noted, facts)
        part.finish()
        progress.say(summary(facts))
    return DistilledPairs(run, directory, facts)


def describe(options: Distill) -> dict[str, Any]:
    """Everything that decides what the outputs look like, beside the pairs."""
    return {
        "teacher": [identify(path) for path in options.teacher],
        "search": options.search.model_dump(mode="json"),
        "output": options.output,
    }


def computed_by(options: Distill, device: str) -> dict[str, Any]:
    """The engine of the teacher, and which export: what decides about the last digits of a score."""
    engine = choose_engine(options, device)
    export = {"export": identify(find_directory(options.teacher[0]) / FOLDER)} if engine == "ctranslate2" else {}
    return {"engine": engine, **export}


def choose_engine(options: Distill, device: str) -> EngineName:
    """The fast one where the teacher has an export that can do the search."""
    return "torch" if unable(options.search) else find_engine(options.teacher, device)[0]


def ignores_case(options: Distill) -> bool:
    """Whether the teacher writes in lower case."""
    _, config = read_directory(options.teacher[0])
    return bool(config.get("text", {}).get("lowercase"))


def training_pairs(run: Run) -> tuple[Splitter, int]:
    """The real pairs without those held out for validation, and their number."""
    splitter = Splitter(run)
    for _ in splitter.measured():
        pass
    number = sum(1 for _ in splitter.train())
    if not number:
        raise DataError(f"{named(run.data.train)}: no pairs in it to learn from")
    return splitter, number


def check_unchanged(run: Run, path: Path, facts: dict[str, Any]) -> None:
    """What was decoded is still what is to be learned."""
    if hash_file(path) != facts.get("sha256"):
        raise DataError(f"{path}: damaged: its sha256 is not the one in {FACTS}; delete it to decode anew")
    digest = hashlib.sha256()
    for pair in training_pairs(run)[0].train():
        digest.update(as_line(pair).encode("utf-8", "surrogatepass") + b"\n")
    if digest.hexdigest() != facts.get("pairs_sha256"):
        raise DataError(f"{path}: was made from other pairs than {named(run.data.train)}; delete it to decode anew")


def decode(run: Run, part: Part, progress: "Progress", device: str) -> None:
    """Have the teacher decode what earlier sittings have not."""
    assert run.distill
    splitter, number = training_pairs(run)
    pairs = splitter.train()
    done = part.skip(map(as_line, pairs))
    progress.say(f"the teacher decodes {number:,} training pairs" + (f", after {done:,} that are done" if done else ""))
    teacher = load_teacher(run.distill, device, number - done)
    search, lowercase = run.distill.search.model_dump(), ignores_case(run.distill)
    closest = run.distill.output == "closest"
    try:
        with part.open() as stream, progress:
            progress.begin(done, number, "line")
            while block := list(islice(pairs, BLOCK)):
                found = teacher.nbest([pair.source for pair in block], first=done, **search)
                for pair, outputs in zip(block, found, strict=True):
                    record = make_record(pair, outputs if closest else outputs[:1], lowercase)
                    write_line(stream, json.dumps(record, ensure_ascii=False))
                stream.flush()
                part.commit([as_line(pair) for pair in block])
                done += len(block)
                progress.advance(done, len(block))
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {part.records:,} outputs are in {part.path}; the same call goes on") from None
    finally:
        teacher.close()
        part.tidy()


def load_teacher(options: Distill, device: str, lines: int) -> Predictor:
    """The teacher, on all cores where it has much to do."""
    many = lines > BLOCK and device in ("auto", "cpu")
    engine = choose_engine(options, device)
    return load(*options.teacher, device=device, engine=engine, workers=usable_cores() if many else 1)


def as_line(pair: Pair) -> str:
    """A pair as the line by which it is known again."""
    return f"{pair.source}\t{pair.target}"


def make_record(pair: Pair, outputs: Sequence[Hypothesis], lowercase: bool) -> dict[str, str]:
    """A distilled pair with, of several outputs, the one closest to the reference.

    An output that is blank or was cut off is nothing to learn, so the real target stays.
    """
    usable = [output.text for output in outputs if output.finished and output.text.strip()]
    record = {"source": pair.source, "target": pair.target, "reference": pair.target}
    if not usable:
        return record | {"kept": "blank" if outputs[0].finished else "cut off"}
    if len(usable) == 1:
        return record | {"target": usable[0]}
    return record | {"target": max(usable, key=lambda text: sentence_bleu(text, pair.target, lowercase))}


def read_records(path: Path) -> Iterator[dict[str, str]]:
    """What was written of each pair."""
    return map(json.loads, read_lines(path))


def measure(records: Iterable[dict[str, str]], lowercase: bool) -> dict[str, Any]:
    """Counts of the outputs, and how near they come to the references."""
    counts: Counter[str] = Counter()
    metric, sums, score = bleu_metric(lowercase=lowercase), np.zeros(1), None
    records = iter(records)
    while block := list(islice(records, BLOCK)):
        counts["pairs"] += len(block)
        counts.update(record["kept"] for record in block if "kept" in record)
        taught = [(record["target"], record["reference"]) for record in block if "kept" not in record]
        counts["equal"] += sum(same(*texts, lowercase) for texts in taught)
        if taught:
            found = metric.count(*map(list, zip(*taught, strict=True)))
            sums = sums + found.rows.sum(0)
            score = found.finish(sums.tolist())
    facts: dict[str, Any] = {name.replace(" ", "_"): counts[name] for name in ("pairs", "equal", "blank", "cut off")}
    if score:
        words = score.details["hypothesis_length"] / max(1, score.details["reference_length"])
        facts |= {"bleu": score.value, "signature": score.signature, "length_ratio": words}
    return facts


def same(output: str, reference: str, lowercase: bool) -> bool:
    """Whether the teacher says what the reference says, case aside where the model has none."""
    return output == (reference.lower() if lowercase else reference)


def summary(facts: dict[str, Any]) -> str:
    """The facts as lines for people."""
    lines = [f"distilled: {facts['pairs']:,} pairs; {facts['equal']:,} outputs are equal to the reference"]
    if "bleu" in facts:
        lines.append(f"the outputs against the references: BLEU {facts['bleu']:.2f} [{facts['signature']}], "
                     f"length ratio {facts['length_ratio']:.3f}")  # fmt: skip
    if facts["blank"] or facts["cut_off"]:
        lines.append(f"real target kept: {facts['blank']:,} outputs were blank, {facts['cut_off']:,} cut off")
    return "\n".join(lines)


def teacher_task(run: Run, say: Say) -> Translation | None:
    """The teacher's tokenizers, unless the text section says something else: then the student learns its own."""
    assert run.distill
    task = load_task(*read_directory(run.distill.teacher[0]))
    if changed := sorted(differing(task.options.model_dump(), run.text.model_dump())):
        say(f"tokenizers: the student's own, since text.{changed[0]} is not the teacher's")
        return None
    say("tokenizers: the teacher's")
    return task
