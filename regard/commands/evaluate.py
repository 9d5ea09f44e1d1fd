"""`regard evaluate`: a model on test pairs, or outputs that are already there, against references."""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from regard.commands.options import add_device, add_search, check_search, search_options, set_threads
from regard.errors import ConfigError

EPILOGUE = """\
examples:
  regard evaluate model test.tsv                                    the task's own metrics
  regard evaluate model test.en test.de --save results              keep hypotheses and result.json
  regard evaluate --hypotheses out.de --references test.de          no model needed
  regard evaluate --hypotheses a.de --against b.de --references test.de   is b really better than a?

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
        "--metrics", metavar="A,B", help="bleu, tokenised_bleu, chrf, exact_match, word_error, wer, cer"
    )
    parser.add_argument("--by-length", action="store_true", help="also a score for each range of source lengths")
    parser.add_argument("--samples", type=int, default=1000, help="bootstrap samples (0: no confidence intervals)")
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
    given = [*arguments.what, *arguments.override]
    arguments.override = [word for word in given if "=" in word]
    files = [word for word in given if "=" not in word]
    if arguments.hypotheses:
        if files:
            raise ConfigError("--hypotheses scores a file: no model or pairs can be given with it")
        result = score_files(arguments)
    elif len(files) in (2, 3):
        result = score_model(files[0], files[1:], arguments)
    else:
        raise ConfigError("expected a model and its test pairs (one file or two), or --hypotheses and --references")
    if arguments.json:
        print(json.dumps(result, ensure_ascii=False, indent=1))
    else:
        print_result(result)


def score_files(arguments: argparse.Namespace) -> dict[str, Any]:
    """Outputs in a file against references."""
    from regard.data.text import read_lines

    if not arguments.references:
        raise ConfigError("--hypotheses needs --references")
    hypotheses = list(read_lines(arguments.hypotheses))
    columns = [list(read_lines(path)) for path in arguments.references]
    check_counts(arguments.references, columns, arguments.hypotheses, hypotheses)
    references = [list(lines) for lines in zip(*columns, strict=True)]
    names = arguments.metrics.split(",") if arguments.metrics else ["bleu", "chrf", "exact_match"]
    result = scores(names, {"": (hypotheses, references)}, arguments.samples)
    if arguments.against:
        other = list(read_lines(arguments.against))
        check_counts(arguments.references[:1], columns[:1], arguments.against, other)
        result["comparison"] = compare(names, hypotheses, other, references, arguments.samples)
    if arguments.by_length:
        if not arguments.sources:
            raise ConfigError("--by-length needs --sources")
        lengths = [len(line.split()) for line in read_lines(arguments.sources)]
        result["by_length"] = length_rows(names[0], lengths, hypotheses, references)
    return result


def check_counts(names: list[str], columns: list[list[str]], name: str, lines: list[str]) -> None:
    """Files that belong together have the same number of lines."""
    from regard.errors import DataError

    for other, column in zip(names, columns, strict=True):
        if len(column) != len(lines):
            raise DataError(f"{name} has {len(lines)} lines, {other} has {len(column)}")


def score_model(model: str, files: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Translate the sources of test pairs and score the outputs."""
    from regard.commands.train import absolute
    from regard.data.normalise import Normaliser
    from regard.data.text import read_pairs
    from regard.predict import load

    predictor = load(model, *arguments.more, device=arguments.device)
    pairs = list(read_pairs(absolute(files)))
    search = check_search(predictor.search, search_options(arguments))
    start = time.monotonic()
    found = predictor.translate([pair.source for pair in pairs], **search.model_dump() | {"nbest": 1})
    seconds = time.monotonic() - start
    task = predictor.task
    outputs, references = [hypothesis.text for hypothesis in found], [pair.target for pair in pairs]
    texts = {"": (outputs, references)}
    names = arguments.metrics.split(",") if arguments.metrics else default_metrics(task.options.target)
    if "tokenised_bleu" in names:
        inner = task.options.moses or task.options.tokenised
        split = (
            task.target.normaliser if inner else Normaliser(task.options.model_copy(update={"moses": True}), "target")
        )
        tokenised = [task.inner_text(each.ids) if inner else split(each.text) for each in found]
        texts["tokenised_bleu"] = (tokenised, [split(reference) for reference in references])
    result = scores(names, texts, arguments.samples)
    likelihood = predictor.score([pair.source for pair in pairs], references)
    from regard.metrics import perplexity

    total = sum(each.log_probability for each in likelihood)
    result["scores"]["perplexity"] = as_row(perplexity(total, sum(len(each.ids) + 1 for each in likelihood)))
    result["lines"] = len(pairs)
    result["decoding_seconds"] = round(seconds, 2)
    result["search"] = search.model_dump(mode="json")
    result["notes"] = {what: number for what, number in predictor.counts.items() if number}
    lengths = [
        len(pair.source.split()) if task.options.source not in ("characters", "bytes") else len(pair.source)
        for pair in pairs
    ]
    result["by_length"] = length_rows(names[0], lengths, *texts.get(names[0], texts[""])) if arguments.by_length else []
    if arguments.save:
        save(Path(arguments.save), predictor.about, outputs, texts.get("tokenised_bleu"), result)
    return result


def default_metrics(target: str) -> list[str]:
    """What one wants to know: of sentences BLEU in both kinds and chrF, of strings whether they are right."""
    return (
        ["bleu", "tokenised_bleu", "chrf"]
        if target in ("bpe", "unigram")
        else ["exact_match", "word_error", "wer", "cer"]
    )


def as_row(score: Any) -> dict[str, Any]:
    """A score as plain values."""
    return {"value": score.value, "label": score.label, "signature": score.signature, "text": str(score)}


def scores(names: list[str], texts: dict[str, Any], samples: int) -> dict[str, Any]:
    """Each metric with its 95 % interval; a metric may have texts of its own."""
    from regard.metrics import compute, confidence

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
    from dataclasses import asdict

    from regard.metrics import paired_bootstrap

    return {name: asdict(paired_bootstrap(name, one, other, references, samples or 1000)) for name in names}


def length_rows(name: str, lengths: list[int], hypotheses: list[str], references: Any) -> list[dict[str, Any]]:
    """The score of each range of source lengths."""
    from dataclasses import asdict

    from regard.metrics import by_length

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


def save(directory: Path, about: dict[str, Any], outputs: list[str], tokenised: Any, result: dict[str, Any]) -> None:
    """Keep what anybody needs to score again: the outputs, the figures, how they came about."""
    from regard.data.text import write_line
    from regard.directory import write_json

    directory.mkdir(parents=True, exist_ok=True)
    files = {"hypotheses.txt": outputs}
    if tokenised:
        files["hypotheses.tokenised.txt"] = tokenised[0]
    for name, lines in files.items():
        with (directory / name).open("wb") as stream:
            for line in lines:
                write_line(stream, line)
    training = about.get("training", {})
    head = {"command": shlex.join(["regard", *sys.argv[1:]]), "commit": commit(), "training": training}
    write_json(
        directory / "result.json", {**head, "model": about["model"], "parameters": about.get("parameters"), **result}
    )


def commit() -> str | None:
    """The commit of the code, when it runs from a checkout."""
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5)  # noqa: S607
    except OSError:
        return None
    return done.stdout.strip() or None
