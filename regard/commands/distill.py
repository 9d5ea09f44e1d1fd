"""`regard distill`: a teacher decodes the training source, and a student is trained on what it says."""

import argparse

from regard.commands.options import positive
from regard.commands.train import add_run, carry_out

EPILOGUE = """\
examples:
  regard distill teacher pairs.tsv -o student                   a deep encoder and one decoder layer
  regard distill teacher recipe.toml -o student model.width=128 a student by a recipe, with an override
  regard distill a -m b recipe.toml -o student                  an ensemble teaches
  regard distill teacher recipe.toml -o student --closest       of the 5 best outputs the one nearest the reference

Training sources and validation pairs are those of the recipe or the files. Of the text section, what the recipe does
not say is the teacher's. A run that was stopped, while decoding or while training, goes on when the same command is
given again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument("teacher", metavar="TEACHER", help="model or run directory")
    parser.add_argument(
        "-m", "--more", action="append", default=[], metavar="MODEL", help="further teachers: an ensemble"
    )
    parser.add_argument("--beam", type=positive, metavar="K", help="beams of the teacher (default 5)")
    parser.add_argument("--closest", action="store_true", help="of the K best outputs the one nearest the reference")
    parser.add_argument("--mix", action="store_true", help="learn the real pairs too")
    add_run(parser)


def run(arguments: argparse.Namespace) -> None:
    """Decode, then train."""
    carry_out(arguments, distill_options(arguments))


def distill_options(arguments: argparse.Namespace) -> list[str]:
    """The flags of this command as overrides."""
    flags = {
        f"distill.search.beam={arguments.beam}": arguments.beam,
        "distill.output=closest": arguments.closest,
        "distill.mix=true": arguments.mix,
    }
    return [override for override, given in flags.items() if given]
