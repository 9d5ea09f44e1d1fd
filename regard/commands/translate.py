"""`regard translate`: stdin to stdout, exactly one record out for each record in.

With `-o FILE` the work is done in `FILE.part`, which becomes FILE when all is there; a job that was interrupted
goes on with `--resume`.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, TypeVar

from regard.commands.options import (
    add_device,
    add_engine,
    add_models,
    add_rescore,
    add_search,
    keep_inputs,
    models,
    positive,
    search_options,
    set_threads,
    termination,
)
from regard.config import Search, change_search
from regard.data.batch import EOS, Hypothesis
from regard.data.part import Part
from regard.data.text import read_lines, write_line
from regard.directory import identify
from regard.errors import ConfigError, DataError, Interrupted, ModelError
from regard.origin import usable_cores

if TYPE_CHECKING:
    from regard.passage import Passage
    from regard.predict import Predictor

Item = TypeVar("Item")
EPILOGUE = """\
examples:
  echo "a man sleeps ." | regard translate model
  regard translate model -i test.en -o test.de --beam 5
  regard translate -m a -m b -i test.en --jsonl            an ensemble of two models
  regard translate fast --beam 10 --rescore good -i test.en  a second model chooses among ten outputs
  regard translate model -i big.txt -o big.out --resume  go on with an interrupted job

A blank line gives a blank line; a line that is too long for the model is translated in parts.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    add_models(parser)
    parser.add_argument("-i", "--input", default="-", metavar="FILE", help="text, plain or .gz/.xz (default: stdin)")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: stdout")
    parser.add_argument("--resume", action="store_true", help="go on with an interrupted -o FILE")
    parser.add_argument("--jsonl", action="store_true", help="one JSON object per line: text, score, tokens, n-best …")
    parser.add_argument("--align", action="store_true", help="alignment in Pharaoh form behind |||, from attention")
    parser.add_argument("--prefix", metavar="FILE", help="forced beginnings of the outputs, a line for each input line")
    parser.add_argument(
        "--decode", choices=["strict", "replace"], default="strict", help="invalid UTF-8: error or U+FFFD"
    )
    parser.add_argument("--interactive", action="store_true", help="answer each line at once")
    parser.add_argument(
        "--block", type=positive, default=1000, metavar="N", help="lines that are sorted and written together"
    )
    add_engine(parser)
    add_rescore(parser)
    add_search(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Translate everything."""
    if arguments.resume and not arguments.output:
        raise ConfigError("--resume needs -o FILE")
    named = models(arguments)
    given = search_options(arguments)
    source = Path(arguments.input)
    if arguments.input != "-" and (source.is_file() or not source.exists()):  # a pipe can be read only once
        next(read_lines(arguments.input, "replace"), None)  # a file that is not there is told at once
    keep_inputs([arguments.output], [arguments.input, arguments.prefix])
    if arguments.output and arguments.output.endswith((".gz", ".xz")):
        raise ConfigError(f"{arguments.output}: the output is plain text; choose a name without .gz or .xz")
    predictor, search = load_model(arguments, named, given)
    job = Job(predictor, search, arguments)
    with closing_workers(predictor):
        if arguments.align and predictor.engine.cross_attention([[EOS]], [[EOS]]) is None:
            raise ModelError(f"{named[0]}: has no attention to align by")
        with opened(arguments, describe(arguments, named, predictor, search)) as (stream, part):
            done = job.run(read_lines(arguments.input, arguments.decode), stream, part)
    notes = [f"{number:,} {what}" for what, number in sorted(predictor.counts.items()) if number]
    if not arguments.interactive:
        print(f"{done:,} line{'' if done == 1 else 's'}" + (": " + ", ".join(notes) if notes else ""), file=sys.stderr)


def load_model(arguments: argparse.Namespace, named: list[str], given: dict[str, Any]) -> "tuple[Predictor, Search]":
    """The model with its engine, and the options of the search; `auto` is torch where the fast one cannot do them."""
    from regard.engine.ctranslate2 import refuse, unable
    from regard.predict import find_engine, load

    common = {"device": arguments.device, "threads": arguments.threads, "rescore": arguments.rescore}
    engine, why = find_engine(named, arguments.device) if arguments.engine == "auto" else (arguments.engine, "")
    if engine == "ctranslate2":
        workers = arguments.workers or usable_cores()
        predictor = load(*named, engine=engine, workers=workers, **common)
        search = change_search(predictor.search, given)
        what = unable(search, arguments.align, bool(arguments.prefix))
        if what is None:
            return predictor, search
        if arguments.engine != "auto":
            raise refuse(what)
        why = what
    if why:
        print(f"regard: {why}: the engine ctranslate2 cannot do this, torch is used", file=sys.stderr)
    workers = arguments.workers or 1
    if workers == 1:
        set_threads(arguments)
    predictor = load(*named, engine="torch", workers=workers, **common)
    return predictor, change_search(predictor.search, given)


@contextmanager
def closing_workers(predictor: "Predictor") -> Iterator[None]:
    """No process is left behind, whatever happens."""
    try:
        yield
    finally:
        predictor.close()


@dataclass(frozen=True)
class Block:
    """Lines that are translated together."""

    first: int  # the number of the first one
    lines: list[str]
    parts: "list[Passage]"  # as the model takes them
    prefixes: list[str] | None


class Job:
    """Translates blocks of lines and writes one record for each."""

    def __init__(self, predictor: "Predictor", search: Search, arguments: argparse.Namespace) -> None:
        self.predictor = predictor
        self.search = search.model_dump()
        self.nbest = search.nbest
        self.jsonl, self.align = arguments.jsonl, arguments.align
        self.block = 1 if arguments.interactive or (arguments.input == "-" and sys.stdin.isatty()) else arguments.block
        self.prefixes = read_lines(arguments.prefix, arguments.decode) if arguments.prefix else None

    def run(self, lines: Iterator[str], stream: IO[bytes], part: Part | None) -> int:
        """All lines, after those an earlier sitting has done; the number of records in the output."""
        done = part.skip(lines) if part else 0
        begun, first = time.monotonic(), done
        for _ in islice(self.prefixes or (), done):
            pass
        for block, records in self.results(self.blocks(lines, done)):
            for record in records:
                for line in record:
                    write_line(stream, line)
            stream.flush()
            done += len(block.lines)
            if part:
                part.commit(block.lines)
                if sys.stderr.isatty():
                    rate = (done - first) / (time.monotonic() - begun)
                    print(f"\r{done:,} lines, {rate:,.0f} a second ", end="", file=sys.stderr, flush=True)
        if part and sys.stderr.isatty():
            print(file=sys.stderr)
        if self.prefixes is not None and next(self.prefixes, None) is not None:
            raise DataError(f"--prefix has more lines than the input, which has {done}")
        return done

    def blocks(self, lines: Iterator[str], first: int) -> Iterator["Block"]:
        """Blocks of lines, and what the model takes of them."""
        while block := list(islice(lines, self.block)):
            prefixes = None
            if self.prefixes is not None:
                prefixes = list(islice(self.prefixes, len(block)))
                if len(prefixes) < len(block):
                    raise DataError(f"--prefix has {first + len(prefixes)} lines, the input has more")
            yield Block(first, block, self.predictor.read(block), prefixes)
            first += len(block)

    def results(self, blocks: Iterator["Block"]) -> Iterator[tuple["Block", list[list[str]]]]:
        """Each block with its records; two are worked on at a time, so that no worker waits for the last of a block."""
        if self.block == 1 or self.predictor.engine.workers == 1:
            yield from ((block, self.records(block)) for block in (ahead(blocks) if self.block > 1 else blocks))
            return
        pool = ThreadPoolExecutor(2)
        try:
            for block, records in ahead((block, pool.submit(self.records, block)) for block in blocks):
                yield block, records.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def records(self, block: "Block") -> list[list[str]]:
        """The output lines of each input line."""
        found = self.predictor.nbest(
            block.lines,
            prefixes=block.prefixes,
            align=self.align or self.jsonl,
            first=block.first,
            parts=block.parts,
            **self.search,
        )
        return [
            self.record(block.first + number, line, outputs)
            for number, (line, outputs) in enumerate(zip(block.lines, found, strict=True))
        ]

    def record(self, number: int, source: str, outputs: list[Hypothesis]) -> list[str]:
        """One input's output: a line, a JSON object, or the n best in Moses form."""
        if self.jsonl:
            best = {"source": source, **as_json(outputs[0])}
            if self.nbest > 1:
                best["nbest"] = [as_json(output) for output in outputs]
            return [json.dumps(best, ensure_ascii=False)]
        texts = [
            output.text + (f" ||| {pharaoh(output)}" if self.align and (source.strip() or self.nbest > 1) else "")
            for output in outputs
        ]
        if self.nbest == 1:
            return texts
        return [f"{number} ||| {text} ||| {output.score:.6f}" for text, output in zip(texts, outputs, strict=True)]


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items, the next of which is made, in a thread, while one works with this one."""
    ready: Queue[tuple[bool, Any]] = Queue(1)

    def make() -> None:
        try:
            for item in items:
                ready.put((True, item))
            ready.put((False, None))
        except BaseException as error:
            ready.put((False, error))

    Thread(target=make, daemon=True).start()  # which may wait for a line for ever
    while True:
        good, item = ready.get()
        if good:
            yield item
        elif item is None:
            return
        else:
            raise item


def as_json(output: Hypothesis) -> dict[str, Any]:
    """A hypothesis as plain values."""
    return {
        "text": output.text,
        "score": output.score,
        "log_probability": output.log_probability,
        "tokens": output.tokens,
        "source_tokens": output.source_tokens,
        "alignment": output.alignment,
        "finished": output.finished,
    }


def pharaoh(output: Hypothesis) -> str:
    """Links as source-target token numbers."""
    return " ".join(f"{source}-{target}" for source, target in output.alignment or ())


@contextmanager
def opened(arguments: argparse.Namespace, job: dict[str, Any]) -> Iterator[tuple[IO[bytes], Part | None]]:
    """Where the output goes; SIGTERM and Ctrl-C leave a part that can be gone on with."""
    output = Path(arguments.output) if arguments.output else None
    if output is None:
        yield sys.stdout.buffer, None
        return
    if output.is_dir():
        raise ConfigError(f"{output}: is a directory, expected a file")
    if output.exists() and not output.is_file():  # a pipe or a device
        with output.open("wb") as stream:
            yield stream, None
        return
    part = Part(output, job, arguments.resume)
    hint = f"the finished lines are in {part.path}; go on with --resume"
    try:
        with termination(f"stopped; {hint}"), part.open() as stream:
            yield stream, part
        part.finish()
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {hint}") from None
    finally:
        part.tidy()


def describe(arguments: argparse.Namespace, named: list[str], predictor: "Predictor", search: Search) -> dict[str, Any]:
    """Everything that decides what an output looks like, beside the lines."""
    from regard.directory import find_directory
    from regard.engine.ctranslate2 import FOLDER

    parts = [find_directory(path) for path in named]
    if predictor.engine.name == "ctranslate2":
        parts.append(parts[0] / FOLDER)
    return {
        "engine": predictor.engine.name,
        "model": [identify(path) for path in parts],
        "rescore": identify(find_directory(arguments.rescore)) if arguments.rescore else None,
        "search": search.model_dump(mode="json"),
        "format": [arguments.jsonl, arguments.align, arguments.prefix, arguments.decode],
        "block": arguments.block,
    }
