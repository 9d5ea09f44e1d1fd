"""Text to text: from raw sentences to ids, and from ids to finished text and its scores.

Everything chosen in training (normalisation, tokenisation, vocabularies) is stored with the model and applied
again at inference: raw text in, finished text out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from regard.config import Text
from regard.data.batch import EOS
from regard.data.normalise import Normaliser
from regard.data.text import Pair
from regard.data.tokenizer import Tokenizer, load_tokenizer, train_tokenizer
from regard.metrics import Score, compute

CHUNK = 2000  # lines tokenised together


class Side:
    """One language of a translation: its normaliser and its tokenizer."""

    def __init__(self, normaliser: Normaliser, tokenizer: Tokenizer) -> None:
        self.normaliser = normaliser
        self.tokenizer = tokenizer

    def ids(self, text: str) -> list[int]:
        """Raw text → ids, without EOS."""
        return self.tokenizer.encode(self.normaliser(text))

    def tokens(self, text: str) -> list[str]:
        """Raw text → the pieces that are shown, one for each id; an unknown word keeps its spelling."""
        return self.tokenizer.split(self.normaliser(text))

    def many(self, texts: Sequence[str]) -> list[list[int]]:
        """Raw texts → ids, without EOS."""
        return self.tokenizer.encode_many([self.normaliser(text) for text in texts])


class Translation:
    """The task of turning one text into another."""

    def __init__(self, options: Text, source: Tokenizer, target: Tokenizer) -> None:
        self.options = options
        self.source = Side(Normaliser(options, "source"), source)
        self.target = Side(Normaliser(options, "target"), target)

    @classmethod
    def learn(cls, options: Text, pairs: Callable[[], Iterable[Pair]], number: int) -> "Translation":
        """Train the tokenizers on the corpus that `pairs` reads anew at each call."""
        sides = (Normaliser(options, "source"), Normaliser(options, "target"))
        every = max(1, -(-number // options.train_lines))

        def lines(*columns: int) -> Iterator[str]:
            for place, pair in enumerate(pairs()):
                if place % every == 0:
                    yield from (sides[column](pair[column]) for column in columns)

        if options.joint:
            joint = train_tokenizer(options.source, lines(0, 1), options)
            return cls(options, joint, joint)
        source = train_tokenizer(options.source, lines(0), options)
        return cls(options, source, train_tokenizer(options.target, lines(1), options))

    def rows(self, pairs: Iterable[Pair]) -> Iterator[tuple[list[int], list[int]]]:
        """Pairs as ids, without EOS."""
        chunk: list[Pair] = []
        for pair in pairs:
            chunk.append(pair)
            if len(chunk) == CHUNK:
                yield from self._encode(chunk)
                chunk = []
        yield from self._encode(chunk)

    def _encode(self, chunk: list[Pair]) -> Iterator[tuple[list[int], list[int]]]:
        sources = self.source.many([pair.source for pair in chunk])
        yield from zip(sources, self.target.many([pair.target for pair in chunk]), strict=True)

    def inner_text(self, ids: Sequence[int], copies: Sequence[str] | None = None) -> str:
        """Ids → tokenised text; `copies` stand in for unknown words, in order."""
        return self.target.tokenizer.decode([token for token in ids if token != EOS], copies)

    def finish(self, inner: str) -> str:
        """Tokenised text → finished text."""
        return self.target.normaliser.undo(inner)

    def metric(self, name: str) -> str:
        """The metric that says what is better: of words and symbols whether all are right, else BLEU.

        Of a model that writes in lower case BLEU is that of lower-cased text.
        """
        if name != "auto":
            return name
        if self.options.target not in ("bpe", "unigram"):
            return "exact_match"
        return "lower_bleu" if self.options.lowercase else "bleu"

    def score(self, names: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
        """Finished outputs against raw references."""
        return compute(names, outputs, references)

    def save(self, directory: Path) -> None:
        """The tokenizers as files of a model directory."""
        if self.options.joint:
            self.source.tokenizer.save(directory / "tokenizer.json")
        else:
            self.source.tokenizer.save(directory / "source.json")
            self.target.tokenizer.save(directory / "target.json")

    @classmethod
    def load(cls, directory: Path, options: Text) -> "Translation":
        """The task of a model directory."""
        if options.joint:
            joint = load_tokenizer(directory / "tokenizer.json")
            return cls(options, joint, joint)
        return cls(options, load_tokenizer(directory / "source.json"), load_tokenizer(directory / "target.json"))
