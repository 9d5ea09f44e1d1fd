"""`regard layers`: what the kinds of layers cost and how far they leave positions apart, measured on this machine."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from regard.commands.options import output_directory, positive, set_threads
from regard.config import validate

OPTIONS = ("lengths", "operator_lengths", "width", "heads", "kernel", "neighbourhood", "batch", "cell", "repeat")
SEED = 1  # of weights and inputs
EVERY = 10.0  # seconds between two lines of progress, where there is no terminal
EPILOGUE = """\
examples:
  regard layers                                        a few minutes; tables, and pages in layers/
  regard layers --quick -o quick                       seconds, to see what there is
  regard layers --width 512 --heads 8 --lengths 128,256,512,1024,2048
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument("-o", "--output", default="layers", metavar="DIR", help="where the files are left")
    parser.add_argument("--lengths", type=numbers, metavar="N,N,…", help="lengths of whole layers (64 … 4096)")
    parser.add_argument(
        "--operator-lengths", type=numbers, metavar="N,N,…", help="lengths of attention alone (512 … 8192)"
    )
    parser.add_argument("--width", type=positive, metavar="D", help="width of whole layers (256)")
    parser.add_argument("--heads", type=positive, metavar="H", help="heads of whole layers (4)")
    parser.add_argument("--kernel", type=positive, metavar="K", help="positions a convolution sees (3)")
    parser.add_argument(
        "--neighbourhood", type=positive, metavar="R", help="positions restricted attention sees beside its own (32)"
    )
    parser.add_argument("--batch", type=positive, metavar="B", help="sequences at a time (1)")
    parser.add_argument("--cell", choices=["vanilla", "gru", "lstm"], help="of the recurrence (lstm)")
    parser.add_argument("--repeat", type=positive, metavar="N", help="rounds, whose median counts (5)")
    parser.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: as torch chooses)")
    parser.add_argument("--quick", action="store_true", help="small sizes and two rounds: to see what there is")


def run(arguments: argparse.Namespace) -> None:
    """Measure, print, write."""
    set_threads(arguments)
    from regard.origin import origin
    from regard.study.advice import make_advice
    from regard.study.layer_report import to_text, write_all
    from regard.study.layers import QUICK, Settings, study

    given = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name) is not None}
    settings = validate(Settings, (QUICK if arguments.quick else {}) | given, "layers")
    directory = output_directory(arguments.output)
    directory.mkdir(parents=True, exist_ok=True)
    probe = directory / ".layers.part"  # whether it is writable is found out before minutes are spent
    probe.touch()
    probe.unlink()
    began = time.monotonic()
    with progress() as tick:
        result = study(settings, tick)
    about = origin(arguments.command_line, SEED, time.monotonic() - began, None)
    result = {"origin": about, **result, "advice": make_advice(result)}
    written = write_all(directory, result, say)
    print(to_text(result))
    say(f"written: {', '.join(map(str, written))}")


def numbers(text: str) -> list[int]:
    """`512,1024` as numbers."""
    return [positive(part.strip()) for part in text.split(",")]


def say(text: str) -> None:
    """Tell the user, on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function that shows how far the work is: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(file=sys.stderr, highlight=False, markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, Any] = {}
    shown = {"at": 0.0}

    def tick(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
            shown["at"] = 0.0
        bar.update(tasks[what], completed=done)
        now = time.monotonic()
        if not console.is_terminal and now - shown["at"] >= EVERY:
            say(f"{what}: {done} of {total}")
            shown["at"] = now

    with bar:
        yield tick
