"""Models must learn: copy, reverse and sort to a stated score, and the quickstart to its promise (`make learn`)."""

import json

import pytest

from regard.commands import quickstart
from regard.config import Data, Run, Search, Text, Train
from regard.tasks.made import MADE, write_tsv

pytestmark = [pytest.mark.learn, pytest.mark.timeout(900)]

MODELS = {
    "rnn-additive": {"kind": "rnn", "width": 96, "embedding": 48, "attention": "additive", "dropout": 0.1},
    "rnn-general": {
        "kind": "rnn",
        "cell": "lstm",
        "width": 96,
        "embedding": 48,
        "attention": "general",
        "dropout": 0.1,
    },
    "transformer-pre": {"kind": "transformer", "width": 64, "heads": 4, "feed_forward": 128, "dropout": 0.0},
    "transformer-post": {
        "kind": "transformer",
        "width": 64,
        "heads": 4,
        "feed_forward": 128,
        "norm": "post",
        "dropout": 0.0,
    },
}


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
@pytest.mark.parametrize("model", MODELS)
def test_learns_to(task, model, tmp_path):
    from regard.pipeline import train

    write_tsv(tmp_path / "train.tsv", MADE[task](8000, 1))
    write_tsv(tmp_path / "test.tsv", MADE[task](500, 2))
    run = Run(
        data=Data(train=str(tmp_path / "train.tsv"), batch_tokens=1500, valid_limit=300),
        text=Text(source="words", target="words", joint=True),
        model=MODELS[model],
        train=Train(
            max_steps=1500,
            rate=3e-3,
            warmup=200,
            schedule="cosine",
            validate_every=250,
            decode_limit=200,
            metric="exact_match",
            label_smoothing=0.0,
        ),
        search=Search(beam=3),
    )
    predictor = train(run, tmp_path / "run", device="cpu", quiet=True)
    pairs = [line.split("\t") for line in (tmp_path / "test.tsv").read_text().splitlines()]
    outputs = predictor.translate([source for source, _ in pairs])
    right = sum(output.text == target for output, (_, target) in zip(outputs, pairs, strict=True))
    assert right / len(pairs) >= 0.95


@pytest.mark.parametrize("seed", [2, 3])
def test_quickstart_keeps_its_promise_with_other_seeds(seed, tmp_path):
    quickstart.make(tmp_path, seed)
    results = json.loads((tmp_path / "results.json").read_text())
    for name in ("rnn", "transformer"):
        assert results[name]["exact_match"] >= 0.98
        assert results[name]["attention_on_source_words"] >= 0.9
