"""The command line: parses, calls, and turns errors into one message and an exit code.

Nothing heavy is imported before a command runs, so `regard --help` is quick.
"""

import argparse
import io
import os
import re
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from regard import __version__

# command → (module with `add_arguments(parser)` and `run(arguments)`, one line of help)
COMMANDS = {
    "quickstart": ("quickstart", "train two small models on made dates, and see what they look at"),
    "prepare": ("prepare", "turn files of pairs into a prepared corpus, and tell what is odd about them"),
    "train": ("train", "train a model from a file of pairs or a recipe; the same command goes on after a stop"),
    "distill": ("distill", "train a student on what a teacher says; the same command goes on after a stop"),
    "translate": ("translate", "raw text in, finished text out: one line for each line"),
    "evaluate": ("evaluate", "score a model, or its outputs, against references"),
    "compare": ("compare", "train several models alike, and measure them alike: one table, one page"),
    "score": ("score", "the probability a model gives to given pairs"),
    "align": ("align", "tell which target token belongs to which source token; fertilities; alignment error rate"),
    "attend": ("attend", "show what a model looks at: HTML, PNG, SVG, JSON or the terminal"),
    "layers": ("layers", "measure what kinds of layers cost and how far apart they leave positions"),
    "export": ("export", "make a model ready for the fast engine, and check it against torch"),
    "average": ("average", "average the weights of several models"),
    "inspect": ("inspect", "tell what is in a model or run directory, and check it"),
    "doctor": ("doctor", "tell about this machine: versions, threads, memory, what is missing"),
}

EPILOGUE = """\
exit codes: 0 ok · 1 failure · 2 usage or configuration · 3 data · 4 model unusable · 5 diverged
            75 stopped by SIGTERM, run again: what is long goes on · 130 interrupted

start with:  regard quickstart      then, for your own data:  regard train pairs.tsv -o model
"""


Parsers = tuple[argparse.ArgumentParser, argparse.ArgumentParser]  # of all commands, and of the one that was named


def make_parsers(command: str | None) -> Parsers:
    """The parsers; only the named command's own arguments are loaded."""
    parser = argparse.ArgumentParser(
        "regard",
        description="Sequence-to-sequence models you can train on your own files, compare fairly, and watch.",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"regard {__version__}")
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = parser
    for name, (module, help_line) in COMMANDS.items():
        sub = parsers.add_parser(
            name, help=help_line, description=help_line, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == command:
            named = sub
            import_module(f"regard.commands.{module}").add_arguments(sub)
    return parser, named


def parse(parsers: Parsers, words: list[str]) -> argparse.Namespace:
    """Like `parse_args`, but free words (files, key=value) may also stand behind options."""
    parser, named = parsers
    parsed, rest = parser.parse_known_args(words)
    free = next((name for name in ("what", "pairs", "models", "override") if hasattr(parsed, name)), None)
    if odd := next((word for word in rest if word.startswith("-")), None):
        near = get_close_matches(odd, re.findall(r"--[\w-]+", named.format_help()), 1)
        named.error(f"unknown option {odd}" + (f"; did you mean {near[0]}?" if near else ""))
    if rest:
        if free is None:
            named.error(f"unexpected words: {shlex.join(rest)}")
        setattr(parsed, free, [*getattr(parsed, free), *rest])
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a mistake of the user gives one message and its exit code."""
    from regard.errors import RegardError

    words = list(sys.argv[1:] if arguments is None else arguments)
    command = next((word for word in words if not word.startswith("-")), None)
    try:
        parsed = parse(make_parsers(command), words)
        parsed.command_line = shlex.join(["regard", *words])
        from regard.commands.options import termination

        module = import_module(f"regard.commands.{COMMANDS[parsed.command][0]}")
        with termination(f"stopped; start again with: {parsed.command_line}"):
            module.run(parsed)
        sys.stdout.flush()
    except RegardError as error:
        print(f"regard: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader has gone, as in `regard … | head`
        return 0
    except KeyboardInterrupt:
        print("regard: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"regard: {where}{error.strerror or error}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:  # torch has no type of its own for memory of the CPU
        if isinstance(error, RuntimeError) and "alloc" not in str(error) and "memory" not in str(error):
            raise
        print(f"regard: not enough memory: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)
        return 1
    return 0


def start() -> None:
    """The entry of the `regard` script: UTF-8 whatever the locale, and no complaint about output nobody can take."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who has called us
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = main()
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # what is left in the buffer is given up, or Python would try again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    start()
