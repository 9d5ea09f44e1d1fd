"""Data made on the spot, with no download: written dates → ISO dates, and copy, reverse and sort.

The dates come from CLDR (through Babel), in several languages and styles: "Sunday, November 15, 2026",
"15. listopadu 2026", "2026. november 15." → "2026-11-15". Only styles whose text decides the date are used:
the year has four digits and the month is a name, so the one or two remaining digits are the day; a month
name that another style reads as another month is left out. Every example knows which characters of the
source are its year, month and day: there a model that writes them should look.
"""

import itertools
import os
import random
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from regard.errors import ConfigError, DataError

Pair = tuple[str, str]
Span = tuple[int, int]  # first character, and the one after the last

LOCALES = ("en", "de", "fr", "es", "it", "nl", "sv", "pl", "fi", "hu")
YEARS = (1000, 2999)  # both included; each digit must be read, none follows from those before it
TARGET_SPANS: dict[str, Span] = {"year": (0, 4), "month": (5, 7), "day": (8, 10)}  # in YYYY-MM-DD


@dataclass(frozen=True)
class Style:
    """One way to write a date: a CLDR pattern of a locale."""

    locale: str
    pattern: str
    upper: bool = False  # all in capitals
    ordinal: bool = False  # the day as "15th", "1er"

    @property
    def name(self) -> str:
        return self.pattern + " (capitals)" * self.upper + " (ordinal)" * self.ordinal


@dataclass(frozen=True)
class DateExample:
    """A written date, its ISO form, and where its year, month and day stand in the source."""

    source: str
    target: str  # YYYY-MM-DD, see TARGET_SPANS
    spans: dict[str, Span]  # "year", "month", "day": exactly the field ("1er" included)
    locale: str
    style: str

    @property
    def words(self) -> dict[str, Span]:
        """The spans widened to whole words, as spaces part them: "15.", "November,"."""
        return {part: _widen(self.source, span) for part, span in self.spans.items()}

    @property
    def pair(self) -> Pair:
        return self.source, self.target


@dataclass(frozen=True)
class Dates:
    """Three parts no two of which share a day of the calendar."""

    train: list[DateExample]
    valid: list[DateExample]
    test: list[DateExample]


def _widen(text: str, span: Span) -> Span:
    start, end = span
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return start, end


# Styles

# Natural beyond CLDR's own patterns; {d} is an ordinal day.
_OWN = {
    "en": ["d MMMM y", "EEEE, d MMMM y", "d MMM y", "MMMM {d}, y", "'the' {d} 'of' MMMM y"],
    "de": ["'den' d. MMMM y", "EEEE, 'den' d. MMMM y"],
    "fr": ["'le' {d} MMMM y", "'le' EEEE {d} MMMM y"],
    "es": ["d 'de' MMMM 'del' y", "EEEE d 'de' MMMM 'de' y"],
    "sv": ["'den' d MMMM y", "EEEE 'den' d MMMM y"],
    "pl": ["'dnia' d MMMM y", "d MMMM y 'r.'"],
    "cs": ["'dne' d. MMMM y"],
    "tr": ["d MMMM y, EEEE"],
}
_SKELETONS = ("yMMMd", "yMMMMd", "yMMMEd", "yMMMMEd", "yMMMMEEEEd")


@cache
def styles(locale: str) -> tuple[Style, ...]:
    """The styles of a locale: CLDR's that write the month as a name, our own, and one in capitals."""
    from babel import Locale, UnknownLocaleError

    try:
        cldr = Locale.parse(locale)
    except (UnknownLocaleError, ValueError) as error:
        raise ConfigError(f"locale '{locale}': {error}") from None
    patterns = [str(cldr.date_formats[length].pattern) for length in ("full", "long", "medium")]
    skeletons = cldr.datetime_skeletons
    patterns += [str(skeletons[name].pattern) for name in _SKELETONS if name in skeletons]
    found = [Style(locale, pattern) for pattern in dict.fromkeys(patterns) if _is_decisive(pattern)]
    if not found:
        raise ConfigError(f"locale '{locale}': no date pattern with the month as a name")
    for pattern in _OWN.get(locale, []):
        own = Style(locale, pattern.replace("{d}", "d"), ordinal="{d}" in pattern)
        if own not in found:
            found.append(own)
    plain = str(cldr.date_formats["long"].pattern)
    capitals = plain if _is_decisive(plain) else found[0].pattern
    return (*found, Style(locale, capitals, upper=True))


def _is_decisive(pattern: str) -> bool:
    """Year in full, month as a name, day, and nothing else but the weekday."""
    from babel.dates import tokenize_pattern

    fields = [value for kind, value in tokenize_pattern(pattern) if kind == "field"]
    allowed = {("y", 1), ("d", 1), *((letter, width) for letter in "MLEc" for width in (3, 4)), ("E", 1), ("E", 2)}
    letters = sorted(letter.replace("L", "M") for letter, _ in fields if letter not in "Ec")
    return set(fields) <= allowed and letters == ["M", "d", "y"]


# From a style to text

Piece = tuple[str, tuple[str, ...]]  # "year", "month", "day", "weekday" or "" (literal), and its texts by number


@cache
def _pieces(style: Style) -> tuple[Piece, ...]:
    """A style taken apart, so that writing a date is looking up its pieces."""
    from babel.dates import tokenize_pattern

    result = []
    for kind, value in tokenize_pattern(style.pattern):
        part, texts = ("", (str(value),)) if kind == "chars" else _texts(style, value[0], int(value[1]))
        result.append((part, tuple(_capitals(style.locale, text) for text in texts) if style.upper else texts))
    return tuple(result)


def _texts(style: Style, letter: str, width: int) -> Piece:
    from babel import Locale

    cldr = Locale.parse(style.locale)
    context = "stand-alone" if letter in "Lc" else "format"
    length = "wide" if width == 4 else "abbreviated"
    if letter == "y":
        return "year", tuple(str(year) for year in range(YEARS[1] + 1))
    if letter == "d":
        return "day", tuple(_day(style, day) for day in range(32))
    if letter in "ML":
        return "month", ("", *(cldr.months[context][length][month] for month in range(1, 13)))
    return "weekday", tuple(cldr.days[context][length][day] for day in range(7))


def _day(style: Style, day: int) -> str:
    if style.ordinal and style.locale == "en":
        return f"{day}{'th' if 11 <= day <= 13 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    if style.ordinal and style.locale == "fr" and day == 1:
        return "1er"
    return str(day)


def _capitals(locale: str, text: str) -> str:
    return (text.replace("i", "İ") if locale == "tr" else text).upper()


def _write(style: Style, numbers: dict[str, int]) -> tuple[str, dict[str, Span]]:
    """Text and spans of a date given as year, month, day and weekday (0 is Monday)."""
    text, spans = "", {}
    for part, texts in _pieces(style):
        start = len(text)
        text += texts[numbers[part]] if part else texts[0]
        if part and part != "weekday":
            spans[part] = (start, len(text))
    return text, spans


def write_date(day: date, style: Style) -> DateExample:
    """A date in a style."""
    numbers = {"year": day.year, "month": day.month, "day": day.day, "weekday": day.weekday()}
    source, spans = _write(style, numbers)
    return DateExample(source, day.isoformat(), spans, style.locale, style.name)


@cache
def ambiguous(locales: tuple[str, ...]) -> frozenset[tuple[Style, int]]:
    """Styles with the months which they write as another style writes another month.

    Year and day can be read from any of our texts, so two texts that are equal but mean different dates
    differ in the month alone, and are found with one year and one day.
    """
    readers: dict[str, set[tuple[Style, int]]] = {}
    for style in (style for locale in locales for style in styles(locale)):
        for month in range(1, 13):
            for weekday in range(7):
                text, _ = _write(style, {"year": 2000, "month": month, "day": 20, "weekday": weekday})
                readers.setdefault(text, set()).add((style, month))
    clashes = [readings for readings in readers.values() if len({month for _, month in readings}) > 1]
    return frozenset().union(*clashes)


# The data sets


def dates(
    train: int = 10_000, valid: int = 500, test: int = 1000, seed: int = 1, locales: Sequence[str] = LOCALES
) -> Dates:
    """Written dates in random styles; valid and test do not depend on the size of train."""
    days = list(range(date(YEARS[0], 1, 1).toordinal(), date(YEARS[1], 12, 31).toordinal() + 1))
    if min(train, valid, test) < 0 or valid + test >= len(days):
        raise ConfigError(f"dates: cannot make {train} + {valid} + {test} examples of {len(days)} days")
    if not locales:
        raise ConfigError("dates: no locale given")
    random.Random(f"days {seed}").shuffle(days)
    parts = {
        "test": (days[:test], test),
        "valid": (days[test : test + valid], valid),
        "train": (days[test + valid :], train),
    }
    made = {
        name: _make_dates(part, number, random.Random(f"{name} {seed}"), tuple(dict.fromkeys(locales)))
        for name, (part, number) in parts.items()
    }
    return Dates(made["train"], made["valid"], made["test"])


def _make_dates(days: list[int], number: int, generator: random.Random, locales: tuple[str, ...]) -> list[DateExample]:
    """The days, again and again if they are too few, in styles that take turns in random order; no text twice."""
    known = [style for locale in locales for style in styles(locale)]
    most = len(days) * max(1, len(known) // 4)  # styles may share texts, so not every pair of day and style counts
    if number > most:
        raise ConfigError(f"dates: {number} examples asked for, at most {most} can be made of these locales")
    unclear, turn = ambiguous(locales), list[Style]()
    examples: dict[str, DateExample] = {}
    for ordinal in itertools.cycle(days):
        if len(examples) == number:
            break
        turn = turn or generator.sample(known, len(known))
        day, style = date.fromordinal(ordinal), turn.pop()
        if (style, day.month) not in unclear:
            example = write_date(day, style)
            examples.setdefault(example.source, example)
    return list(examples.values())


def date_pairs(number: int, seed: int = 1) -> list[Pair]:
    """Written dates and ISO dates."""
    return [example.pair for example in dates(number, 0, 0, seed).train]


def _symbols(
    number: int, seed: int, change: Callable[[list[str]], list[str]], vocabulary: int, shortest: int, longest: int
) -> list[Pair]:
    """Random rows of symbols, and what `change` makes of each."""
    if number < 0 or vocabulary < 1 or not 0 < shortest <= longest:
        raise ConfigError(
            f"cannot make {number} rows of {shortest} to {longest} symbols out of {vocabulary}: "
            "expected number ≥ 0, vocabulary ≥ 1, 0 < shortest ≤ longest"
        )
    digits = len(str(vocabulary - 1))
    names = list(string.ascii_lowercase) if vocabulary <= 26 else [f"{index:0{digits}}" for index in range(vocabulary)]
    generator = random.Random(seed)
    sources = [generator.choices(names[:vocabulary], k=generator.randint(shortest, longest)) for _ in range(number)]
    return [(" ".join(source), " ".join(change(source))) for source in sources]


def copy(number: int, seed: int = 1, vocabulary: int = 20, shortest: int = 1, longest: int = 10) -> list[Pair]:
    """Random symbols, and the same again."""
    return _symbols(number, seed, list, vocabulary, shortest, longest)


def reverse(number: int, seed: int = 1, vocabulary: int = 20, shortest: int = 1, longest: int = 10) -> list[Pair]:
    """Random symbols, and from the last to the first."""
    return _symbols(number, seed, lambda source: source[::-1], vocabulary, shortest, longest)


def sort(number: int, seed: int = 1, vocabulary: int = 20, shortest: int = 1, longest: int = 10) -> list[Pair]:
    """Random symbols, and in alphabetical order."""
    return _symbols(number, seed, sorted, vocabulary, shortest, longest)


MADE: dict[str, Callable[[int, int], list[Pair]]] = {
    "dates": date_pairs,
    "copy": copy,
    "reverse": reverse,
    "sort": sort,
}


def write_tsv(path: Path | str, pairs: Iterable[Pair]) -> None:
    """Pairs as `source<TAB>target` lines; the file appears whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            for number, pair in enumerate(pairs, 1):
                if any(sign in text for text in pair for sign in "\t\r\n"):
                    raise DataError(f"{path}: pair {number} holds a tab or a line end: {pair!r}")
                file.write("\t".join(pair) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
