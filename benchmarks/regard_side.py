"""Our side: what `regard train` does with a prepared corpus, and the torch engine's search, each in its own process.

    python -m benchmarks.regard_side '{"task": "train", …}'

Training goes through the same function as the command, loader and log included; a listener in the place of the
progress bar takes the times. What comes after the last measured update (validation, report) is not timed.
"""

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.inputs import TEXT
from benchmarks.made import typical
from benchmarks.measure import Figures, Job, forget_peak, memory, rate, work
from benchmarks.shapes import SHAPES, Shape
from regard.config import Data, Run, Search, Train
from regard.data.batch import EOS
from regard.data.loader import Loader
from regard.engine.native import make_engine
from regard.memory import keep_memory
from regard.models.base import build_model
from regard.nn.product import Product
from regard.pipeline import carry_out, check_options, settle
from regard.pipeline import train as train_run
from regard.prepare import open_prepared
from regard.training.progress import Progress


class Listener(Progress):
    """Notes when updates end, and the memory before and during them."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.ready = 0.0  # when model and optimiser are built
        self.built = 0  # bytes held then
        self.earlier = self.peak = 0  # bytes at most before that, and since
        self.times: list[float] = []

    def begin(self, step: int, steps: int | None, what: str = "step") -> None:
        super().begin(step, steps, what)
        self.ready = time.monotonic()
        self.built, self.earlier = memory("VmRSS"), memory("VmHWM")
        forget_peak()

    def update(self, step: int, loss: float, tokens: int, rate: float) -> None:
        super().update(step, loss, tokens, rate)
        self.times.append(time.monotonic())
        self.peak = memory("VmHWM")


def model_section(shape: Shape) -> dict[str, Any]:
    """The shape as the `model` section of a recipe."""
    shared = {"width": shape.width, "encoder_layers": shape.layers, "decoder_layers": shape.layers}
    shared |= {"tie": "all", "dropout": shape.dropout}
    if shape.heads:
        return {"kind": "transformer", "heads": shape.heads, "feed_forward": shape.feed_forward, **shared}
    kind = {"kind": "rnn", "cell": "lstm", "attention": "general", "bidirectional": False}
    return {**kind, "embedding": shape.width, **shared}


def train(job: Job) -> Figures:
    """Tokens per second of `steps` updates after `warm` others, and the memory they need."""
    shape, steps = SHAPES[job["shape"]], job["warm"] + job["steps"]
    options = Train(
        max_steps=steps, label_smoothing=shape.smoothing, clip=shape.clip, patience=0,
        validate_every=steps, decode_limit=0, metric="loss",
    )  # fmt: skip
    data = Data(prepared=job["prepared"], max_length=1024)
    run = Run(seed=job["seed"], threads=job["threads"], data=data, text=TEXT, model=model_section(shape), train=options)
    run, listener = check_options(run), Listener()
    with tempfile.TemporaryDirectory() as directory:
        settle(run, Path(directory), ())
        carry_out(run, Path(directory), torch.device("cpu"), listener, "")
    if len(listener.times) != steps:
        raise RuntimeError(f"{len(listener.times)} updates were made, expected {steps}")
    seconds = listener.times[-1] - listener.times[job["warm"] - 1]
    return {
        "tokens_per_second": count_tokens(run, range(job["warm"], steps)) / seconds,
        "memory": listener.peak - listener.built,
        "peak": max(listener.peak, listener.earlier),
        "ready_seconds": listener.ready - job["began"],
        "first_update_seconds": listener.times[0] - job["began"],
        "parameters": count_parameters(shape),
    }


def count_tokens(run: Run, steps: range) -> int:
    """Source and target tokens of these updates, without padding."""
    store = open_prepared(Path(run.data.prepared or "")).train
    loader = Loader(store, run.data.batch_tokens, run.data.batch_rows, run.seed)
    source, target = store.lengths()
    lengths = source.astype(int) + target
    first = epoch = total = 0
    while first < steps.stop:
        plan = loader.plan(epoch)
        within = range(max(steps.start, first), min(steps.stop, first + len(plan)))
        total += sum(int(lengths[plan[step - first]].sum()) for step in within)
        first, epoch = first + len(plan), epoch + 1
    return total


def count_parameters(shape: Shape) -> int:
    """Trained numbers of the model."""
    model = build_model(model_section(shape), shape.vocabulary, shape.vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


def decode(job: Job) -> Figures:
    """Target tokens per second for each (batch, beam), every output exactly `length` tokens long, its end counted."""
    torch.set_num_threads(job["threads"])
    shape, length = SHAPES[job["shape"]], job["length"]
    torch.manual_seed(job["seed"])
    engine = make_engine([build_model(model_section(shape), shape.vocabulary, shape.vocabulary)])
    figures: Figures = {}
    for batch, beam in job["cases"]:
        sources = [[*row, EOS] for row in typical(batch, job["seed"], shape.vocabulary, job.get("source", 0))]
        once = partial(engine.search, sources, fixed_search(beam, length))
        if {len(outputs[0].ids) + 1 for outputs in once()} != {length}:
            raise RuntimeError("an output is not as long as it must be")
        figures[f"{batch}x{beam}"] = rate(once, batch * length, job["seconds"])
    return figures


def products(job: Job) -> Figures:
    """The same searches with nothing but their products of activations and weights: what no exact search undercuts."""
    torch.set_num_threads(job["threads"])
    shape, length = SHAPES[job["shape"]], job["length"]
    keep_memory()
    encoder, decoder, (output,) = (
        [Product.of(torch.randn(*size), None, anywhere=True) for size in sizes] for sizes in product_sizes(shape)
    )
    figures: Figures = {}
    for batch, beam in job["cases"]:
        sources = typical(batch, job["seed"], shape.vocabulary, job.get("source", 0))
        read = {size: torch.randn(sum(map(len, sources)) + batch, size) for size in (shape.width, shape.feed_forward)}
        step = {size: torch.randn(batch * beam, size) for size in read}
        with torch.inference_mode():
            once = partial(all_products, encoder, [*decoder, output], read, step, length)
            figures[f"{batch}x{beam}"] = rate(once, batch * length, job["seconds"])
    return figures


def all_products(
    encoder: list[Product],
    decoder: list[Product],
    read: dict[int, torch.Tensor],
    step: dict[int, torch.Tensor],
    length: int,
) -> None:
    """Every product of one search: the source's once, then those of all steps; vectors by their width."""
    for each in encoder:
        each.forward(read[each.weight.size(1)])
    for _ in range(length):
        for each in decoder:
            each.forward(step[each.weight.size(1)])


def product_sizes(shape: Shape) -> tuple[list[tuple[int, int]], ...]:
    """Sizes [out, in] of the weights, as a search multiplies them: once for a source, at every step, and its output."""
    width, inner = shape.width, shape.feed_forward
    forward = [(inner, width), (width, inner)]
    encoder = [(3 * width, width), (width, width), *forward]  # queries, keys and values in one
    memory = [(2 * width, width)]  # keys and values that the decoder looks at
    decoder = [(3 * width, width), (width, width), (width, width), (width, width), *forward]
    return (encoder + memory) * shape.layers, decoder * shape.layers, [(shape.vocabulary, width)]


def fixed_search(beam: int, length: int) -> Search:
    """A search whose outputs all have so many tokens, the end counted: it is computed as every other."""
    method = "greedy" if beam == 1 else "beam"
    return Search(method=method, beam=beam, minimum_length=length - 1, maximum_length=length - 1)


def learn(job: Job) -> Figures:
    """A run directory with a model that has learned to answer every source with one sentence.

    So all outputs are equally long and end by themselves, with any engine and with nothing forbidden.
    """
    shape = SHAPES[job["shape"]]
    options = Train(
        max_steps=job["steps"], schedule="constant", warmup=20, rate=2e-3, label_smoothing=0.0, patience=0,
        validate_every=job["steps"], decode_limit=0, metric="loss", keep="last",
    )  # fmt: skip
    data = Data(prepared=job["prepared"], batch_tokens=1024, max_length=1024)
    search = Search(beam=job["beam"])
    model = model_section(shape) | {"dropout": 0.0}
    run = Run(seed=job["seed"], threads=job["threads"], data=data, text=TEXT, model=model, train=options, search=search)
    predictor = train_run(run, job["directory"], device="cpu", quiet=True)
    pairs = open_prepared(Path(job["prepared"])).valid_pairs
    outputs = predictor.translate([pair.source for pair in pairs])
    if [output.text for output in outputs] != [pair.target for pair in pairs]:
        raise RuntimeError(f"the sentence was not learned: {outputs[0].text}")
    return {}


if __name__ == "__main__":
    work({"train": train, "decode": decode, "products": products, "learn": learn})
