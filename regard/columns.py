"""What some models learn from beside source and target: columns of a prepared corpus, made when a model asks for them.

fertility    how many target tokens each source token makes, by the aligner over the same tokens (regard/align)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from regard.align.fertility import Histogram, corpus_fertilities
from regard.data.store import add_column
from regard.errors import ConfigError
from regard.prepare import Prepared, Say


def add_columns(prepared: Prepared, names: Sequence[str], say: Say) -> Prepared:
    """The corpus with all these columns; those it has already stay as they are."""
    for name in names:
        if all(name in store.columns for store in (prepared.train, prepared.valid)):
            continue
        if name not in COLUMNS:
            raise ConfigError(f"{prepared.directory} has no column '{name}', and nothing here can make it")
        prepared = COLUMNS[name](prepared, say)
    return prepared


def add_fertilities(prepared: Prepared, say: Say) -> Prepared:
    """Training and validation pairs are aligned together, so that both are counted by one aligner."""
    say("aligning source and target, for the fertilities")
    stores = prepared.train, prepared.valid
    rows = chain.from_iterable(store.rows(range(len(store))) for store in stores)
    words = ((source[:-1], target[:-1]) for source, target in rows)  # EOS belongs to EOS alone
    found = iter(corpus_fertilities(words, say=say))
    parts = [[next(found) for _ in range(len(store))] for store in stores]
    counts = Histogram.of(chain.from_iterable(parts))
    say(f"fertilities: mean {counts.mean:.2f}, none for {counts.zeros:.0%} of the source tokens")
    train, valid = (
        add_column(store, "fertility", (each.tolist() for each in part), len(counts.counts))
        for store, part in zip(stores, parts, strict=True)
    )
    return replace(prepared, train=train, valid=valid)


COLUMNS: dict[str, Callable[[Prepared, Say], Prepared]] = {"fertility": add_fertilities}
