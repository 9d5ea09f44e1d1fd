"""What some models learn from beside source and target: columns of a prepared corpus, made when a model asks for them.

fertility    how many target tokens each source token makes, over the same tokens: by an aligner (regard/align), by
             what a model looks at, or by links that another aligner has found
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from regard.align.aligner import AlignerOptions, align_bitext
from regard.align.attention import attention_links
from regard.align.bitext import Bitext, Row
from regard.align.fertility import Histogram, make_fertilities
from regard.align.links import Alignment, read_links
from regard.data.store import add_column
from regard.directory import find_directory
from regard.errors import ConfigError
from regard.predict import load, same_tokenizers
from regard.prepare import Prepared, Say


def add_columns(prepared: Prepared, names: Sequence[str], say: Say, aligner: str | None = None) -> Prepared:
    """The corpus with all these columns; those it has already stay as they are."""
    for name in names:
        if all(name in store.columns for store in (prepared.train, prepared.valid)):
            if aligner:
                say(f"{prepared.directory} has its column '{name}' already: {aligner} is not asked")
            continue
        if name not in COLUMNS:
            raise ConfigError(f"{prepared.directory} has no column '{name}', and nothing here can make it")
        prepared = COLUMNS[name](prepared, say, aligner)
    return prepared


def add_fertilities(prepared: Prepared, say: Say, aligner: str | None) -> Prepared:
    """Training and validation pairs are aligned together, so that both are counted by one aligner."""
    links, bitext = find_links(prepared, say, aligner)
    found, stores = make_fertilities(links, bitext), (prepared.train, prepared.valid)
    parts = [list(islice(found, len(store))) for store in stores]
    counts = Histogram.of(chain.from_iterable(parts))
    say(f"fertilities: mean {counts.mean:.2f}, none for {counts.zeros:.0%} of the source tokens")
    train, valid = (
        add_column(store, "fertility", (each.tolist() for each in part), len(counts.counts))
        for store, part in zip(stores, parts, strict=True)
    )
    return replace(prepared, train=train, valid=valid)


def corpus_rows(prepared: Prepared) -> Iterator[Row]:
    """All pairs as aligners read them: training before validation, without EOS, which belongs to EOS alone."""
    for store in (prepared.train, prepared.valid):
        yield from ((source[:-1], target[:-1]) for source, target in store.rows(range(len(store))))


def check_aligner(aligner: str | None) -> None:
    """Whether a file of links or a model of that name is there, if there is one to align with."""
    if aligner is not None and not Path(aligner).is_file():
        find_directory(aligner)


def find_links(prepared: Prepared, say: Say, aligner: str | None) -> tuple[Alignment, Bitext]:
    """What belongs together, by our own aligner, a model or a file of links."""
    longest = AlignerOptions().longest
    if aligner is None:
        say("aligning source and target, for the fertilities")
        bitext = Bitext.read(corpus_rows(prepared), longest)
        return align_bitext(bitext, AlignerOptions(), say), bitext
    if Path(aligner).is_file():
        say(f"reading links from {aligner}, for the fertilities")
        bitext = Bitext.read(corpus_rows(prepared), longest)
        return Alignment.pack(each.sure for each in read_links(aligner, bitext.lengths)), bitext
    say(f"aligning source and target by what {aligner} looks at, for the fertilities")
    if not same_tokenizers(find_directory(aligner), prepared.directory):
        raise ConfigError(f"data.aligner = '{aligner}': its tokenizers are not those of {prepared.directory}")
    engine = load(aligner).engine
    bitext = Bitext.read(corpus_rows(prepared), (engine.limit or longest + 1) - 1)
    return attention_links(engine.cross_attention, bitext), bitext


COLUMNS: dict[str, Callable[[Prepared, Say, str | None], Prepared]] = {"fertility": add_fertilities}
