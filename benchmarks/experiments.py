"""What is compared with the peers: each function makes one experiment, the sides of which do the same work."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.figures import Figure
from benchmarks.inputs import OURS, Bench, batches_of, corpus, export, learned_model, text, translating, tuned
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
    there, notes = bench.installed(["HF Marian", "OpenNMT-py", "JoeyNMT"])
    sides = [partial(bench.theirs, name, "decode") for name in there]
    return searching(bench, role, "decode", "decoding in a warm process", sides, notes)


def limit(bench: Bench, role: str) -> Experiment:
    """The same search beside its products of activations and weights alone: how far it is from the machine's limit."""
    sides = [partial(bench.ours, "products", "its matrix products alone")]
    return searching(bench, role, "limit", "decoding beside its own arithmetic", sides, [])


def searching(
    bench: Bench, role: str, name: str, title: str, others: list[Callable[..., Side]], notes: list[str]
) -> Experiment:
    """Our search and other sides in all cases of batch and beam."""
    scale, shape = bench.scale, bench.scale.shapes[role]
    job = {"shape": shape, "cases": scale.cases, "length": scale.length, "seconds": scale.seconds}
    sides = [bench.ours("decode", **job), *(other(**job) for other in others)]
    figures = [Figure(f"{batch}x{beam}", "tokens/s", higher=True) for batch, beam in scale.cases]
    facts = {"output_length": scale.length}
    return Experiment(f"{name}-{role.lower()}", f"{title}, {describe(shape)}", figures, sides, notes, facts)


def file(bench: Bench, role: str) -> Experiment:
    """A file through the command line with torch, from the start of the process."""
    name, scale = f"file-{role.lower()}", bench.scale
    title = f"a file of {scale.lines:,} lines by the command line, beam {scale.beam}, {describe(scale.shapes[role])}"
    if not knows("--workers", "translate"):
        return Experiment(name, title, [SECONDS], [], ["`regard translate` does not know --workers yet"])
    lines, less = text(bench, role, scale.lines), text(bench, role, max(1, scale.lines // 10))
    words = ["translate", str(learned_model(bench, role)), "-i", str(lines), "-o", SCRATCH, "--workers", "auto"]
    if knows("--engine", "translate"):
        words += ["--engine", "torch"]
    sides, facts = [Side(OURS, regard(*words))], {"lines": scale.lines, "beam": scale.beam}
    there, notes = bench.installed(["HF Marian"])
    for peer in there:
        saved = bench.folder("models", f"{peer}-{role}")
        carry_out(bench.theirs(peer, "save", shape=scale.shapes[role], directory=str(saved)), bench.threads)
        side, facts[f"batch of {peer}"] = tuned(bench, translating(bench, peer, saved, lines), less)
        sides.append(side)
    return Experiment(name, title, [SECONDS], sides, notes, facts)


def engine(bench: Bench, role: str, quantization: str = "float32") -> Experiment:
    """The compiled engine by our command line against CTranslate2 called directly on the same model."""
    scale, plain = bench.scale, quantization == "float32"
    name = f"engine-{role.lower()}" + ("" if plain else f"-{quantization}")
    title = f"the same file by the compiled engine, {describe(scale.shapes[role])}" + (
        "" if plain else ", int8 weights"
    )
    model = learned_model(bench, role, "" if plain else f"-{quantization}")
    lines, less = text(bench, role, scale.lines), text(bench, role, max(1, scale.lines // 10))
    exported, problem = export(model, lines, quantization)
    if exported is None:
        return Experiment(name, title, [SECONDS], [], [problem])
    words = ("translate", str(model), "-i", str(lines), "-o", SCRATCH, "--engine", "ctranslate2")
    sides, facts = [Side(OURS, regard(*words))], {"lines": scale.lines, "beam": scale.beam}
    there, notes = bench.installed(["CTranslate2"])
    for peer in there:
        side, facts[f"batch of {peer}"] = tuned(bench, translating(bench, peer, exported, lines), less)
        sides.append(side)
    return Experiment(name, title, [SECONDS], sides, notes, facts)


def latency(bench: Bench) -> Experiment:
    """One sentence through the command line, from nothing."""
    model, sentence, notes = learned_model(bench, "A"), "a man sleeps .\n", []
    torch = ("--engine", "torch") if knows("--engine", "translate") else ()
    sides = [Side(OURS, regard("translate", str(model), *torch), stdin=sentence)]
    exported, problem = export(model, text(bench, "A", bench.scale.lines))
    if exported is None:
        notes.append(problem)
    else:
        command = regard("translate", str(model), "--engine", "ctranslate2")
        sides.append(Side(f"{OURS}, compiled engine", command, stdin=sentence))
    title = f'`echo "{sentence.strip()}" \\| regard translate MODEL`, {describe(bench.scale.shapes["A"])}'
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
    "limit-a": lambda bench: limit(bench, "A"),
    "limit-b": lambda bench: limit(bench, "B"),
    "file-a": lambda bench: file(bench, "A"),
    "file-b": lambda bench: file(bench, "B"),
    "engine-a": lambda bench: engine(bench, "A"),
    "engine-b": lambda bench: engine(bench, "B"),
    "engine-a-int8": lambda bench: engine(bench, "A", "int8"),
    "engine-b-int8": lambda bench: engine(bench, "B", "int8"),
    "latency": latency,
}
