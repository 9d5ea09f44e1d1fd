"""The models that all sides build alike. Source, target and output share one table of vectors."""

from dataclasses import dataclass

SPECIALS = 4  # ids below are for padding, begin, end and unknown; each toolkit has its own order of them
FIRST = SPECIALS + 256  # ids between are for the bytes our tokenizer spells unknown characters by


@dataclass(frozen=True)
class Shape:
    """The size of an encoder–decoder; a Transformer if it has heads, else an LSTM with Luong's general attention
    and input feeding, whose encoder reads in one direction."""

    layers: int  # of the encoder, and of the decoder
    width: int
    heads: int = 0
    feed_forward: int = 0
    vocabulary: int = 8000
    dropout: float = 0.1
    smoothing: float = 0.1  # of labels
    clip: float = 1.0  # largest norm of the gradient


SHAPES = {
    "A": Shape(4, 128, 4, 256),
    "B": Shape(3, 256, 8, 1024),
    "LSTM": Shape(1, 256),
    "tiny": Shape(1, 16, 2, 32, vocabulary=400),  # for tests
    "tiny LSTM": Shape(1, 16, vocabulary=400),
}
