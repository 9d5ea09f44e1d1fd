"""What some models learn from beside source and target: columns of a prepared corpus, made when a model asks for them.

fertility    how many target tokens each source token makes, over the same tokens: by an aligner (regard/align), or by
             what a model looks at
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice

from regard.align.aligner import AlignerOptions, align_bitext
from regard.align.attention import attention_links
from regard.align.bitext import Bitext, Row
from regard.align.fertility import Histogram, make_fertilities
from regard.align.links import Alignment
from regard.data.store import add_column
from regard.directory import find_directory
from regard.errors import ConfigError
from regard.predict import load, same_tokenizers
from regard.prepare import Prepared, Say


def add_columns(prepared: Prepared, names: Sequence[str], say: Say, aligner: str | None = None) -> Prepared:
    """The corpus with all these columns; those it has already stay as they are."""
    for name in names:
        if all(name in store.columns for store in (prepared.train, prepared.valid)):
            continue
        if name not in COLUMNS:
            raise ConfigError(f"{prepared.directory} has no column '{name}', and nothing here can make it")
        prepared = COLUMNS[name](prepared, say, aligner)
    return prepared


def add_fertilities(prepared: Prepared, say: Say, aligner: str | None) -> Prepared:
    """Training and validation pairs are aligned together, so that both are counted by one aligner."""
    stores = prepared.train, prepared.valid
    rows = chain.from_iterable(store.rows(range(len(store))) for store in stores)
    words = ((source[:-1], target[:-1]) for source, target in rows)  # EOS belongs to EOS alone
    say(f"aligning source and target{f' by what {aligner} looks at' if aligner else ''}, for the fertilities")
    links, bitext = links_of_model(words, aligner, prepared) if aligner else links_of_words(words, say)
    found = make_fertilities(links, bitext)
    parts = [list(islice(found, len(store))) for store in stores]
    counts = Histogram.of(chain.from_iterable(parts))
    say(f"fertilities: mean {counts.mean:.2f}, none for {counts.zeros:.0%} of the source tokens")
    train, valid = (
        add_column(store, "fertility", (each.tolist() for each in part), len(counts.counts))
        for store, part in zip(stores, parts, strict=True)
    )
    return replace(prepared, train=train, valid=valid)


def links_of_words(rows: Iterable[Row], say: Say) -> tuple[Alignment, Bitext]:
    """What belongs together by the aligner."""
    options = AlignerOptions()
    bitext = Bitext.read(rows, options.longest)
    return align_bitext(bitext, options, say), bitext


def links_of_model(rows: Iterable[Row], aligner: str, prepared: Prepared) -> tuple[Alignment, Bitext]:
    """What belongs together by the attention of a model that has the tokens of the corpus."""
    if not same_tokenizers(find_directory(aligner), prepared.directory):
        raise ConfigError(f"data.aligner = '{aligner}': its tokenizers are not those of {prepared.directory}")
    engine = load(aligner).engine
    bitext = Bitext.read(rows, (engine.limit or AlignerOptions().longest + 1) - 1)
    return attention_links(engine.cross_attention, bitext), bitext


COLUMNS: dict[str, Callable[[Prepared, Say, str | None], Prepared]] = {"fertility": add_fertilities}
