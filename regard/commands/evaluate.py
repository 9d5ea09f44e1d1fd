"""`regard evaluate`: a model on test pairs, or outputs that are already there, against references."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.commands.options import (
    add_device,
    add_rescore,
    add_search,
    divide,
    search_options,
    set_threads,
)
from regard.config import change_search
from regard.data.text import read_lines, read_pairs
from regard.errors import ConfigError, DataError
from regard.evaluation import (
    Texts,
    default_metrics,
    evaluate,
    hash_lines,
    length_rows,
    moses_tokeniser,
    save,
    scores,
    source_length,
)
from regard.metrics import METRICS, find_metric, paired_bootstrap
from regard.recipe import locate_corpus

if TYPE_CHECKING:
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
    add_rescore(parser)
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
    if arguments.metrics and not metric_names(arguments, []) and (arguments.hypotheses or arguments.by_length):
        raise ConfigError("--metrics perplexity: that is of a model's references; outputs need another metric")
    if arguments.save and Path(arguments.save).exists() and not Path(arguments.save).is_dir():
        raise ConfigError(f"--save {arguments.save}: exists and is not a folder")
    result = score_files(arguments) if arguments.hypotheses else score_model(files[0], files[1:], arguments)
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False, indent=1, allow_nan=False))
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
    texts: Texts = {"": (hypotheses, references)}
    result = scores(names, texts, arguments.samples)
    if arguments.against:
        other = matching(arguments.against, hypotheses, arguments.hypotheses)
        result["comparison"] = compare(names, texts, {"": other}, arguments.samples)
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
    predictor = load(model, *arguments.more, device=arguments.device, rescore=arguments.rescore)
    pairs = list(read_pairs(locate_corpus(files) or ""))
    if not pairs:
        raise DataError(f"{files[0]}: no pairs in it")
    sources = [pair.source for pair in pairs]
    other = matching(arguments.against, sources, files[0]) if arguments.against else []
    search = change_search(predictor.search, search_options(arguments) | {"nbest": 1})
    kinds = predictor.task.options
    names = metric_names(arguments, default_metrics(kinds))
    with showing(predictor, len(pairs)):
        result, texts = evaluate(predictor, pairs, search, names, arguments.samples)
    if arguments.against:
        tokenised = list(map(moses_tokeniser(kinds), other))
        result["comparison"] = compare(names, texts, {"": other, "tokenised_bleu": tokenised}, arguments.samples)
    if arguments.by_length:
        lengths = [source_length(source, kinds.source) for source in sources]
        result["by_length"] = length_rows(names[0], lengths, *texts.get(names[0], texts[""]))
    if arguments.save:
        about = describe(arguments, time.monotonic() - start, hash_lines(*zip(*pairs, strict=True)))
        about["model"] = {key: predictor.about.get(key) for key in ("name", "model", "parameters", "training")}
        save(Path(arguments.save), texts, {**about, **result})
    return result


@contextmanager
def showing(predictor: "Predictor", lines: int) -> Iterator[None]:
    """Tell on stderr how far a long evaluation is."""
    from regard.training.progress import Progress

    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done = min(done + more, lines)  # a long line is translated in several parts
        progress.advance(done, more)

    with Progress() as progress:
        progress.begin(0, lines, "line")
        predictor.watch = advance
        try:
            yield
        finally:
            predictor.watch = None


def compare(names: list[str], texts: Texts, others: dict[str, list[str]], samples: int) -> dict[str, Any]:
    """Paired bootstrap of two systems on each metric, in the form that metric takes."""
    found: dict[str, Any] = {}
    for name in names:
        outputs, references = texts.get(name, texts[""])
        other = others[name if name in texts else ""]
        found[name] = asdict(paired_bootstrap(name, outputs, other, references, samples or 1000))
    return found


def print_result(result: dict[str, Any]) -> None:
    """Scores with their kind and interval, the comparison, the rows by length."""
    for row in result["scores"].values():
        low, high = row.get("interval", (None, None))
        scale = 100 if "%" in row["text"] else 1
        print(row["text"] + (f"  (95 %: {scale * low:.2f} … {scale * high:.2f})" if low is not None else ""))
    for name, row in result.get("comparison", {}).items():
        verdict = "significant" if row["p_value"] < 0.05 else "not significant"
        scale, unit = (100, " %") if "%" in result["scores"][name]["text"] else (1, "")
        one, other, change, low, high = (scale * row[key] for key in ("a", "b", "difference", "low", "high"))
        print(
            f"{name}: {one:.4g}{unit} against {other:.4g}{unit}, difference {change:+.4g}{unit} "
            f"(95 %: {low:+.4g} … {high:+.4g}), p = {row['p_value']:.3f}, {verdict}"
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
