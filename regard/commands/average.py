"""`regard average`: the mean of the weights of several models of one shape."""

import argparse
import sys

from regard.commands.options import keep_inputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = "example:\n  regard average runs/a runs/b runs/c -o averaged"
    parser.add_argument("models", nargs="+", metavar="MODEL", help="model or run directories of one shape")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the new model directory")


def run(arguments: argparse.Namespace) -> None:
    """Average and save."""
    from regard.directory import find_directory
    from regard.pipeline import average_models

    keep_inputs([arguments.output], [str(find_directory(path)) for path in arguments.models])
    average_models(arguments.models, arguments.output)
    print(f"written: {arguments.output}", file=sys.stderr)
