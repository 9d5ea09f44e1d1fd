"""Subwords over bytes: BPE (Sennrich et al. 2016) and unigram (Kudo 2018), trained and applied by HF `tokenizers`.

Every piece is a string of bytes and the 256 bytes are always in, so nothing is unknown and nothing is lost.
In the file a byte is written as one printable character (GPT-2's table). A line is cut into words before
pieces are learned: at spaces, or where letters, digits and other signs meet; a space belongs to the word
that follows. A space is put before the line too, so that its first word is spelled like any other.

The unigram trainer, like SentencePiece's, only considers pieces that different words have in common and go
on differently in (sentencepiece#967, #1047): on a corpus of few different words BPE makes better pieces.
"""

import math
from collections.abc import Iterable, Sequence
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
    import json

    from tokenizers import models, trainers

    split: Split = "spaces" if options.moses or options.tokenised else "scripts"
    size = max(options.vocabulary - len(SPECIALS), len(ALPHABET))
    trainer: Any
    if kind == "bpe":
        engine = _make_engine(models.BPE(), split)
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, initial_alphabet=ALPHABET, show_progress=False, special_tokens=[]
        )
    else:
        engine = _make_engine(models.Unigram(), split)
        trainer = trainers.UnigramTrainer(vocab_size=size, initial_alphabet=ALPHABET, show_progress=False)
    engine.train_from_iterator((" " + line for line in lines if line), trainer)
    model = json.loads(engine.to_str())["model"]
    if kind == "bpe":
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        learned: dict[str, Any] = {"merges": [" ".join(pair) for pair in model["merges"]]}
    else:
        scores = _settle(dict(model["vocab"]))
        pieces, learned = list(scores), {"scores": list(scores.values())}
    return build_subwords(kind, pieces, {"split": split, **learned})


def _settle(scores: dict[str, float]) -> dict[str, float]:
    """Scores and order freed of the hash order in which the library adds them up: rounded, then sorted."""
    scores = {piece: score or 0.0 for piece, score in scores.items()}  # without a corpus they are no numbers
    lowest = min(scores.values())
    missing = dict.fromkeys((character for character in ALPHABET if character not in scores), lowest)
    rounded = {
        piece: round(lowest if len(piece) == 1 and score < lowest + RARE else score, 6)
        for piece, score in (scores | missing).items()
    }
    return dict(sorted(rounded.items(), key=lambda item: (-item[1], item[0])))


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
