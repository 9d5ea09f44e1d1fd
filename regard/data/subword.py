"""Subwords over bytes: BPE (Sennrich et al. 2016) and unigram (Kudo 2018), trained and applied by HF `tokenizers`.

Every piece is a string of bytes and the 256 bytes are always in, so nothing is unknown and nothing is lost.
In the file a byte is written as one printable character (GPT-2's table). A line is cut into words before
pieces are learned: at spaces, or where letters, digits and other signs meet; a space belongs to the word
that follows. A space is put before the line too, so that its first word is spelled like any other.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from regard.config import Text, TokenizerKind
from regard.data.batch import SPECIALS
from regard.data.text import replace_surrogates
from regard.data.tokenizer import Ids, Spelling, write_json

Split = Literal["spaces", "scripts"]
SubwordKind = Literal["bpe", "unigram"]
# Marks and joiners stay with their letters (Hindi, Persian), variation selectors with their signs (emoji).
PATTERNS: dict[Split, str] = {
    "spaces": r" ?[^ ]+| ",
    "scripts": r" ?\p{L}[\p{L}\p{M}\x{200C}\x{200D}]*| ?\p{N}[\p{N}\p{M}]*| ?[^\s\p{L}\p{N}]+|\s",
}
# Stand-ins for the specials inside the library: with a space in them they can match no text.
STAND_INS = [f" {name}" for name in SPECIALS]
MARK = "\ue000"  # no character of the byte table
RARE = 0.02555  # the library spreads the scores of unseen bytes over up to 256 × 0.0001 above the lowest score


def _printable_bytes() -> list[str]:
    """GPT-2's table: the printable Latin-1 characters stand for themselves, the others for U+0100 and up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + hidden.index(byte)) for byte in range(256)]


ALPHABET = _printable_bytes()
BYTE_OF = {character: byte for byte, character in enumerate(ALPHABET)}


class SubwordTokenizer(Spelling):
    """BPE with its merges, or unigram with its scores."""

    def __init__(
        self, kind: SubwordKind, pieces: Sequence[str], split: Split, model: Any, learned: dict[str, Any]
    ) -> None:
        super().__init__([bytes([BYTE_OF[character] for character in piece]) for piece in pieces])
        self.kind: TokenizerKind = kind
        self._pieces, self._split_by, self._learned = list(pieces), split, learned
        self._engine = _make_engine(model, split)

    def encode(self, text: str) -> list[int]:
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        spaced = [" " + replace_surrogates(text) if text else "" for text in texts]
        return [encoding.ids for encoding in self._engine.encode_batch_fast(spaced, add_special_tokens=False)]

    def decode(self, ids: Ids, replacement: Sequence[str] | None = None) -> str:
        return self._spell(ids, replacement).removeprefix(" ")

    def save(self, path: str | Path) -> None:
        write_json(path, self.kind, self._pieces, split=self._split_by, **self._learned)


def _make_engine(model: Any, split: Split) -> Any:
    from tokenizers import Regex, Tokenizer, pre_tokenizers

    engine = Tokenizer(model)
    cut = pre_tokenizers.Split(Regex(PATTERNS[split]), "isolated")
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.pre_tokenizer = cast(Any, pre_tokenizers.Sequence([cut, spell]))
    return engine


def train_subwords(kind: SubwordKind, lines: Iterable[str], options: Text) -> SubwordTokenizer:
    """Pieces learned from lines; only the counts of words are kept in memory."""
    split: Split = "spaces" if options.moses or options.tokenised else "scripts"
    size = max(options.vocabulary - len(SPECIALS), len(ALPHABET))
    spaced = (" " + line for line in lines if line)
    if kind == "bpe":
        pieces, merges = _train_bpe(spaced, split, size)
        return build_subwords(kind, pieces, {"split": split, "merges": merges})
    scores = _train_unigram(spaced, split, size)
    return build_subwords(kind, list(scores), {"split": split, "scores": list(scores.values())})


def _train_bpe(lines: Iterable[str], split: Split, size: int) -> tuple[list[str], list[str]]:
    from tokenizers import models, trainers

    engine = _make_engine(models.BPE(), split)
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, initial_alphabet=ALPHABET, show_progress=False, special_tokens=[]
    )
    engine.train_from_iterator(lines, trainer)
    model = json.loads(engine.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return pieces, [" ".join(pair) for pair in model["merges"]]


def _train_unigram(lines: Iterable[str], split: Split, size: int) -> dict[str, float]:
    """The trainer, like SentencePiece's, considers no piece after which every word ends (sentencepiece#967, #1047).

    So each word that was seen twice is given once more with a sign behind it, which is then taken out again.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    cut = _make_engine(models.BPE(), split).pre_tokenizer
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update([word for word, _ in cut.pre_tokenize_str(line)])
    engine = Tokenizer(models.Unigram())
    engine.pre_tokenizer = cast(Any, pre_tokenizers.WhitespaceSplit())
    trainer = trainers.UnigramTrainer(vocab_size=size + 1, initial_alphabet=ALPHABET, show_progress=False)
    engine.train_from_iterator(_repeat(counts), cast(Any, trainer))
    scores = dict(json.loads(engine.to_str())["model"]["vocab"])
    scores.pop(MARK, None)
    return _settle(scores, size)


def _repeat(counts: Counter[str]) -> Iterator[str]:
    """Every word as often as it was counted, and the frequent ones once with the mark."""
    for word in sorted(counts):
        for done in range(0, counts[word], 1000):
            yield " ".join([word] * min(1000, counts[word] - done))
        if counts[word] > 1:
            yield word + MARK


def _settle(scores: dict[str, float], size: int) -> dict[str, float]:
    """Scores freed of the hash order in which the library adds them up: rounded, sorted, all bytes in, cut to size."""
    scores = {piece: score or 0.0 for piece, score in scores.items()}  # without a corpus they are no numbers
    lowest = min(scores.values())
    scores |= {character: lowest for character in ALPHABET if character not in scores}
    rounded = {
        piece: round(lowest if len(piece) == 1 and score < lowest + RARE else score, 6)
        for piece, score in scores.items()
    }
    ordered = sorted(rounded, key=lambda piece: (len(piece) > 1, -rounded[piece], piece))[:size]
    return {piece: rounded[piece] for piece in sorted(ordered, key=lambda piece: (-rounded[piece], piece))}


def build_subwords(kind: SubwordKind, pieces: list[str], content: dict[str, Any]) -> SubwordTokenizer:
    """The tokenizer of pieces that are unique strings; what does not fit together is a ValueError."""
    split = content.get("split")
    if split not in ("spaces", "scripts"):
        raise ValueError('\'split\' must be "spaces" or "scripts"')
    if not all(character in BYTE_OF for piece in pieces for character in piece):
        raise ValueError("a piece holds a character that stands for no byte")
    if not set(ALPHABET) <= set(pieces):
        raise ValueError("one of the 256 bytes is missing")
    if kind == "bpe":
        learned = {"merges": content.get("merges")}
        model = _make_bpe(pieces, learned["merges"])
    else:
        learned = {"scores": content.get("scores")}
        model = _make_unigram(pieces, learned["scores"])
    return SubwordTokenizer(kind, pieces, split, model, learned)


def _make_bpe(pieces: list[str], merges: Any) -> Any:
    from tokenizers import models

    if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges):
        raise ValueError("'merges' must be a list of strings")
    pairs = [tuple(merge.split(" ")) for merge in merges]
    known = set(pieces)
    if not all(len(pair) == 2 and {*pair, "".join(pair)} <= known for pair in pairs):
        raise ValueError("a merge is not of two known pieces into a third")
    vocabulary = {piece: number for number, piece in enumerate([*STAND_INS, *pieces])}
    return _guard(lambda: models.BPE(vocab=vocabulary, merges=cast(Any, pairs)))


def _make_unigram(pieces: list[str], scores: Any) -> Any:
    from tokenizers import models

    if not isinstance(scores, list) or len(scores) != len(pieces):
        raise ValueError("'scores' must be a list with a number for each piece")
    if not all(isinstance(score, float) and math.isfinite(score) for score in scores):
        raise ValueError("a score is not a finite number")
    unused = [(name, min(scores) - 10.0) for name in STAND_INS]
    vocabulary = [*unused, *zip(pieces, scores, strict=True)]
    return _guard(lambda: models.Unigram(vocab=vocabulary, unk_id=SPECIALS.index("<unk>"), byte_fallback=False))


def _guard(build: Any) -> Any:
    """What the library refuses, or panics at (which is no Exception in Python), as a ValueError."""
    try:
        return build()
    except Exception as error:
        raise ValueError(f"the pieces cannot be used: {error}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError("the pieces cannot be used") from None
