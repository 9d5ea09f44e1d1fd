"""Files of text and of pairs, read and written line by line under one discipline.

Bytes are read, only `\\n` ends a line, one trailing `\\r` is dropped, and UTF-8 is strict unless asked
otherwise: U+2028, U+0085, NUL or a lone `\\r` never make a record more or less. What is written is always
UTF-8 and one line per record. An error names the file and the line.
"""

import gzip
import json
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from regard.config import Corpus
from regard.errors import DataError

Decode = Literal["strict", "replace"]
Format = Literal["auto", "text", "tsv", "jsonl"]
ENDINGS: dict[str, Format] = {".tsv": "tsv", ".jsonl": "jsonl", ".json": "jsonl"}
KEYS = ("source", "target")
SURROGATES = re.compile("[\ud800-\udfff]")


class Pair(NamedTuple):
    """One example: what goes in and what should come out."""

    source: str
    target: str


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates, which no encoding can hold, as U+FFFD."""
    return SURROGATES.sub("\ufffd", text)


@contextmanager
def _open(path: str) -> Iterator[IO[bytes]]:
    """A file for reading bytes, unpacked by its ending; `-` is standard input."""
    if path == "-":
        yield sys.stdin.buffer
        return
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(Path(path).suffix, open)
    try:
        stream = opener(path, "rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a directory, expected a file") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be opened: {error}") from None
    with stream:
        yield stream


def read_lines(path: str | Path, decode: Decode = "strict") -> Iterator[str]:
    """The lines of a plain, .gz or .xz file, or of standard input when the path is `-`."""
    with _open(str(path)) as stream:
        yield from read_stream(stream, "standard input" if str(path) == "-" else str(path), decode)


def read_stream(stream: IO[bytes], name: str, decode: Decode = "strict") -> Iterator[str]:
    """The lines of a stream of bytes; `name` is what errors call it."""
    number = 0
    try:
        for number, line in enumerate(stream, 1):
            text = _decode(line.removesuffix(b"\n").removesuffix(b"\r"), name, number, decode)
            yield text.removeprefix("\ufeff") if number == 1 else text
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: damaged or truncated after line {number}: {error}") from None


def _decode(line: bytes, name: str, number: int, decode: Decode) -> str:
    try:
        return line.decode("utf-8", decode)
    except UnicodeDecodeError as error:
        found = f"0x{line[error.start]:02x} ({error.reason})"
        raise DataError(f"{name}: line {number}, byte {error.start + 1}: not valid UTF-8: found {found}") from None


def write_line(stream: IO[bytes], text: str) -> None:
    """One record as one line of UTF-8; line ends inside the text become spaces."""
    text = replace_surrogates(text.replace("\n", " ").replace("\r", " "))
    stream.write(text.encode("utf-8") + b"\n")


def read_pairs(
    corpus: Corpus,
    format: Format = "auto",  # noqa: A002 - the name of the option
    source_key: str = KEYS[0],
    target_key: str = KEYS[1],
    decode: Decode = "strict",
) -> Iterator[Pair]:
    """The pairs of a TSV or JSONL file, or of two aligned text files."""
    if not isinstance(corpus, str):
        if format not in ("auto", "text"):
            raise DataError(f"{corpus[0]} and {corpus[1]}: two files are read as aligned text, not as {format}")
        yield from _read_aligned(*corpus, decode)
        return
    lines = read_lines(corpus, decode)
    if format == "auto":
        format, lines = _detect(corpus, lines)  # noqa: A001
    if format == "text":
        raise DataError(f"{corpus}: one text file has no target side; give two files, a TSV or a JSONL file")
    if format == "tsv":
        yield from _parse_tsv(corpus, lines)
    else:
        fields = _Fields(corpus, source_key, target_key, decode)
        for number, line in enumerate(lines, 1):
            yield fields.pair(number, line)


def _read_aligned(source: str, target: str, decode: Decode) -> Iterator[Pair]:
    if source == target == "-":
        raise DataError("source and target cannot both be read from standard input")
    counts = [0, 0]
    for left, right in zip_longest(read_lines(source, decode), read_lines(target, decode)):
        counts[0] += left is not None
        counts[1] += right is not None
        if counts[0] == counts[1]:
            yield Pair(left or "", right or "")
    if counts[0] != counts[1]:
        raise DataError(f"{source} has {counts[0]} lines but {target} has {counts[1]}: they are not aligned")


def _by_ending(path: str) -> Format | None:
    name = Path(path)
    return ENDINGS.get((name.with_suffix("") if name.suffix in (".gz", ".xz") else name).suffix)


def _detect(path: str, lines: Iterator[str]) -> tuple[Format, Iterator[str]]:
    """The format by the ending, else by the first line, and the lines with the first one still in front."""
    if known := _by_ending(path):
        return known, lines
    first = next(lines, None)
    if first is None:
        raise DataError(f"{path}: is empty, expected pairs")
    lines = chain([first], lines)
    if first.startswith("{"):
        return "jsonl", lines
    if "\t" in first:
        return "tsv", lines
    raise DataError(f"{path}: line 1: neither source<TAB>target nor a JSON object: found {_short(first)}")


def _parse_tsv(path: str, lines: Iterator[str]) -> Iterator[Pair]:
    for number, line in enumerate(lines, 1):
        source, tab, target = line.partition("\t")
        target = target.rstrip("\t")
        if not tab or "\t" in target:
            found = f"{target.count(tab) + 2} columns" if tab else "no TAB"
            raise DataError(f"{path}: line {number}: expected source<TAB>target, found {found}: {_short(line)}")
        yield Pair(source, target)


def _short(text: str) -> str:
    return json.dumps(text if len(text) <= 60 else text[:60] + "…", ensure_ascii=False)


class _Fields:
    """Takes source and target out of the objects of one JSONL file."""

    def __init__(self, path: str, source_key: str, target_key: str, decode: Decode) -> None:
        self.path, self.keys, self.decode = path, (source_key, target_key), decode
        self.languages: tuple[str, ...] | None = None  # of a "translation" object, settled by the first line

    def pair(self, number: int, line: str) -> Pair:
        record, keys = self._find(number, line, self.keys)
        return Pair(*(self._text(number, record, key) for key in keys))

    def _find(self, number: int, line: str, keys: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The object that holds the wanted keys, and the keys by which it holds them."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.path}: line {number}: not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{self.path}: line {number}: expected a JSON object, found {_short(line)}")
        if all(key in record for key in keys):
            return record, keys
        inner = record.get("translation")
        if not isinstance(inner, dict):
            raise self._missing(number, record, keys)
        if all(key in inner for key in keys):
            return inner, keys
        if self.keys == KEYS and self.languages is None and len(inner) == 2:
            self.languages = tuple(inner)
        if self.languages and all(key in inner for key in self.languages):
            return inner, self.languages
        raise self._missing(number, inner, self.languages or keys)

    def _missing(self, number: int, record: dict[str, Any], keys: tuple[str, ...]) -> DataError:
        found, expected = (", ".join(map(_short, names)) for names in (record, keys))
        return DataError(f"{self.path}: line {number}: expected the keys {expected}; found {found or 'none'}")

    def _text(self, number: int, record: dict[str, Any], key: str) -> str:
        value = record[key]
        if not isinstance(value, str):
            found = _short(json.dumps(value))
            raise DataError(f"{self.path}: line {number}: {_short(key)} must be a string, found {found}")
        if self.decode == "strict" and SURROGATES.search(value):
            raise DataError(f"{self.path}: line {number}: {_short(key)} holds a lone surrogate, which is no text")
        return replace_surrogates(value)
