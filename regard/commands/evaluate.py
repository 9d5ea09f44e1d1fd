"""`regard evaluate`: a model on test pairs, or outputs that are already there, against references."""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.commands.options import add_device, add_search, check_search, divide, search_options, set_threads
from regard.data.batch import Hypothesis
from regard.data.normalise import Normaliser
from regard.data.text import read_lines, read_pairs, write_line
from regard.directory import write_json
from regard.errors import ConfigError, DataError
from regard.metrics import METRICS, by_length, compute, confidence, find_metric, paired_bootstrap, perplexity
from regard.recipe import locate_corpus

if TYPE_CHECKING:
    from regard.config import Text
    from regard.predict import Predictor

EPILOGUE = """\
examples:
  regard evaluate model test.tsv                                    the task's own metrics
  regard evaluate model test.en test.de --save results              keep hypotheses and result.json
  regard evaluate --hypotheses out.de --references test.de          no model needed
  regard evaluate --hypotheses a.de --against b.de --references test.de   is b really better than a?
  regard evaluate model test.tsv --against b.de --by-length         the same for a model's outputs

BLEU is printed with its kind: sacreBLEU's on finished text, with its signature, or the classical one on
tokenised lower-case text.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument(
        "what", nargs="*", metavar="MODEL FILE…", help="a model, then a file of pairs or two aligned ones"
    )
    parser.add_argument("--hypotheses", metavar="FILE", help="outputs to score, instead of a model")
    parser.add_argument("--references", metavar="FILE", action="append", help="one or several reference files")
    parser.add_argument("--against", metavar="FILE", help="outputs of a second system, for a paired bootstrap")
    parser.add_argument("--sources", metavar="FILE", help="source lines, for scores by length")
    parser.add_argument(
        "--metrics",
        metavar="A,B",
        help=", ".join(METRICS),
    )
    parser.add_argument("--by-length", action="store_true", help="also a score for each range of source lengths")
    parser.add_argument(
        "--samples", type=int, default=1000, metavar="N", help="bootstrap samples (0: no confidence intervals)"
    )
    parser.add_argument("--save", metavar="DIR", help="write hypotheses.txt and result.json there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "-m", "--more", action="append", default=[], metavar="MODEL", help="further models: an ensemble"
    )
    add_search(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Score and print."""
    set_threads(arguments)
    files, arguments.override = divide([*arguments.what, *arguments.override])
    if arguments.hypotheses and files:
        raise ConfigError("--hypotheses scores a file: no model or pairs can be given with it")
    if files and (arguments.references or arguments.sources):
        raise ConfigError("--references and --sources belong to --hypotheses; a model's test pairs hold both")
    if not arguments.hypotheses and len(files) not in (2, 3):
        raise ConfigError("expected a model and its test pairs (one file or two), or --hypotheses and --references")
    for name in metric_names(arguments, []):
        find_metric(name)  # a wrong name is told before the work
    result = score_files(arguments) if arguments.hypotheses else score_model(files[0], files[1:], arguments)
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False, indent=1))
    else:
        print_result(result)


def metric_names(arguments: argparse.Namespace, default: list[str]) -> list[str]:
    """What was asked for; the perplexity of a model comes in any case."""
    given = [name.strip() for name in arguments.metrics.split(",")] if arguments.metrics else default
    return [name for name in given if name != "perplexity"]


def score_files(arguments: argparse.Namespace) -> dict[str, Any]:
    """Outputs in a file against references."""
    if not arguments.references:
        raise ConfigError("--hypotheses needs --references")
    if arguments.by_length and not arguments.sources:
        raise ConfigError("--by-length needs --sources")
    start = time.monotonic()
    hypotheses = list(read_lines(arguments.hypotheses))
    columns = [matching(path, hypotheses, arguments.hypotheses) for path in arguments.references]
    references = [list(lines) for lines in zip(*columns, strict=True)]
    names = metric_names(arguments, ["bleu", "chrf", "exact_match"])
    texts = {"": (hypotheses, references)}
    result = scores(names, texts, arguments.samples)
    if arguments.against:
        other = matching(arguments.against, hypotheses, arguments.hypotheses)
        result["comparison"] = compare(names, hypotheses, other, references, arguments.samples)
    if arguments.by_length:
        lengths = [len(line.split()) for line in matching(arguments.sources, hypotheses, arguments.hypotheses)]
        result["by_length"] = length_rows(names[0], lengths, hypotheses, references)
    if arguments.save:
        about = describe(arguments, time.monotonic() - start, hash_lines(*columns))
        save(Path(arguments.save), texts, {**about, **result})
    return result


def matching(path: str, lines: list[str], name: str) -> list[str]:
    """The lines of a file that must be as many as those of another one."""
    found = list(read_lines(path))
    if len(found) != len(lines):
        raise DataError(f"{name} has {len(lines)} lines, {path} has {len(found)}")
    return found


def score_model(model: str, files: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Translate the sources of test pairs and score the outputs."""
    from regard.predict import load

    start = time.monotonic()
    predictor = load(model, *arguments.more, device=arguments.device)
    pairs = list(read_pairs(locate_corpus(files) or ""))
    if not pairs:
        raise DataError(f"{files[0]}: no pairs in it")
    search = check_search(predictor.search, search_options(arguments) | {"nbest": 1})
    begun = time.monotonic()
    found = predictor.nbest([pair.source for pair in pairs], **search.model_dump())
    seconds = time.monotonic() - begun
    best = [outputs[0] for outputs in found]
    names = metric_names(arguments, default_metrics(predictor.task.options))
    texts = scored_texts(predictor, best, [pair.target for pair in pairs], "tokenised_bleu" in names)
    result = scores(names, texts, arguments.samples)
    likelihood = predictor.score([pair.source for pair in pairs], [pair.target for pair in pairs])
    total = sum(each.log_probability for each in likelihood)
    result["scores"]["perplexity"] = as_row(perplexity(total, sum(len(each.ids) + 1 for each in likelihood)))
    result["lines"] = len(pairs)
    result["decoding_seconds"] = round(seconds, 2)
    result["search"] = search.model_dump(mode="json")
    result["notes"] = {what: number for what, number in predictor.counts.items() if number}
    if arguments.against:
        outputs, references = texts[""]
        other = matching(arguments.against, outputs, files[0])
        result["comparison"] = compare(names, outputs, other, references, arguments.samples)
    if arguments.by_length:
        lengths = [source_length(predictor, pair.source) for pair in pairs]
        result["by_length"] = length_rows(names[0], lengths, *texts.get(names[0], texts[""]))
    if arguments.save:
        about = describe(arguments, time.monotonic() - start, hash_lines(*zip(*pairs, strict=True)))
        about["model"] = {key: predictor.about.get(key) for key in ("name", "model", "parameters", "training")}
        save(Path(arguments.save), texts, {**about, **result})
    return result


def scored_texts(
    predictor: "Predictor", found: list[Hypothesis], references: list[str], tokenised: bool
) -> dict[str, tuple[list[str], list[str]]]:
    """Finished outputs with their references and, for the classical BLEU, both in tokenised form."""
    task = predictor.task
    texts = {"": ([each.text for each in found], references)}
    if tokenised:
        moses = Normaliser(task.options.model_copy(update={"moses": not task.options.tokenised}), "target")
        inner = [task.inner_text(each.ids) if task.options.moses else moses(each.text) for each in found]
        texts["tokenised_bleu"] = (inner, [moses(reference) for reference in references])
    return texts


def source_length(predictor: "Predictor", text: str) -> int:
    """Words, or characters where the model reads characters."""
    return len(text) if predictor.task.options.source in ("characters", "bytes") else len(text.split())


def default_metrics(text: "Text") -> list[str]:
    """What one wants to know: of sentences BLEU in both kinds and chrF, of strings whether they are right."""
    if text.target not in ("bpe", "unigram"):
        return ["exact_match", "word_error", "wer", "cer"]
    lower = "lower_" if text.lowercase else ""  # the case of what is always lower case says nothing
    return [f"{lower}bleu", "tokenised_bleu", f"{lower}chrf"]


def as_row(score: Any) -> dict[str, Any]:
    """A score as plain values."""
    return {"value": score.value, "label": score.label, "signature": score.signature, "text": str(score)}


def scores(names: list[str], texts: dict[str, Any], samples: int) -> dict[str, Any]:
    """Each metric with its 95 % interval; a metric may have texts of its own."""
    rows: dict[str, Any] = {}
    for name in names:
        hypotheses, references = texts.get(name, texts[""])
        rows[name] = as_row(compute([name], hypotheses, references)[name])
        if samples:
            interval = confidence(name, hypotheses, references, samples)
            rows[name]["interval"] = [interval.low, interval.high]
    return {"scores": rows}


def compare(names: list[str], one: list[str], other: list[str], references: Any, samples: int) -> dict[str, Any]:
    """Paired bootstrap of two systems on each metric."""
    return {name: asdict(paired_bootstrap(name, one, other, references, samples or 1000)) for name in names}


def length_rows(name: str, lengths: list[int], hypotheses: list[str], references: Any) -> list[dict[str, Any]]:
    """The score of each range of source lengths."""
    return [asdict(row) for row in by_length(name, lengths, hypotheses, references)]


def print_result(result: dict[str, Any]) -> None:
    """Scores with their kind and interval, the comparison, the rows by length."""
    for row in result["scores"].values():
        low, high = row.get("interval", (None, None))
        scale = 100 if "%" in row["text"] else 1
        print(row["text"] + (f"  (95 %: {scale * low:.2f} … {scale * high:.2f})" if low is not None else ""))
    for name, row in result.get("comparison", {}).items():
        verdict = "significant" if row["p_value"] < 0.05 else "not significant"
        print(
            f"{name}: {row['a']:.4g} against {row['b']:.4g}, difference {row['difference']:+.4g} "
            f"(95 %: {row['low']:+.4g} … {row['high']:+.4g}), p = {row['p_value']:.3f}, {verdict}"
        )
    if result.get("by_length"):
        print("source length   lines   score")
        for row in result["by_length"]:
            print(f"{row['first']:5d} … {row['last']:<5d} {row['count']:7,d}   {row['value']:.4g}")
    for what, number in result.get("notes", {}).items():
        print(f"{what}: {number}", file=sys.stderr)


def describe(arguments: argparse.Namespace, seconds: float, data_sha256: str) -> dict[str, Any]:
    """How the figures came about."""
    from regard.origin import origin

    return origin(arguments.command_line, 1 if arguments.seed is None else arguments.seed, seconds, data_sha256)


def hash_lines(*columns: Sequence[str]) -> str:
    """The sha256 of aligned lines, with a TAB between the columns: that of a TSV file."""
    digest = hashlib.sha256()
    for row in zip(*columns, strict=True):
        digest.update("\t".join(row).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def save(directory: Path, texts: dict[str, Any], result: dict[str, Any]) -> None:
    """Keep what anybody needs to score again: the outputs, the figures, how they came about."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, (lines, _) in texts.items():
        ending = ".tokenised.txt" if name else ".txt"
        with (directory / f"hypotheses{ending}").open("wb") as stream:
            for line in lines:
                write_line(stream, line)
    write_json(directory / "result.json", result)
