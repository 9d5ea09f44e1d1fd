import random
import re
import time
import unicodedata
from collections import Counter
from datetime import date

import pytest

from regard.errors import ConfigError, DataError
from regard.tasks import made
from regard.tasks.made import LOCALES, MADE, TARGET_SPANS, ambiguous, dates, styles, write_date, write_tsv

MORE = (*LOCALES, "cs", "pt", "tr", "da", "nb", "ro", "en_GB")


@pytest.fixture(scope="module")
def data():
    return dates(train=6000, valid=300, test=600, seed=1)


def test_sizes_and_determinism(data):
    assert (len(data.train), len(data.valid), len(data.test)) == (6000, 300, 600)
    assert dates(train=6000, valid=300, test=600, seed=1) == data
    assert dates(train=6000, valid=300, test=600, seed=2) != data
    assert dates(train=100, valid=300, test=600, seed=1).test == data.test
    assert dates(0, 0, 0) == made.Dates([], [], [])


def test_no_day_is_in_two_parts(data):
    parts = [{example.target for example in part} for part in (data.train, data.valid, data.test)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_no_text_twice_and_none_with_two_meanings(data):
    examples = data.train + data.valid + data.test
    assert len({example.source for example in examples}) == len(examples)


@pytest.mark.parametrize("locales", [LOCALES, MORE])
def test_every_style_decides_the_date(locales):
    """All days of a leap year, and one of every year, in all styles at once."""
    days = [date.fromordinal(date(2024, 1, 1).toordinal() + index) for index in range(366)]
    days += [date(year, random.Random(year).randint(1, 12), 13) for year in range(1900, 2100)]
    meaning = {}
    unclear = ambiguous(tuple(locales))
    for locale in locales:
        for style in styles(locale):
            for day in days:
                if (style, day.month) not in unclear:
                    example = write_date(day, style)
                    assert meaning.setdefault(example.source, example.target) == example.target


def test_month_names_of_two_meanings_are_found(monkeypatch):
    """ "listopada" is November in Polish and October in Croatian."""
    monkeypatch.setitem(made._OWN, "hr", ["d MMMM y"])
    styles.cache_clear()
    ambiguous.cache_clear()
    try:
        unclear = {(style.locale, style.name, month) for style, month in ambiguous(("pl", "hr"))}
        assert {("pl", "d MMMM y", 11), ("hr", "d MMMM y", 10)} <= unclear
        assert all(month in (10, 11) for _, _, month in unclear)
        examples = dates(3000, 0, 0, locales=("pl", "hr")).train
        assert not any(" listopada " in example.source and example.style == "d MMMM y" for example in examples)
    finally:
        styles.cache_clear()
        ambiguous.cache_clear()


def test_text_is_what_babel_writes():
    from babel.dates import format_date

    for locale in MORE:
        for style in styles(locale):
            if not (style.upper or style.ordinal):
                for day in (date(1987, 3, 1), date(2026, 11, 15), date(2000, 2, 29), date(2099, 12, 31)):
                    example = write_date(day, style)
                    assert example.source == format_date(day, style.pattern, locale=locale)
                    assert example.target == day.isoformat()


def test_spans_hold_their_parts(data):
    for example in data.train + data.test:
        text = {part: example.source[slice(*span)] for part, span in example.spans.items()}
        wanted = {part: int(example.target[slice(*span)]) for part, span in TARGET_SPANS.items()}
        assert set(text) == set(wanted)
        assert text["year"] == str(wanted["year"])
        assert int(re.sub(r"\D", "", text["day"])) == wanted["day"]
        assert text["month"].strip(".").isalpha()
        words = {part: example.source[slice(*span)] for part, span in example.words.items()}
        assert all(text[part] in word and word in example.source.split() for part, word in words.items())


def test_months_are_inflected_and_days_may_be_words():
    day = date(2026, 11, 1)
    written = {(style.locale, style.name): write_date(day, style) for locale in MORE for style in styles(locale)}
    part = lambda key, name: written[key].source[slice(*written[key].spans[name])]  # noqa: E731
    assert part(("fi", "d. MMMM y"), "month") == "marraskuuta"
    assert part(("pl", "d MMMM y"), "month") == "listopada"
    assert part(("cs", "d. MMMM y"), "month") == "listopadu"
    assert part(("fr", "'le' d MMMM y (ordinal)"), "day") == "1er"
    assert part(("en", "MMMM d, y (ordinal)"), "day") == "1st"
    assert written["de", "d. MMMM y (capitals)"].source == "1. NOVEMBER 2026"
    assert write_date(date(2026, 4, 1), styles("tr")[-1]).source == "1 NİSAN 2026"
    assert written["hu", "y. MMMM d., EEEE"].source == "2026. november 1., vasárnap"
    english = next(style for style in styles("en") if style.name == "MMMM d, y (ordinal)")
    days = [write_date(date(2026, 1, number), english).source.split()[1] for number in (2, 3, 11, 12, 13, 21, 22, 30)]
    assert days == ["2nd,", "3rd,", "11th,", "12th,", "13th,", "21st,", "22nd,", "30th,"]


def test_every_locale_and_style_occurs(data):
    known = {(locale, style.name) for locale in LOCALES for style in styles(locale)}
    for part in (data.train, data.valid, data.test):
        assert {(example.locale, example.style) for example in part} == known
    assert len(known) == sum(len(styles(locale)) for locale in LOCALES)
    turns = Counter((example.locale, example.style) for example in data.train)
    assert max(turns.values()) - min(turns.values()) < 20
    assert {example.target[:2] for example in data.test} == {str(century) for century in range(10, 30)}


def test_text_is_plain(data):
    text = "".join(example.source for example in data.train)
    assert unicodedata.is_normalized("NFC", text)
    assert all(sign.isascii() for sign in text if sign.isdigit())
    assert {sign for sign in text if sign.isspace()} == {" "}
    assert len(set(text)) < 100
    assert all(unicodedata.name(sign).startswith("LATIN") for sign in text if sign.isalpha())


def test_dates_are_made_fast():
    made._pieces.cache_clear()
    start = time.process_time()
    dates(10_000, seed=5)
    assert time.process_time() - start < 5


def test_more_examples_than_days():
    examples = dates(80_000, 100, 100, locales=("en", "nl")).train
    assert len({example.source for example in examples}) == 80_000


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="locale 'xx'"):
        dates(10, 0, 0, locales=("xx",))
    with pytest.raises(ConfigError, match=r"locale 'ja'.*month as a name"):
        dates(10, 0, 0, locales=("ja",))
    with pytest.raises(ConfigError, match="no locale"):
        dates(10, 0, 0, locales=())
    with pytest.raises(ConfigError, match="cannot make"):
        dates(10, 400_000, 400_000)
    with pytest.raises(ConfigError, match="at most"):
        dates(10_000_000, 0, 0, locales=("en",))


# Copy, reverse, sort


@pytest.mark.parametrize(
    ("make", "change"), [(made.copy, list), (made.reverse, lambda words: words[::-1]), (made.sort, sorted)]
)
@pytest.mark.parametrize("vocabulary", [1, 5, 26, 150])
def test_symbols(make, change, vocabulary):
    pairs = make(400, seed=3, vocabulary=vocabulary, shortest=2, longest=9)
    assert pairs == make(400, seed=3, vocabulary=vocabulary, shortest=2, longest=9)
    assert len(pairs) == 400
    for source, target in pairs:
        assert target.split(" ") == change(source.split(" "))
    assert {len(source.split()) for source, _ in pairs} == set(range(2, 10))
    assert len({word for source, _ in pairs for word in source.split()}) == vocabulary


def test_symbols_refuse_nonsense():
    with pytest.raises(ConfigError, match="shortest"):
        made.copy(10, shortest=5, longest=4)
    with pytest.raises(ConfigError, match="vocabulary"):
        made.sort(10, vocabulary=0)


# Files


@pytest.mark.parametrize("name", MADE)
def test_made_data_as_a_file(name, tmp_path):
    pairs = MADE[name](50, 4)
    path = tmp_path / "new" / "data.tsv"
    write_tsv(path, pairs)
    lines = path.read_bytes().decode("utf-8").split("\n")
    assert lines.pop() == ""
    assert [tuple(line.split("\t")) for line in lines] == pairs
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "data.tsv"
    write_tsv(path, [("a", "b")])
    with pytest.raises(DataError, match="pair 2"):
        write_tsv(path, [("c", "d"), ("e\tf", "g")])
    assert path.read_text() == "a\tb\n"
    assert list(tmp_path.iterdir()) == [path]
