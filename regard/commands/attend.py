"""`regard attend`: what every attention of a model looks at, as a page, a picture, data or in the terminal."""

import argparse
import sys
from pathlib import Path

from regard.commands.options import (
    add_device,
    add_rescore,
    add_search,
    as_utf8,
    search_options,
    set_threads,
)
from regard.config import change_search
from regard.errors import ConfigError

ENDINGS = (".html", ".png", ".svg", ".json")
EPILOGUE = """\
examples:
  regard attend model "a man sleeps ."                       a heat map in the terminal
  regard attend model "a man sleeps ." -o page.html          every layer and head, to explore
  regard attend model "a man sleeps ." -o page.html --nbest 5
  regard attend model "a man sleeps ." --target "ein Mann schläft ." -o map.png
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument("model", metavar="MODEL", help="model or run directory")
    parser.add_argument("text", help="the sentence (raw text)")
    parser.add_argument("-o", "--output", metavar="FILE", help=".html, .png, .svg or .json (none: the terminal)")
    parser.add_argument("--target", metavar="TEXT", help="look at this output instead of the model's own")
    add_rescore(parser)
    add_search(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Make and show the report."""
    set_threads(arguments)
    from regard.predict import load

    if arguments.output and Path(arguments.output).suffix.lower() not in ENDINGS:
        raise ConfigError(f"{arguments.output}: unknown ending; known: {', '.join(ENDINGS)}")
    text = as_utf8(arguments.text, "the text")
    target = None if arguments.target is None else as_utf8(arguments.target, "--target")
    predictor = load(arguments.model, device=arguments.device, rescore=arguments.rescore)
    search = change_search(predictor.search, search_options(arguments))
    report = predictor.attend(text, target, **search.model_dump())
    if arguments.output:
        print(f"written: {report.save(arguments.output)}", file=sys.stderr)
    else:
        report.to_terminal()
