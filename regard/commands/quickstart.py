"""`regard quickstart`: two small models learn to read dates, on the spot and with no download.

Written dates in several languages and styles ("Sonntag, 15. November 2026") become ISO dates. The RNN with
additive attention and the Transformer are trained on the same pairs; both are tested on days that occur in
training in no style, and what they look at is measured and shown.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.commands.options import positive
from regard.config import Data, Run, Search, Text, Train
from regard.directory import write_json
from regard.origin import usable_cores

if TYPE_CHECKING:
    from regard.predict import Predictor
    from regard.tasks.made import DateExample

SAMPLES = 5
MODELS: dict[str, dict[str, Any]] = {
    "rnn": {"kind": "rnn", "cell": "gru", "width": 64, "embedding": 64, "attention": "additive", "dropout": 0.4},
    "transformer": {
        "kind": "transformer",
        "width": 128,
        "heads": 4,
        "encoder_layers": 2,
        "decoder_layers": 1,  # with two of them, some seeds spread what one head could show over several
        "feed_forward": 256,
        "dropout": 0.1,
    },
}
STEPS = {"rnn": 700, "transformer": 800}
RATES = {"rnn": 4e-3, "transformer": 2e-3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("-o", "--output", default="quickstart", metavar="DIR", help="where everything is left")
    parser.add_argument("--again", action="store_true", help="train again what is already there")
    parser.epilog = 'then:  regard attend quickstart/rnn "le 1er mai 2031"'
    parser.add_argument("--threads", type=positive, help="CPU threads (default: all cores)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the dates and of training")


def run(arguments: argparse.Namespace) -> None:
    """Make the data, train both models, measure, show."""
    import torch

    torch.set_num_threads(arguments.threads or usable_cores())
    directory = Path(arguments.output)
    if arguments.again:
        for name in ("data", "runs", "rnn", "transformer", "results.json"):
            path = directory / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if (directory / "results.json").exists():
        say(f"{directory}/ holds the finished quickstart; nothing is trained again (regard quickstart --again does).")
        results = json.loads((directory / "results.json").read_text(encoding="utf-8"))
    else:
        results = make(directory, arguments.seed)
    show(directory, results)


def say(text: str) -> None:
    """Tell the user, on stderr."""
    print(text, file=sys.stderr, flush=True)


def make(directory: Path, seed: int) -> dict[str, Any]:
    """All of it; a call that was interrupted goes on where it stopped."""
    from regard.pipeline import train
    from regard.tasks.made import dates, write_tsv

    say("making dates in ten languages from CLDR data …")
    corpus = dates(seed=seed)
    for name in ("train", "valid", "test"):
        write_tsv(directory / "data" / f"{name}.tsv", [example.pair for example in getattr(corpus, name)])
    results: dict[str, Any] = {}
    for name in MODELS:
        say(f"\ntraining the {name} on {len(corpus.train):,} dates")
        start = time.monotonic()
        options = make_options(name, directory / "data", seed)
        predictor = train(options, directory / "runs" / name, device="cpu", command="regard quickstart")
        seconds = time.monotonic() - start
        shutil.rmtree(directory / name, ignore_errors=True)
        shutil.copytree(directory / "runs" / name / "model", directory / name)
        say(f"testing the {name} on {len(corpus.test):,} dates it has never seen")
        results[name] = measure(predictor, corpus.test) | {"seconds": round(seconds, 1)}
        example = corpus.test[0].source
        predictor.attend(example).save(directory / f"report-{name}.html")
    write_json(directory / "results.json", results)
    return results


def make_options(name: str, data: Path, seed: int) -> Run:
    """The recipe of one of the two models."""
    data = data.resolve()
    return Run(
        seed=seed,
        data=Data(train=str(data / "train.tsv"), valid=str(data / "valid.tsv"), batch_tokens=1500, batch_rows=96),
        text=Text(source="bpe", target="characters", vocabulary=1200),
        model=MODELS[name],
        train=Train(
            max_steps=STEPS[name],
            rate=RATES[name],
            warmup=150,
            schedule="cosine",
            validate_every=200,
            decode_limit=200,
            patience=0,
            metric="exact_match",
            keep="last",
        ),
        search=Search(beam=3),
    )


def measure(predictor: "Predictor", examples: "Sequence[DateExample]") -> dict[str, Any]:
    """Exact match, where the digits look, and a few outputs."""
    outputs = [hypothesis.text for hypothesis in predictor.translate([example.source for example in examples])]
    right = [output == example.target for output, example in zip(outputs, examples, strict=True)]
    return {
        "exact_match": sum(right) / len(right),
        **look(predictor, examples),
        "tested": len(examples),
        "samples": [
            [example.source, output] for example, output in list(zip(examples, outputs, strict=True))[:SAMPLES]
        ],
    }


def look(predictor: "Predictor", examples: "Sequence[DateExample]") -> dict[str, Any]:
    """The share of cases in which the best cross head looks right.

    Right: the digits of the year put more than half of their attention on the word of the written date that
    says the year, and those of the month and the day likewise. `every_digit` asks it of each digit by itself.
    """
    from regard.data.batch import EOS

    parts: dict[str, list[bool]] = {}
    digits: dict[str, list[bool]] = {}
    task = predictor.task
    for example in examples:
        source, target = [*task.source.ids(example.source), EOS], [*task.target.ids(example.target), EOS]
        wanted = wanted_places(predictor, example)
        for layer in predictor.engine.attend(source, target):
            for number, weights in enumerate(layer.weights if layer.kind == "cross" else ()):  # [T,S]
                name = f"{layer.name}, head {number + 1}"
                shares = [weights[rows][:, places].sum(1) for rows, places in wanted]
                parts.setdefault(name, []).append(all(share.mean() > 0.5 for share in shares))
                digits.setdefault(name, []).append(all(share.min() > 0.5 for share in shares))
    best = max(parts, key=lambda name: sum(parts[name]))
    return {
        "attention_on_source_words": sum(parts[best]) / len(examples),
        "every_digit": sum(digits[best]) / len(examples),
        "attention_head": best,
    }


def wanted_places(predictor: "Predictor", example: "DateExample") -> list[tuple[slice, list[int]]]:
    """For year, month and day: the rows of its digits in the output, and the source pieces of its word."""
    from regard.tasks.made import TARGET_SPANS

    tokenizer = predictor.task.source.tokenizer
    ids = predictor.task.source.ids(example.source)
    ends = [len(tokenizer.decode(ids[: place + 1])) for place in range(len(ids))]
    begins = [0, *ends[:-1]]
    wanted = []
    for part, (first, last) in TARGET_SPANS.items():
        start, stop = example.words[part]
        places = [place for place in range(len(ids)) if begins[place] < stop and ends[place] > start]
        wanted.append((slice(first, last), places))
    return wanted


def show(directory: Path, results: dict[str, Any]) -> None:
    """What came out, and what to type next."""
    for name, result in results.items():
        print(f"\n{name}")
        for source, output in result["samples"]:
            print(f"  {source:40s} → {output}")
        print(f"  exact match on {result['tested']:,} dates never seen in training: {result['exact_match']:.1%}")
        print(
            f"  year, month and day look at their words in {result['attention_on_source_words']:.1%} of the cases"
            f"\n  ({result['attention_head']}; each single digit does in {result['every_digit']:.1%})"
        )
    print(f"""
see what they look at:   {directory}/report-rnn.html and {directory}/report-transformer.html (open in a browser)
in the terminal:         regard attend {directory}/rnn "Sonntag, 15. November 2026"
translate:               echo "le 1er mai 2031" | regard translate {directory}/transformer
your own pairs:          regard train pairs.tsv -o model        (source<TAB>target, a pair on each line)
                         regard translate model < input.txt > output.txt
""")
