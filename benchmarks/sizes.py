"""Cost against size: time per token, start and memory as the corpus grows, time per token as sentences grow."""

from benchmarks.experiments import Experiment, describe
from benchmarks.figures import Figure
from benchmarks.inputs import Bench, corpus
from benchmarks.process import Side
from benchmarks.shapes import SHAPES

BATCH = 8  # sentences decoded together, for cost against length
SPEED = Figure("tokens_per_second", "tokens/s", higher=True)


def corpora(bench: Bench) -> Experiment:
    """Training on a prepared corpus of growing size: always the same number of updates."""
    scale, shape = bench.scale, bench.scale.shapes["A"]
    warm, steps = scale.updates
    sides: list[Side] = []
    for number in scale.corpora:
        prepared = corpus(bench, SHAPES[shape].vocabulary, number)
        job = {"shape": shape, "prepared": str(prepared), "warm": warm, "steps": steps}
        sides.append(bench.ours("train", f"{number:,} pairs", **job))
    figures = [
        SPEED,
        Figure("first_update_seconds", "s", higher=False),
        Figure("ready_seconds", "s", higher=False),
        Figure("peak", "MB", higher=False),
    ]
    title = f"training on a growing prepared corpus, {describe(shape)}"
    return Experiment("size-corpus", title, figures, sides, [], {"pairs": scale.corpora, "updates": steps})


def lengths(bench: Bench) -> Experiment:
    """Training and greedy decoding of sentences that all have one length, batches of equally many tokens."""
    scale, shape = bench.scale, bench.scale.shapes["A"]
    warm, steps = scale.updates
    sides: list[Side] = []
    for length in scale.lengths:
        number = (warm + steps) * 4096 // length
        prepared = corpus(bench, SHAPES[shape].vocabulary, number, length)
        job = {"shape": shape, "prepared": str(prepared), "warm": warm, "steps": steps}
        sides.append(bench.ours("train", f"train, length {length}", **job))
        job = {"shape": shape, "cases": [[BATCH, 1]], "seconds": scale.seconds, "source": length, "length": length}
        sides.append(bench.ours("decode", f"decode, length {length}", **job))
    figures = [SPEED, Figure(f"{BATCH}x1", "tokens/s", higher=True)]
    return Experiment("size-length", f"sentences of growing length, {describe(shape)}", figures, sides)


SIZES = {"size-corpus": corpora, "size-length": lengths}
