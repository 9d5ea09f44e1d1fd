"""`regard train`: from a file of pairs, or by a recipe, to a finished model."""

import argparse
import sys
from collections.abc import Sequence

from regard.commands.options import add_device, divide, set_threads, termination
from regard.config import Run

EPILOGUE = """\
examples:
  regard train pairs.tsv -o model                          everything is chosen from the corpus
  regard train train.en train.de -o model                  two aligned files
  regard train recipe.toml -o model train.max_steps=2000   a recipe with an override
  regard train new.tsv -o tuned --from model               go on from an existing model
  regard train --prepared corpus -o model                  a corpus made by `regard prepare`

A stopped run goes on when the same command is given again. A file of pairs is source<TAB>target (.tsv) or
JSON lines with "source" and "target" (.jsonl), plain or .gz/.xz.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument("--prepared", metavar="DIR", help="use this corpus, made by `regard prepare`")
    add_run(parser)


def add_run(parser: argparse.ArgumentParser) -> None:
    """What every command that trains has."""
    add_corpus(parser)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the run directory")
    parser.add_argument(
        "--allow-change", action="append", default=[], metavar="KEY", help="this option may differ on resume"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_device(parser)


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """What `train` and `prepare` read."""
    parser.add_argument("what", nargs="*", metavar="FILE | key=value", help="a recipe (.toml), a file of pairs, or two")
    parser.add_argument("--valid", nargs="+", metavar="FILE", help="validation pairs (default: a part is split off)")
    parser.add_argument("--from", dest="start", metavar="MODEL", help="go on from this model, with its tokenizers")


def run(arguments: argparse.Namespace) -> None:
    """Train."""
    carry_out(arguments)


def carry_out(arguments: argparse.Namespace, more_overrides: Sequence[str] = ()) -> None:
    """Train by the options that were given, and some more."""
    set_threads(arguments)
    with termination(f"stopped before training began; go on with: {arguments.command_line}"):
        options = make_options(arguments, more_overrides)
        from regard.pipeline import train

        train(
            options,
            arguments.output,
            device=arguments.device,
            allow=arguments.allow_change,
            quiet=arguments.quiet,
            command=arguments.command_line,
        )


def make_options(arguments: argparse.Namespace, more_overrides: Sequence[str] = ()) -> Run:
    """The options of the run; tells why they were chosen where nobody gave them."""
    from regard.recipe import make_run

    valid, rest = divide(arguments.valid or [])
    test, more = divide(getattr(arguments, "test", None) or [])
    files, overrides = divide([*arguments.what, *rest, *more, *more_overrides])
    if not files:  # the recipe may stand behind --valid FILE or --test FILE
        files = [name for name in [*valid, *test] if name.endswith(".toml")]
        valid, test = ([name for name in names if name not in files] for names in (valid, test))
    for name in ("seed", "threads"):
        if (value := getattr(arguments, name, None)) is not None:
            overrides.append(f"{name}={value}")
    prepared = getattr(arguments, "prepared", None)
    teachers = [arguments.teacher, *arguments.more] if hasattr(arguments, "teacher") else []
    found, reasons = make_run(
        files,
        arguments.output,
        overrides,
        valid=valid,
        test=test,
        start=arguments.start,
        prepared=prepared,
        teacher=teachers,
    )
    if not getattr(arguments, "quiet", False):
        for line in reasons:
            print(line, file=sys.stderr)
    return found
