"""`regard compare`: several models trained alike and measured alike, in one table, one page and a few pictures."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from regard.commands.options import (
    add_device,
    add_search,
    as_utf8,
    divide,
    output_directory,
    positive,
    search_options,
    set_threads,
    termination,
)
from regard.config import Search
from regard.errors import ConfigError, RegardError
from regard.metrics import find_metric

if TYPE_CHECKING:
    from regard.study.compare import Question
    from regard.study.row import Row

EPILOGUE = """\
examples:
  regard compare rnn.toml transformer.toml -o comparison    train what is not trained, then compare
  regard compare rnn.toml runs/transformer -o comparison    a recipe and a finished run
  regard compare a b --test test.tsv -o comparison          two models on test pairs of your own
  regard compare *.toml -o comparison train.max_steps=2000  an override for every recipe
  regard compare teacher student -o comparison --also "teacher beam=1" --also "student engine=ctranslate2"
  regard compare *.toml -o comparison --reach loss=2.1 --sentence "a man sleeps ."

A stopped comparison goes on when the same command is given again: finished runs and measurements are passed over.
The first row is the one the others are compared with.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument(
        "what",
        nargs="*",
        metavar="RECIPE | MODEL | key=value",
        help="recipes (.toml), run or model directories; section.key=value is for every recipe",
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where runs, figures and page are left")
    parser.add_argument("--test", nargs="+", metavar="FILE", help="test pairs (default: data.test of the rows)")
    parser.add_argument(
        "--metrics", metavar="A,B", help="as for evaluate; the first is the main one (default: by the tokenizer)"
    )
    parser.add_argument("--samples", type=int, default=1000, metavar="N", help="bootstrap samples (0: no intervals)")
    parser.add_argument(
        "--reach",
        metavar="[NAME=]SCORE",
        help="the validation score whose training time is told, rates in %% (default: the best of the weakest row)",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sentence", metavar="TEXT", help="the sentence whose attention is shown")
    which.add_argument(
        "--line", type=positive, metavar="N", help="the same, by its test line (default: one of middling length)"
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar='"ROW key=value …"',
        help="one more row: a row or a model with another search, engine=ctranslate2 or rescore=MODEL (repeatable)",
    )
    parser.add_argument("--no-train", action="store_true", help="a row that is not trained yet is an error")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="rounds in which speed is measured")
    parser.add_argument(
        "--sentences", type=positive, default=50, metavar="N", help="sentences decoded one by one, for the latency"
    )
    parser.add_argument(
        "--batch",
        type=positive,
        default=0,
        metavar="N",
        help="sentences decoded together, for the throughput (default: as many as have 16,384 tokens × beam)",
    )
    parser.add_argument("--skip-speed", action="store_true", help="measure neither speed nor memory")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_search(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Train, measure, print and write."""
    set_threads(arguments)
    with termination(f"stopped; go on with: {arguments.command_line}"):
        rows, question = read_arguments(arguments)
        from regard.study.compare import compare
        from regard.study.report import write_all
        from regard.study.table import to_text

        comparison, failures = compare(rows, Path(arguments.output), question)
        written = write_all(Path(arguments.output), comparison, question.say)
    print(to_text(comparison))
    question.say(f"written: {', '.join(map(str, written))}")
    if failures:
        first = next(iter(failures.values()))
        told = "; ".join(f"{name}: {error}" for name, error in failures.items())
        failure = RegardError(f"{len(failures)} of {len(rows)} rows failed: {told}")
        failure.exit_code = first.exit_code
        raise failure


def is_search(word: str) -> bool:
    """Whether key=value is an option of the search for all rows; a recipe's have their section before them."""
    key = word.partition("=")[0]
    return key in Search.model_fields and key != "seed"


def read_arguments(arguments: argparse.Namespace) -> "tuple[list[Row], Question]":
    """The rows and what is asked of them; whatever is wrong is told before the work."""
    from regard.study.compare import Question, choose_sentence
    from regard.study.history import parse_reach
    from regard.study.row import find_rows, read_test

    test, rest = divide(arguments.test or [])
    words, given = divide([*arguments.what, *rest, *arguments.override])
    arguments.override = [word for word in given if is_search(word)]
    overrides = [word for word in given if not is_search(word)]
    if arguments.samples < 0:
        raise ConfigError(f"--samples {arguments.samples}: expected 0 or more")
    names = [name.strip() for name in arguments.metrics.split(",")] if arguments.metrics else []
    metrics = [name for name in names if name != "perplexity"]  # that comes in any case
    for name in metrics:
        find_metric(name)
    reach = None if arguments.reach is None else parse_reach(arguments.reach)
    if arguments.seed is not None:
        overrides.append(f"seed={arguments.seed}")
    rows = find_rows(words, output_directory(arguments.output), overrides, arguments.also)
    held_out = read_test(rows, test)
    if arguments.sentence is None:
        sentence = choose_sentence(held_out, arguments.line)
    else:
        sentence = as_utf8(arguments.sentence, "--sentence")
    question = Question(
        held_out=held_out,
        metrics=metrics,
        samples=arguments.samples,
        search=search_options(arguments),
        reach=reach,
        sentence=sentence,
        rounds=0 if arguments.skip_speed else arguments.rounds,
        sentences=arguments.sentences,
        batch=arguments.batch,
        only_trained=arguments.no_train,
        device=arguments.device,
        quiet=arguments.quiet,
        command=arguments.command_line,
    )
    return rows, question
