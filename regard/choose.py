"""Zero configuration: tokenizer, model size and schedule chosen from the corpus itself, with the reasons.

Nothing is taken from file names. The whole corpus is read once; what decides is how long the lines are, how
many different words and characters there are, and how often each is seen.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import Data, Run, Search, Text, TokenizerKind, Train, validate
from regard.data.text import Pair, read_pairs
from regard.directory import read_directory
from regard.errors import DataError

SAMPLE = 200_000  # pairs looked at; more change nothing


@dataclass(frozen=True)
class SideFacts:
    """What decides about one side."""

    lines: int
    words: int  # in all
    word_types: int
    characters: Counter[str]
    single: float  # share of lines that are one word

    @property
    def symbols(self) -> bool:
        """Few different words, each seen often: commands, phonemes, tags."""
        return self.word_types <= 1000 and self.words >= 20 * self.word_types and self.single < 0.9


def study(lines: Iterable[str]) -> SideFacts:
    """Count one side of a corpus."""
    words: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    number = single = 0
    for line in lines:
        parts = line.split()
        words.update(parts)
        characters.update(line)
        number += 1
        single += len(parts) <= 1
    return SideFacts(number, words.total(), len(words), characters, single / max(number, 1))


def choose(data: Data) -> tuple[Run, list[str]]:
    """Options for a corpus that `data` tells how to read, and one line of reason for each choice."""
    pairs: list[Pair] = []
    total = 0
    for pair in read_pairs(data.train or "", data.format, data.source_key, data.target_key, data.decode):
        total += 1
        if total <= SAMPLE:
            pairs.append(pair)
    if not pairs:
        raise DataError(f"{data.train}: no pairs in it")
    source, target = study(pair.source for pair in pairs), study(pair.target for pair in pairs)
    reasons = [f"{total:,} pairs; {source.words / len(pairs):.1f} → {target.words / len(pairs):.1f} words on average"]
    text = choose_text(source, target, total / len(pairs), reasons)
    tokens = int((source.words + target.words) * total / len(pairs))
    subwords = "bpe" in (text.source, text.target)
    model, train, batches = (choose_sentences if subwords else choose_strings)(total, tokens, text, reasons)
    run = Run(
        data=data.model_copy(update=batches),
        text=text,
        model=model,
        train=Train(**train),
        search=Search(beam=5),
    )
    if data.valid is None:
        number = min(data.valid_fraction * total, data.valid_limit)
        reasons.append(f"validation: about {number:.0f} pairs split off (equal sources stay together)")
    return run, ["chosen from the corpus (written to run.toml):", *(f"  {reason}" for reason in reasons)]


def choose_text(source: SideFacts, target: SideFacts, scale: float, reasons: list[str]) -> Text:
    """Tokenizers of both sides."""
    kinds: list[TokenizerKind] = [
        choose_kind(side, name, reasons) for side, name in ((source, "source"), (target, "target"))
    ]
    form = choose_form(source, kinds[0], reasons)
    options: dict[str, Any] = {
        "source": kinds[0],
        "target": kinds[1],
        "source_unicode": form,
        "target_unicode": "NFC" if kinds[1] == "bpe" else "none",
    }
    if kinds == ["bpe", "bpe"]:
        shared = overlap(source.characters, target.characters)
        options["joint"] = shared > 0.75
        words = (source.words + target.words) * scale / (1 if options["joint"] else 2)
        options["vocabulary"] = int(min(32000, max(600, 100 * round(5 * words**0.5 / 100))))
        how = "one vocabulary for both sides" if options["joint"] else "a vocabulary for each side"
        reasons.append(f"{how} of {options['vocabulary']:,} pieces ({shared:.0%} of the characters in common)")
    elif "bpe" in kinds:
        words = (source.words if kinds[0] == "bpe" else target.words) * scale
        options["vocabulary"] = int(min(32000, max(600, 100 * round(5 * words**0.5 / 100))))
    return Text(**options)


def choose_kind(side: SideFacts, name: str, reasons: list[str]) -> TokenizerKind:
    """Words, characters or subwords."""
    if side.symbols:
        reasons.append(f"{name}: words, since there are only {side.word_types} and each is seen often")
        return "words"
    if side.single > 0.5:
        reasons.append(f"{name}: characters, since {side.single:.0%} of the lines are one word")
        return "characters"
    reasons.append(f"{name}: BPE subwords, since the lines are sentences with {side.word_types:,} different words")
    return "bpe"


def choose_form(side: SideFacts, kind: TokenizerKind, reasons: list[str]) -> str:
    """NFD where it takes many composed characters apart into few."""
    apart: set[str] = set()
    for character in side.characters:
        apart.update(unicodedata.normalize("NFD", character))
    if kind == "characters" and len(apart) < 0.5 * len(side.characters):
        reasons.append(f"source: NFD, since it makes {len(apart)} different characters of {len(side.characters)}")
        return "NFD"
    return "NFC"


def overlap(one: Counter[str], other: Counter[str]) -> float:
    """Share of running characters on both sides that the other side has too (spaces aside)."""
    sides = [Counter({key: value for key, value in side.items() if not key.isspace()}) for side in (one, other)]
    common = sides[0].keys() & sides[1].keys()
    return min(sum(side[key] for key in common) / max(side.total(), 1) for side in sides)


Choice = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # model, train, data sections


def choose_strings(pairs: int, tokens: int, text: Text, reasons: list[str]) -> Choice:
    """Words or symbols on both sides: spelling to sound, names, inflections, commands."""
    reasons.append("model: RNN with additive attention, which learns string-to-string tasks from few pairs")
    small = pairs < 20_000
    model = {
        "kind": "rnn",
        "cell": "lstm",
        "width": 256,
        "embedding": 128,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "attention": "additive",
        "dropout": 0.4 if small else 0.2,
    }
    train = {
        "max_steps": 6000 if small else 30_000,
        "max_epochs": 60 if small else 0,
        "rate": 2e-3,
        "warmup": 200,
        "schedule": "inverse_sqrt",
        "metric": "exact_match",
        "patience": 15,
        "average": 5,
        "decode_limit": 1000,
    }
    return model, train, {"batch_tokens": 1024 if small else 4096}


def choose_sentences(pairs: int, tokens: int, text: Text, reasons: list[str]) -> Choice:
    """Sentences: a Transformer whose size follows the corpus."""
    sizes = [  # up to so many words: width, layers, feed-forward, heads, dropout, rate, warm-up
        (3_000_000, 128, 4, 256, 4, 0.3, 3e-3, 400),
        (10**18, 256, 4, 1024, 8, 0.1, 2e-3, 4000),  # what a laptop can train; larger ones need a recipe
    ]
    _, width, layers, inner, heads, dropout, rate, warmup = next(size for size in sizes if tokens <= size[0])
    reasons.append(f"model: Transformer of width {width}, {layers}+{layers} layers, for {tokens:,} running words")
    model = {
        "kind": "transformer",
        "width": width,
        "heads": heads,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "feed_forward": inner,
        "norm": "pre",
        "tie": "all" if text.joint else "output",
        "dropout": dropout,
    }
    train = {
        "max_steps": 8000 if width == 128 else 50_000,
        "schedule": "cosine",
        "rate": rate,
        "warmup": warmup,
        "patience": 10,
        "average": 10,
        "metric": "loss",
        "decode_limit": 200,
    }
    if width == 128:
        return model, train, {"batch_tokens": 2048}
    return model, {**train, "accumulate": 4}, {"batch_tokens": 1024}  # an update of 4096 tokens, in less memory


def follow_teacher(teacher: str | Path, data: Data) -> tuple[Run, list[str]]:
    """Options for a student of a model: its text and kind, with most layers where they cost a sentence only once."""
    directory, config = read_directory(teacher)
    chosen, reasons = choose(data)
    model = dict(config["model"])
    layers = ""
    if model.get("kind", "transformer") == "transformer":
        dropout = min(model.get("dropout", 0.1), 0.1)  # a teacher's outputs are more regular than people's
        depth = 2 * model.get("encoder_layers", 6)
        model |= {"encoder_layers": depth, "decoder_layers": 1, "norm": "pre", "dropout": dropout}
        layers = f" with {depth}+1 layers"
    patience = 0 if chosen.train.schedule == "cosine" else chosen.train.patience
    train = chosen.train.model_copy(update={"metric": "auto", "patience": patience})
    values = {
        "data": chosen.data.model_dump(mode="json") | {"max_length": config.get("longest", 256)},
        "text": config["text"],
        "model": model,
        "train": train.model_dump(mode="json"),
        "search": config["search"],
    }
    kept = [reasons[1], *(line for line in reasons if "validation" in line)]  # the rest is about another model
    return validate(Run, values, str(directory)), [f"student: as {directory}{layers} (written to run.toml)", *kept]


def follow_model(start: str | Path, data: Data) -> tuple[Run, list[str]]:
    """Options for going on from a model on new pairs: its own model and text, a gentle schedule."""
    directory, config = read_directory(start)
    values = {
        "data": data.model_dump(mode="json") | {"max_length": config.get("longest", 256)},
        "text": config["text"],
        "model": config["model"],
        "search": config["search"],
        "train": {"schedule": "inverse_sqrt", "rate": 5e-4, "warmup": 100, "max_steps": 2000, "patience": 5},
    }
    return validate(Run, values, str(directory)), [f"model, tokenizers and search as in {directory}; rate 5e-4"]
