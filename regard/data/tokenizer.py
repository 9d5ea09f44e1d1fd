"""Text ↔ ids: bytes, characters and words here, BPE and unigram subwords in `subword.py`.

Ids 0–3 are the specials of `batch.py`. Every kind but words holds the 256 bytes and loses nothing: its ids
spell a string of bytes. A word that training did not see becomes UNK, for the caller to copy and count.
A tokenizer is stored as our own JSON and rebuilt in code, so a model directory brings no code or pattern.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from regard.config import Text, TokenizerKind
from regard.data.batch import SPECIALS, UNK
from regard.data.text import replace_surrogates
from regard.errors import ModelError

FORMAT = 1
SPACE = "▁"  # how a space is shown
FIRST_BYTE = len(SPECIALS)
FIRST_CHARACTER = FIRST_BYTE + 256
BYTES = [bytes([value]) for value in range(256)]
Ids = Sequence[int]


class Tokenizer(Protocol):
    """What every kind can do; ids carry no BOS or EOS."""

    kind: TokenizerKind

    @property
    def size(self) -> int: ...  # of the vocabulary, specials included

    def encode(self, text: str) -> list[int]: ...

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]: ...

    def decode(self, ids: Ids, replacement: Sequence[str] | None = None) -> str:
        """The text; `replacement[i]` stands in for `ids[i]` where that is UNK."""
        ...

    def pieces(self, ids: Ids) -> list[str]:
        """What one would show a reader for each id."""
        ...

    def split(self, text: str) -> list[str]:
        """The pieces of a text, one for each id of `encode`, unknown words as they are written."""
        ...

    def save(self, path: str | Path) -> None: ...


@lru_cache(2**16)  # the same pieces come again and again
def show(piece: bytes) -> str:
    """A piece as a reader sees it: spaces marked, and bytes that are no characters by their number."""
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:
        text = "".join(chr(byte) if 32 <= byte < 127 else f"<0x{byte:02X}>" for byte in piece)
    if text.isprintable():
        return text.replace(" ", SPACE)
    return "".join(
        character.replace(" ", SPACE) if character.isprintable() else show_unprintable(character) for character in text
    )


def show_unprintable(character: str) -> str:
    """A control or white-space character by its bytes or its code point."""
    return f"<0x{ord(character):02X}>" if character.isascii() else f"<U+{ord(character):04X}>"


def write_json(path: str | Path, kind: str, pieces: Sequence[str], **more: Any) -> None:
    """The one file of a tokenizer."""
    content = {"format": FORMAT, "kind": kind, "pieces": [*SPECIALS, *pieces], **more}
    Path(path).write_bytes(json.dumps(content, ensure_ascii=False, indent=0).encode("utf-8") + b"\n")


class Spelling:
    """Base of the lossless kinds: every id stands for a string of bytes."""

    kind: TokenizerKind

    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = [b"", b"", b"", b"<unk>", *table]

    @property
    def size(self) -> int:
        return len(self._table)

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def _spell(self, ids: Ids, replacement: Sequence[str] | None) -> str:
        """Bytes that form no character become U+FFFD."""
        table = self._table
        if replacement is None or UNK not in ids:
            spelled = b"".join([table[number] for number in ids])
        else:
            parts = [
                replacement[i].encode("utf-8", "replace") if number == UNK else table[number]
                for i, number in enumerate(ids)
            ]
            spelled = b"".join(parts)
        return spelled.decode("utf-8", "replace")

    def decode(self, ids: Ids, replacement: Sequence[str] | None = None) -> str:
        return self._spell(ids, replacement)

    def pieces(self, ids: Ids) -> list[str]:
        return [SPECIALS[number] if number < FIRST_BYTE else show(self._table[number]) for number in ids]

    def split(self, text: str) -> list[str]:
        return self.pieces(self.encode(text))


class ByteTokenizer(Spelling):
    """The 256 bytes of UTF-8 and nothing to learn."""

    kind: TokenizerKind = "bytes"

    def __init__(self) -> None:
        super().__init__(BYTES)

    def encode(self, text: str) -> list[int]:
        return [byte + FIRST_BYTE for byte in replace_surrogates(text).encode("utf-8")]

    def save(self, path: str | Path) -> None:
        write_json(path, self.kind, [])


class CharacterTokenizer(Spelling):
    """The characters seen in training; any other one is spelled by its bytes."""

    kind: TokenizerKind = "characters"

    def __init__(self, characters: Sequence[str]) -> None:
        super().__init__([*BYTES, *(character.encode("utf-8") for character in characters)])
        self._characters = list(characters)
        self._numbers = {character: number for number, character in enumerate(characters, FIRST_CHARACTER)}

    def encode(self, text: str) -> list[int]:
        numbers = self._numbers
        try:
            return [numbers[character] for character in text]
        except KeyError:
            return [number for character in replace_surrogates(text) for number in self._encode_one(character)]

    def _encode_one(self, character: str) -> list[int]:
        number = self._numbers.get(character)
        return [byte + FIRST_BYTE for byte in character.encode("utf-8")] if number is None else [number]

    def save(self, path: str | Path) -> None:
        write_json(path, self.kind, self._characters)


class WordTokenizer:
    """Whatever stands between spaces; a word unseen in training is UNK."""

    kind: TokenizerKind = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [*SPECIALS, *words]
        self._numbers = {word: number for number, word in enumerate(words, len(SPECIALS))}

    @property
    def size(self) -> int:
        return len(self._words)

    def encode(self, text: str) -> list[int]:
        return [self._numbers.get(word, UNK) for word in self.split(text)]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Ids, replacement: Sequence[str] | None = None) -> str:
        words = [
            self._words[number] if number != UNK or replacement is None else replacement[i]
            for i, number in enumerate(ids)
            if number >= UNK  # the last of the specials, and the only one that shows
        ]
        return " ".join(words)

    def pieces(self, ids: Ids) -> list[str]:
        return [self._words[number] for number in ids]

    def split(self, text: str) -> list[str]:
        return [word for word in replace_surrogates(text).split(" ") if word]

    def save(self, path: str | Path) -> None:
        write_json(path, self.kind, self._words[len(SPECIALS) :])


def _frequent(counts: Counter[str], options: Text) -> list[str]:
    """The items to keep, by frequency and then by text."""
    kept = [item for item, count in counts.items() if count >= options.word_minimum and item not in SPECIALS]
    kept.sort(key=lambda item: (-counts[item], item))
    return kept[: options.word_limit or None]


def train_tokenizer(kind: TokenizerKind, lines: Iterable[str], options: Text) -> Tokenizer:
    """A tokenizer learned from normalised lines, which are read once and not kept; the same lines give the same one."""
    if kind == "bytes":
        return ByteTokenizer()
    clean = map(replace_surrogates, lines)
    if kind in ("bpe", "unigram"):
        from regard.data.subword import train_subwords

        return train_subwords(kind, clean, options)
    counts: Counter[str] = Counter()
    for line in clean:
        counts.update(line if kind == "characters" else [word for word in line.split(" ") if word])
    kept = _frequent(counts, options)
    return CharacterTokenizer(kept) if kind == "characters" else WordTokenizer(kept)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a file; one that is missing, damaged or not ours is a ModelError that names it."""
    try:
        content = json.loads(Path(path).read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not a readable tokenizer file: {error}") from None
    try:
        return _build(content)
    except ValueError as error:
        raise ModelError(f"{path}: damaged tokenizer: {error}") from None


def _build(content: Any) -> Tokenizer:
    if not isinstance(content, dict) or type(content.get("format")) is not int or content["format"] != FORMAT:
        raise ValueError(f"expected format {FORMAT}")
    kind, pieces = content.get("kind"), content.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
        raise ValueError("'pieces' must be a list of strings")
    if tuple(pieces[: len(SPECIALS)]) != SPECIALS:
        raise ValueError(f"the first pieces must be {', '.join(SPECIALS)}")
    pieces = [piece for piece in pieces[len(SPECIALS) :] if piece == replace_surrogates(piece)]
    if len(pieces) + len(SPECIALS) != len(content["pieces"]):
        raise ValueError("a piece holds a lone surrogate")
    if len(set(pieces)) != len(pieces):
        raise ValueError("a piece occurs twice")
    if kind == "bytes" and not pieces:
        return ByteTokenizer()
    if kind == "characters" and all(len(piece) == 1 for piece in pieces):
        return CharacterTokenizer(pieces)
    if kind == "words" and not any(" " in piece or piece in SPECIALS for piece in pieces):
        return WordTokenizer(pieces)
    if kind in ("bpe", "unigram"):
        from regard.data.subword import build_subwords

        return build_subwords(kind, pieces, content)
    raise ValueError(f"kind {kind!r} is not known, or its pieces do not fit it")
