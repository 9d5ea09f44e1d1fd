"""A model on test pairs: its outputs, scored against the references with intervals and by length, and kept."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from regard.config import Search, Text
from regard.data.batch import Hypothesis
from regard.data.normalise import Normaliser
from regard.data.text import Pair, write_line
from regard.directory import write_json
from regard.metrics import Score, by_length, compute, confidence, perplexity
from regard.predict import Predictor

# outputs and their references, under "" and under the name of a metric that has texts of its own
Texts = dict[str, tuple[list[str], Any]]


def evaluate(
    predictor: Predictor, pairs: Sequence[Pair], search: Search, names: Sequence[str], samples: int
) -> tuple[dict[str, Any], Texts]:
    """Translate the sources of test pairs and score the outputs; the perplexity of the references comes in any case."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    begun = time.monotonic()
    found = predictor.nbest(sources, **search.model_dump())
    seconds = time.monotonic() - begun
    texts = scored_texts(predictor, [outputs[0] for outputs in found], references, "tokenised_bleu" in names)
    result = scores(names, texts, samples)
    fitting = [pair for pair in pairs if predictor.fits(pair.source, pair.target)]
    scored = predictor.score([pair.source for pair in fitting], [pair.target for pair in fitting])
    likelihood = [each for each in scored if math.isfinite(each.log_probability)]
    total = sum(each.log_probability for each in likelihood)
    tokens = sum(len(each.ids) + 1 for each in likelihood)
    likely = perplexity(total, tokens) if tokens else perplexity(-math.inf, 1)  # there is no pair to tell it from
    result["scores"]["perplexity"] = as_row(likely)
    result["lines"] = len(pairs)
    result["decoding_seconds"] = round(seconds, 2)
    result["search"] = search.model_dump(mode="json")
    counts = predictor.counts | Counter({"pairs too long for the perplexity": len(pairs) - len(fitting)})
    counts["references the model cannot write"] = len(scored) - len(likelihood)
    result["notes"] = {what: number for what, number in counts.items() if number}
    return result, texts


def scored_texts(predictor: Predictor, found: list[Hypothesis], references: list[str], tokenised: bool) -> Texts:
    """Finished outputs with their references and, for the classical BLEU, both in tokenised form."""
    task = predictor.task
    texts: Texts = {"": ([each.text for each in found], references)}
    if tokenised:
        moses = moses_tokeniser(task.options)
        inner = [task.inner_text(each.ids) if task.options.moses else moses(each.text) for each in found]
        texts["tokenised_bleu"] = (inner, tokenised_references(task.options, references))
    return texts


def tokenised_references(options: Text, references: Sequence[str]) -> list[str]:
    """References in the form the classical BLEU of a model with these text options takes."""
    return list(map(moses_tokeniser(options), references))


def moses_tokeniser(options: Text) -> Normaliser:
    """The target side's normaliser, with Moses tokenisation unless the text is tokenised already."""
    return Normaliser(options.model_copy(update={"moses": not options.tokenised}), "target")


def source_length(text: str, tokenizer: str) -> int:
    """Words, or characters where the model reads characters."""
    return len(text) if tokenizer in ("characters", "bytes") else len(text.split())


def default_metrics(text: Text) -> list[str]:
    """What one wants to know: of sentences BLEU in both kinds and chrF, of strings whether they are right."""
    if text.target not in ("bpe", "unigram"):
        return ["exact_match", "word_error", "wer", "cer"]
    lower = "lower_" if text.lowercase else ""  # the case of what is always lower case says nothing
    return [f"{lower}bleu", "tokenised_bleu", f"{lower}chrf"]


def as_row(score: Score) -> dict[str, Any]:
    """A score as plain values; one that is no number, as the perplexity of what cannot be, is None."""
    value = score.value if math.isfinite(score.value) else None
    return {"value": value, "label": score.label, "signature": score.signature, "text": str(score)}


def scores(names: Sequence[str], texts: Texts, samples: int) -> dict[str, Any]:
    """Each metric with its 95 % interval."""
    rows: dict[str, Any] = {}
    for name in names:
        hypotheses, references = texts.get(name, texts[""])
        rows[name] = as_row(compute([name], hypotheses, references)[name])
        if samples:
            interval = confidence(name, hypotheses, references, samples)
            rows[name]["interval"] = [interval.low, interval.high]
    return {"scores": rows}


def length_rows(name: str, lengths: list[int], hypotheses: list[str], references: Any) -> list[dict[str, Any]]:
    """The score of each range of source lengths."""
    return [asdict(row) for row in by_length(name, lengths, hypotheses, references)]


def hash_lines(*columns: Sequence[str]) -> str:
    """The sha256 of aligned lines, with a TAB between the columns: that of a TSV file."""
    digest = hashlib.sha256()
    for row in zip(*columns, strict=True):
        digest.update("\t".join(row).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def save(directory: Path, texts: Texts, result: dict[str, Any]) -> None:
    """Keep what anybody needs to score again: the outputs, the figures, how they came about."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, (lines, _) in texts.items():
        ending = ".tokenised.txt" if name else ".txt"
        with (directory / f"hypotheses{ending}").open("wb") as stream:
            for line in lines:
                write_line(stream, line)
    write_json(directory / "result.json", result)


def spread(items: Sequence[Any], number: int) -> list[Any]:
    """At most `number` items, evenly over the whole."""
    if len(items) <= number:
        return list(items)
    return [items[place * len(items) // number] for place in range(number)]
