"""`regard attend`: what every attention of a model looks at, as a page, a picture, data or in the terminal."""

import argparse
import sys

from regard.commands.options import add_device, add_search, check_search, search_options, set_threads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = 'example:  regard attend model "a man sleeps ." -o attention.html'
    parser.add_argument("model", metavar="MODEL", help="model or run directory")
    parser.add_argument("text", help="the sentence (raw text)")
    parser.add_argument("-o", "--output", metavar="FILE", help=".html, .png, .svg or .json (none: the terminal)")
    parser.add_argument("--target", metavar="TEXT", help="look at this output instead of the model's own")
    add_search(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Make and show the report."""
    set_threads(arguments)
    from regard.errors import DataError
    from regard.predict import load

    if not arguments.text.strip():
        raise DataError("the text is blank: there is nothing to look at")
    predictor = load(arguments.model, device=arguments.device)
    search = check_search(predictor.search, search_options(arguments))
    report = predictor.attend(arguments.text, arguments.target, **search.model_dump())
    if arguments.output:
        print(f"written: {report.save(arguments.output)}", file=sys.stderr)
    else:
        report.to_terminal()
