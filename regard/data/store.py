"""A prepared corpus on disk, memory-mapped, so that one larger than memory can be trained on.

`source.bin` and `target.bin` hold the ids of all examples one after the other, each row ended by EOS;
`source.idx` and `target.idx` the offsets at which rows begin. A column holds a further number for each source
token (NAME.bin, NAME.idx). `store.json` is written last: a store without it is not finished. Only touched pages are
resident, and `release` lets them go again. Since touching one row may map 2 MB around it, the rows of a large file are
read instead of touched.
"""

import hashlib
import json
import mmap
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from regard.data.batch import EOS, PAD, Batch
from regard.errors import DataError

FORMAT = 1
SIDES = ("source", "target")
DESCRIPTION = "store.json"
LARGE = 1 << 24  # bytes of a file whose rows are read and not touched: 16 MB
CHUNK = 1 << 16  # rows that are buffered while writing, or checked at once while reading


class Row(NamedTuple):
    """The ids of one example, EOS included."""

    source: np.ndarray
    target: np.ndarray


class _Writer:
    """Appends the rows of one side to its two files, and knows their sizes and hashes."""

    def __init__(self, directory: Path, side: str, size: int, end: int = EOS) -> None:
        self.paths = [directory / f"{side}.bin", directory / f"{side}.idx"]
        self.files: list[IO[bytes]] = [open(f"{path}.tmp", "wb") for path in self.paths]  # noqa: SIM115
        self.hashes = [hashlib.sha256(), hashlib.sha256()]
        self.size, self.type = size, np.dtype("<u2" if size <= 1 << 16 else "<u4")
        self.end = end  # of each row
        self.ids: list[int] = []
        self.ends: list[int] = [0]
        self.tokens = 0

    def add(self, row: Sequence[int]) -> None:
        self.ids.extend(row)
        self.ids.append(self.end)
        self.tokens += len(row) + 1
        self.ends.append(self.tokens)
        if len(self.ids) > 16 * CHUNK or len(self.ends) > CHUNK:
            self.flush()

    def flush(self) -> None:
        ids = np.array(self.ids, dtype=np.int64)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.size):
            raise ValueError(f"{self.paths[0]}: an id lies outside the vocabulary of {self.size}")
        for i, array in enumerate([ids.astype(self.type), np.array(self.ends, dtype="<i8")]):
            self.files[i].write(array.data)
            self.hashes[i].update(array.data)
        self.ids.clear()
        self.ends.clear()

    def finish(self) -> dict[str, Any]:
        self.flush()
        for file, path in zip(self.files, self.paths, strict=True):
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.replace(f"{path}.tmp", path)
        hashes = {path.name: digest.hexdigest() for path, digest in zip(self.paths, self.hashes, strict=True)}
        return {"size": self.size, "type": self.type.str, "tokens": self.tokens, "sha256": hashes}

    def close(self) -> None:
        for file in self.files:
            file.close()


def write_store(
    directory: str | Path,
    rows: Iterable[tuple[Sequence[int], Sequence[int]]],
    source_size: int,
    target_size: int,
    meta: dict[str, Any] | None = None,
) -> "Store":
    """Stream id rows (without EOS) into a store; it is whole or not there. `meta` is kept as it is."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DESCRIPTION).unlink(missing_ok=True)
    writers = [_Writer(directory, side, size) for side, size in zip(SIDES, (source_size, target_size), strict=True)]
    count = 0
    try:
        for pair in rows:
            for writer, row in zip(writers, pair, strict=True):
                writer.add(row)
            count += 1
        if not count:
            raise DataError(f"{directory}: there is no pair to store")
        sides = {side: writer.finish() for side, writer in zip(SIDES, writers, strict=True)}
    finally:
        for writer in writers:
            writer.close()
    _commit(directory, {"format": FORMAT, "pairs": count, **sides, "meta": meta or {}})
    return Store(directory)


def add_column(store: "Store", name: str, rows: Iterable[Sequence[int]], size: int) -> "Store":
    """The store with a number below `size` for each source token; its EOS gets 0. An older one is replaced."""
    if name in SIDES or not name.isidentifier():
        raise ValueError(f"a column cannot be called {name}")
    writer = _Writer(store.directory, name, size, end=0)
    count = -1
    try:
        for count, row in enumerate(rows):
            if count >= len(store) or len(row) + 1 != len(store.source(count)):
                expected = f"{len(store.source(count)) - 1} numbers" if count < len(store) else "no such row"
                raise ValueError(f"column {name}, row {count}: found {len(row)} numbers, expected {expected}")
            writer.add(row)
        if count + 1 != len(store):
            raise ValueError(f"column {name}: found {count + 1} rows, expected {len(store)}")
        facts = writer.finish()
    finally:
        writer.close()
    description = json.loads((store.directory / DESCRIPTION).read_bytes())
    _commit(store.directory, description | {"columns": {**description.get("columns", {}), name: facts}})
    return Store(store.directory)


def _commit(directory: Path, description: dict[str, Any]) -> None:
    temporary = directory / f"{DESCRIPTION}.tmp"
    with open(temporary, "wb") as file:
        file.write(json.dumps(description, ensure_ascii=False, indent=1).encode("utf-8") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, directory / DESCRIPTION)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Side:
    """The mapped ids and offsets of one side."""

    def __init__(self, directory: Path, side: str, pairs: int, facts: dict[str, Any]) -> None:
        self.path = directory / f"{side}.idx"
        self.size, self.tokens = int(facts["size"]), int(facts["tokens"])
        if facts["type"] not in ("<u2", "<u4"):
            raise DataError(f"{directory / DESCRIPTION}: unknown type of ids {facts['type']!r}")
        kind = np.dtype(facts["type"])
        self.maps = [
            _map(directory / f"{side}.bin", self.tokens * kind.itemsize),
            _map(self.path, (pairs + 1) * 8),
        ]
        self.file = os.open(directory / f"{side}.bin", os.O_RDONLY)
        weakref.finalize(self, os.close, self.file)
        self.ids = np.frombuffer(self.maps[0], dtype=kind)
        self.offsets = np.frombuffer(self.maps[1], dtype="<i8")
        if self.offsets[0] != 0 or self.offsets[-1] != self.tokens:
            raise DataError(f"{self.path}: damaged: offsets run to {self.offsets[-1]}, expected {self.tokens}")

    def row(self, number: int) -> np.ndarray:
        return self.ids[self.offsets[number] : self.offsets[number + 1]]

    def lengths(self) -> np.ndarray:
        lengths = np.empty(len(self.offsets) - 1, dtype=np.uint16)  # 2 bytes each, unless a row is longer than that
        for begin in range(0, len(lengths), CHUNK):
            differences = np.diff(self.offsets[begin : begin + CHUNK + 1])
            if differences.min() < 1 or differences.max() > self.tokens:
                raise DataError(f"{self.path}: damaged: offsets do not ascend after row {begin}")
            if differences.max() > np.iinfo(lengths.dtype).max:
                lengths = lengths.astype(np.int64)
            lengths[begin : begin + CHUNK] = differences
        return lengths

    def gather(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows as one matrix padded on the right, and their lengths."""
        begins = self.offsets[numbers]
        lengths = self.offsets[numbers + 1] - begins
        ids = self._read(begins, lengths) if len(self.maps[0]) > LARGE else self._touch(begins, lengths)
        if ids.max(initial=0) >= self.size:
            raise DataError(
                f"{self.path.with_suffix('.bin')}: damaged: an id lies outside the vocabulary of {self.size}"
            )
        matrix = np.full((len(numbers), int(lengths.max(initial=0))), PAD, dtype=np.int64)
        matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = ids
        return matrix, lengths

    def _touch(self, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The ids of some rows, one after the other, from the mapped file."""
        places = np.repeat(begins - np.cumsum(lengths) + lengths, lengths)
        places += np.arange(len(places))
        return self.ids[places]

    def _read(self, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The same by reading the file, which leaves nothing in this process."""
        width = self.ids.itemsize
        spans = zip((begins * width).tolist(), (lengths * width).tolist(), strict=True)
        return np.frombuffer(b"".join([os.pread(self.file, size, begin) for begin, size in spans]), self.ids.dtype)


def _map(path: Path, expected: int) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != expected or not found:
                raise DataError(f"{path}: damaged: {found} bytes, expected {expected}")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


class Store:
    """Examples by number; `len(store)` of them."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        path = self.directory / DESCRIPTION
        try:
            description = json.loads(path.read_bytes().decode("utf-8"))
            if description["format"] != FORMAT:
                raise DataError(f"{path}: format {description['format']}, expected {FORMAT}: prepare the corpus again")
            self.pairs = int(description["pairs"])
            self.meta: dict[str, Any] = dict(description["meta"])
            columns = {str(name): facts for name, facts in description.get("columns", {}).items()}
            if odd := [name for name in columns if not name.isidentifier()]:
                raise DataError(f"{path}: damaged: a column called {odd[0]!r}")
            self._sides = [_Side(self.directory, side, self.pairs, description[side]) for side in SIDES]
            self._columns = {name: _Side(self.directory, name, self.pairs, facts) for name, facts in columns.items()}
            facts = [description[side] for side in SIDES] + [*columns.values()]
            self.hashes = {name: str(digest) for each in facts for name, digest in each["sha256"].items()}
        except OSError as error:
            raise DataError(f"{path}: no finished store here: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{path}: damaged: {type(error).__name__}: {error}") from None
        self.source_size, self.target_size = (side.size for side in self._sides)
        self.source_tokens, self.target_tokens = (side.tokens for side in self._sides)  # EOS counted
        self._maps = [content for side in (*self._sides, *self._columns.values()) for content in side.maps]
        self.bytes = sum(map(len, self._maps))

    def __len__(self) -> int:
        return self.pairs

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the further numbers that source tokens have."""
        return tuple(self._columns)

    def source(self, number: int) -> np.ndarray:
        return self._sides[0].row(number)

    def target(self, number: int) -> np.ndarray:
        return self._sides[1].row(number)

    def rows(self, numbers: Iterable[int]) -> Iterator[Row]:
        """The examples of these numbers, in this order."""
        return (Row(self.source(number), self.target(number)) for number in numbers)

    def batch(self, numbers: Sequence[int] | np.ndarray) -> Batch:
        """The examples of these numbers, padded."""
        index = np.asarray(numbers, dtype=np.int64)
        (source, source_length), (target, target_length) = (side.gather(index) for side in self._sides)
        extra = {name: column.gather(index)[0] for name, column in self._columns.items()}
        return Batch(source, source_length, target, target_length, index, extra)

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of every source and of every target, EOS counted."""
        source, target = (side.lengths() for side in self._sides)
        self.release()
        return source, target

    def release(self) -> None:
        """Give the touched pages back; they are read again when they are needed."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for content in self._maps:
                content.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Read everything and compare with the hashes; a DataError names the file that has changed."""
        for name, expected in self.hashes.items():
            with open(self.directory / name, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                    raise DataError(f"{self.directory / name}: damaged: its content has changed")
