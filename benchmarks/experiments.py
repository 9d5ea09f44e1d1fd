"""What is compared with the peers: each function makes one experiment, the sides of which do the same work."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.figures import Figure
from benchmarks.inputs import OURS, Bench, batches_of, corpus, export, saved_model, text, translating, tuned
from benchmarks.process import SCRATCH, Side, carry_out, knows, regard
from benchmarks.shapes import SHAPES

SPEED = Figure("tokens_per_second", "tokens/s", higher=True)
MEMORY = Figure("memory", "MB", higher=False)
SECONDS = Figure("seconds", "s", higher=False)


@dataclass(frozen=True)
class Experiment:
    """Sides that are measured in turn."""

    name: str
    title: str
    figures: list[Figure]
    sides: list[Side]
    notes: list[str] = field(default_factory=list)  # what could not be measured, and why
    facts: dict[str, Any] = field(default_factory=dict)  # what else one must know to repeat it


def train(bench: Bench, role: str) -> Experiment:
    """The training step against the peers that have the model."""
    shape = bench.scale.shapes[role]
    prepared = corpus(bench, SHAPES[shape].vocabulary, bench.scale.pairs)
    batches, warm, steps = batches_of(bench, prepared, SHAPES[shape].vocabulary)
    names = ["HF Marian", "eole", "OpenNMT-py", "JoeyNMT"] if SHAPES[shape].heads else ["OpenNMT-py", "JoeyNMT"]
    there, notes = bench.installed(names)
    sides = [bench.ours("train", shape=shape, prepared=str(prepared), warm=warm, steps=steps)]
    sides += [bench.theirs(name, "train", shape=shape, batches=str(batches), seconds=0) for name in there]
    facts = {"batches": steps, "pairs": bench.scale.pairs}
    return Experiment(f"train-{role.lower()}", f"training, {describe(shape)}", [SPEED, MEMORY], sides, notes, facts)


def decode(bench: Bench, role: str) -> Experiment:
    """Search with torch in a warm process."""
    scale, shape = bench.scale, bench.scale.shapes[role]
    there, notes = bench.installed(["HF Marian", "OpenNMT-py", "JoeyNMT"])
    job = {"shape": shape, "cases": scale.cases, "length": scale.length, "seconds": scale.seconds}
    sides = [bench.ours("decode", **job), *(bench.theirs(name, "decode", **job) for name in there)]
    figures = [Figure(f"{batch}x{beam}", "tokens/s", higher=True) for batch, beam in scale.cases]
    title = f"decoding in a warm process, {describe(shape)}"
    return Experiment(f"decode-{role.lower()}", title, figures, sides, notes, {"output_length": scale.length})


def file(bench: Bench, role: str) -> Experiment:
    """A file through the command line, from the start of the process."""
    model, lines = saved_model(bench, role), text(bench, role, bench.scale.lines)
    there, notes = bench.installed(["HF Marian"])
    sides, facts = [], {"lines": bench.scale.lines, "beam": bench.scale.beam}
    if knows("--workers", "translate"):
        words = ("translate", str(model), "-i", str(lines), "-o", SCRATCH, "--workers", "auto")
        sides.append(Side(OURS, regard(*words)))
    else:
        notes.append("`regard translate` does not know --workers yet")
    for name in there:
        saved = bench.folder("models", f"{name}-{role}")
        shape = bench.scale.shapes[role]
        carry_out(bench.theirs(name, "save", shape=shape, directory=str(saved)), bench.threads)
        side = translating(bench, name, saved, lines)
        sides.append(tuned(bench, side, text(bench, role, max(1, bench.scale.lines // 10))))
        facts[f"batch of {name}"] = sides[-1].job["batch"]  # type: ignore[index]
    title = f"a file of {bench.scale.lines:,} lines by the command line, beam {bench.scale.beam}, "
    return Experiment(
        f"file-{role.lower()}", title + describe(bench.scale.shapes[role]), [SECONDS], sides, notes, facts
    )


def engine(bench: Bench, role: str) -> Experiment:
    """The compiled engine by our command line against CTranslate2 called directly on the same model."""
    model, lines = saved_model(bench, role), text(bench, role, bench.scale.lines)
    there, notes = bench.installed(["CTranslate2"])
    sides: list[Side] = []
    facts: dict[str, Any] = {"lines": bench.scale.lines, "beam": bench.scale.beam}
    exported, problem = export(model)
    if exported is None:
        notes.append(problem)
    else:
        words = ("translate", str(model), "-i", str(lines), "-o", SCRATCH, "--engine", "ctranslate2")
        sides.append(Side(OURS, regard(*words)))
        for name in there:
            side = translating(bench, name, exported, lines, compute="default")
            sides.append(tuned(bench, side, text(bench, role, max(1, bench.scale.lines // 10))))
            facts[f"batch of {name}"] = sides[-1].job["batch"]  # type: ignore[index]
    title = f"the same file by the compiled engine, {describe(bench.scale.shapes[role])}"
    return Experiment(f"engine-{role.lower()}", title, [SECONDS], sides, notes, facts)


def latency(bench: Bench) -> Experiment:
    """One sentence through the command line, from nothing."""
    model, sentence, notes = saved_model(bench, "A"), "a man sleeps .\n", []
    sides = [Side(OURS, regard("translate", str(model)), stdin=sentence)]
    exported, problem = export(model)
    if exported is None:
        notes.append(problem)
    else:
        command = regard("translate", str(model), "--engine", "ctranslate2")
        sides.append(Side(f"{OURS}, compiled engine", command, stdin=sentence))
    title = f'`echo "{sentence.strip()}" | regard translate MODEL`, {describe(bench.scale.shapes["A"])}'
    return Experiment("latency", title, [SECONDS], sides, notes)


def describe(shape: str) -> str:
    """A model in words."""
    found = SHAPES[shape]
    if not found.heads:
        return f"LSTM with attention and input feeding (width {found.width})"
    return f"Transformer {shape} ({found.layers}+{found.layers} layers, width {found.width})"


EXPERIMENTS: dict[str, Callable[[Bench], Experiment]] = {
    "train-a": lambda bench: train(bench, "A"),
    "train-b": lambda bench: train(bench, "B"),
    "train-lstm": lambda bench: train(bench, "LSTM"),
    "decode-a": lambda bench: decode(bench, "A"),
    "decode-b": lambda bench: decode(bench, "B"),
    "file-a": lambda bench: file(bench, "A"),
    "file-b": lambda bench: file(bench, "B"),
    "engine-a": lambda bench: engine(bench, "A"),
    "engine-b": lambda bench: engine(bench, "B"),
    "latency": latency,
}
