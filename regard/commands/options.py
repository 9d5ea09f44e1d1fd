"""Arguments that several commands share."""

import argparse
import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.config import Search, apply_overrides
from regard.errors import ConfigError, DataError, Stopped
from regard.origin import usable_cores

OVERRIDE = re.compile(r"[a-z_]+(\.[a-z_]+)*=")


def add_device(parser: argparse.ArgumentParser) -> None:
    """--device, --threads and --seed."""
    parser.add_argument(
        "--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:1 … (auto: a GPU if there is one)"
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="CPU threads (default: as torch chooses)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random")


def add_models(parser: argparse.ArgumentParser) -> None:
    """One model, or several as an ensemble: `MODEL`, `MODEL -m MODEL` or `-m MODEL -m MODEL`."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="model or run directory")
    parser.add_argument(
        "-m", "--more", action="append", default=[], metavar="MODEL", help="several models: an ensemble"
    )


def divide(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Free words → names of files, and `key=value` overrides (a file of such a name: `./key=value`)."""
    overrides = [word for word in words if OVERRIDE.match(word)]
    return [word for word in words if word not in overrides], overrides


def as_utf8(text: str, what: str) -> str:
    """An argument as text, whatever the locale has made of its bytes."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise DataError(f"{what}: not valid UTF-8") from None


@contextmanager
def termination(message: str) -> Iterator[None]:
    """SIGTERM ends what is inside with exit code 75 and a message how to go on."""

    def stop(number: int, frame: object) -> None:
        raise Stopped(message)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def keep_inputs(outputs: Sequence[str | None], inputs: Sequence[str | None]) -> None:
    """No file is written that is being read."""
    for output in filter(None, outputs):
        for path in filter(None, inputs):
            if Path(output).exists() and Path(path).exists() and Path(output).samefile(path):
                raise ConfigError(f"{output}: is an input; choose another name for the output")


def models(arguments: argparse.Namespace) -> list[str]:
    """The model directories that were named."""
    first = arguments.model
    if first and OVERRIDE.match(first) and arguments.more:  # with -m alone, the first free word is an override
        arguments.override.insert(0, first)
        first = None
    found = [first, *arguments.more] if first else arguments.more
    if not found:
        raise ConfigError("no model directory given")
    return found


def set_threads(arguments: argparse.Namespace) -> None:
    """Honour --threads."""
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
        import torch

        torch.set_num_threads(arguments.threads)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """--engine and --workers."""
    parser.add_argument(
        "--engine",
        choices=["auto", "torch", "ctranslate2"],
        default="auto",
        help="what computes (auto: ctranslate2 if the model has been exported and it can do what is asked)",
    )
    parser.add_argument(
        "--workers",
        type=worker_count,
        metavar="N",
        help="searches at a time with one thread each, or auto: as many as cores (default: 1 for torch, else auto)",
    )


def worker_count(text: str) -> int:
    """A number of workers; `auto` is the number of cores we may use."""
    return usable_cores() if text == "auto" else positive(text)


def positive(text: str) -> int:
    """An argument that must be a whole number above zero."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, found {text}")
    return int(text)


def add_rescore(parser: argparse.ArgumentParser) -> None:
    """--rescore."""
    parser.add_argument(
        "--rescore", metavar="MODEL", help="this model, with the same tokenizers, chooses among the beams"
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """The options of the search; those not given are the model's own."""
    group = parser.add_argument_group("search (default: what is stored in the model)")
    group.add_argument("--method", choices=["beam", "greedy", "sample"])
    group.add_argument("--beam", type=positive, metavar="K", help="beams kept at each step")
    group.add_argument("--nbest", type=positive, metavar="N", help="outputs for each input")
    group.add_argument("--alpha", type=float, help="length penalty: score = log p / length^alpha")
    group.add_argument("--penalty", choices=["length", "gnmt"])
    group.add_argument("--stop", choices=["bound", "count"], help="until nothing better can come, or K are finished")
    group.add_argument("--minimum-length", type=int, metavar="N", help="tokens before the output may end")
    group.add_argument("--maximum-length", type=int, metavar="N", help="tokens at most")
    group.add_argument("--no-repeat", type=int, metavar="N", help="no n-gram of this size twice")
    group.add_argument("--temperature", type=float, help="sampling: above 1 bolder, below 1 safer")
    group.add_argument("--top-k", type=int, metavar="K", help="sampling: among the K most probable words")
    group.add_argument("--top-p", type=float, metavar="P", help="sampling: among the words that make up probability P")
    group.add_argument("--batch-tokens", type=positive, metavar="N", help="source tokens × beam decoded together")
    parser.add_argument("override", nargs="*", metavar="key=value", help="any further option of the search")


def search_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was given of the search, checked against nothing yet."""
    given = {name: getattr(arguments, name, None) for name in Search.model_fields}
    given = {name: value for name, value in given.items() if value is not None}
    words, overrides = divide(arguments.override)
    if words:
        raise ConfigError(f"'{words[0]}': expected key=value, an option of the search")
    return apply_overrides(given, [word.removeprefix("search.") for word in overrides])


def output_directory(name: str) -> Path:
    """Where a command may leave its files."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: expected a directory, found a file")
    return path
