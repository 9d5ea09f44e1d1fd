"""The vocabulary that OpenNMT-py and eole share: unknown 0, padding 1, begin 2, end 3, then the words."""

from collections import Counter
from typing import Any

import pyonmttok

from benchmarks.made import pieces
from benchmarks.shapes import Shape

PAD, BEGIN, END = 1, 2, 3
SPECIALS = {"unk_token": "<unk>", "pad_token": "<blank>", "bos_token": "<s>", "eos_token": "</s>"}


def make_vocabularies(shape: Shape) -> dict[str, Any]:
    """As both toolkits expect it."""
    both = pyonmttok.build_vocab_from_tokens(
        Counter(dict.fromkeys(pieces(shape.vocabulary), 1)),
        maximum_size=shape.vocabulary,
        minimum_frequency=1,
        special_tokens=list(SPECIALS.values()),
    )
    start = {"data_task": "seq2seq", "decoder_start_token": SPECIALS["bos_token"], "specials": SPECIALS}
    return {"src": both, "tgt": both, **start}
