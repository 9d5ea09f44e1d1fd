"""Normalisation, Moses tokenisation as the Multi30k authors did it, and its reverse."""

import os
from pathlib import Path

import pytest

from regard.config import Text
from regard.data.normalise import Normaliser
from regard.data.text import read_lines

ENTITIES = {
    "&quot;": '"',
    "&apos;": "'",
    "&lt;": "<",
    "&gt;": ">",
    "&#91;": "[",
    "&#93;": "]",
    "&#124;": "|",
    "&amp;": "&",
}
SHARED = Path(os.environ.get("REGARD_DATA", Path(__file__).parents[3] / "shared" / "data")) / "multi30k"


def unescape(text):
    for entity, character in ENTITIES.items():
        text = text.replace(entity, character)
    return text


@pytest.mark.skipif(not SHARED.is_dir(), reason="Multi30k is not here")
@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("part", ["val", "test_2016_flickr"])
def test_moses_agrees_with_the_authors_of_multi30k(language, part):
    normalise = Normaliser(Text(moses=True, lowercase=True, source_language=language), "source")
    raw = read_lines(SHARED / "raw" / f"{part}.{language}.gz")
    expected = read_lines(SHARED / "tok" / f"{part}.lc.norm.tok.{language}.gz")
    different = [text for text, theirs in zip(raw, expected, strict=True) if normalise(text) != unescape(theirs)]
    assert different == []


def test_nothing_is_done_unless_asked():
    normalise = Normaliser(Text(source_unicode="none"), "source")
    text = "  Cafe\u0301 &amp; “x”\u2028 "
    assert normalise(text) == text
    assert normalise.undo(text) == text


@pytest.mark.parametrize("options", [Text(), Text(moses=True), Text(tokenised=True), Text(lowercase=True)])
def test_white_space_alone_gives_nothing(options):
    assert Normaliser(options, "target")(" \t\u2028\u3000 ") == ""
    assert Normaliser(options, "target")("") == ""


def test_unicode_forms_and_case():
    assert Normaliser(Text(), "source")("e\u0301") == "é"
    assert Normaliser(Text(source_unicode="NFKD"), "source")("ﬁé") == "fie\u0301"
    assert Normaliser(Text(lowercase=True), "source")("ÄB") == "äb"
    assert Normaliser(Text(), "source")("a\ud800") == "a\ufffd"


def test_the_language_is_that_of_the_side():
    options = Text(moses=True, source_language="en", target_language="fr")
    assert Normaliser(options, "source")("It's") == "It 's"
    assert Normaliser(options, "target")("l'eau") == "l' eau"
    assert Normaliser(options, "target").undo("l' eau") == "l'eau"


@pytest.mark.parametrize(
    "text",
    [
        'He said: "yes, 3,5 times (or more)!"',
        "It's the dogs' home, isn't it?",
        "See https://example.org/a-b?c=1&d=2, or write to first.last@mail.example.com.",
        "R&D; [a] {b} a|b",
        "Wait ... no.",
    ],
)
def test_undo_gives_running_text_back(text):
    normalise = Normaliser(Text(moses=True), "source")
    assert normalise(text) != text
    assert normalise.undo(normalise(text)).replace(" ", "") == text.replace(" ", "")
    assert "  " not in normalise.undo(normalise(text))


def test_addresses_stay_whole():
    normalise = Normaliser(Text(moses=True), "source")
    assert normalise("(http://a.org/b_c/?d=e).") == "( http://a.org/b_c/?d=e ) ."
    text = "mail x@y.org, now: http://a.b/c!"
    assert normalise.undo(normalise(text)) == text
    many = "http://a.org/b " * 1500
    assert normalise(many).replace(" ", "") == many.replace(" ", "")


def test_entities_in_the_text_are_text():
    normalise = Normaliser(Text(moses=True), "source")
    assert normalise("a &amp; b") == "a & amp ; b"
    assert normalise.undo("a &amp; b") == "a &amp; b"


def test_czech_words_the_library_stumbles_over():
    assert Normaliser(Text(moses=True, target_language="cs"), "target").undo("ma' - li to") == "ma' - li to"


def test_tokenised_text_is_left_alone():
    normalise = Normaliser(Text(tokenised=True), "source")
    assert normalise("a , b .") == "a , b ."
    assert normalise.undo("a , b .") == "a , b ."
