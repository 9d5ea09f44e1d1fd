"""Lossless round trips, determinism, and files that are damaged or hostile."""

import json
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Text
from regard.data.batch import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.subword import ALPHABET
from regard.data.tokenizer import load_tokenizer, train_tokenizer
from regard.errors import ModelError

KINDS = ("bytes", "characters", "words", "bpe", "unigram")
LOSSLESS = ("bytes", "characters", "bpe", "unigram")
NOUNS = [
    stem + end for stem in ("Hund", "Katz", "Häus", "Straß", "Kind") for end in ("", "chen", "heit", "erei", "lich")
]
VERBS = ["läuft", "schläft", "spielt", "singt"]


def corpus(count=400, seed=0):
    chance = random.Random(seed)
    return [f"Ein {chance.choice(NOUNS)} {chance.choice(VERBS)} um {chance.randint(1, 24)} Uhr." for _ in range(count)]


def train(kind, **options):
    return train_tokenizer(kind, corpus(), Text(vocabulary=400, **options))


TOKENIZERS = {kind: train(kind) for kind in KINDS} | {"spaces": train("bpe", tokenised=True)}
awkward = st.sampled_from("\r\n\u2028\x85\x00\t  ▁Ġé🙂\u0301\u200d\ufe0fक्ष7<s>")
texts = st.text(st.one_of(awkward, st.characters(codec="utf-8")), max_size=30)


@pytest.mark.parametrize("name", [*LOSSLESS, "spaces"])
@given(text=texts)
def test_round_trip_loses_nothing(name, text):
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(UNK < number < tokenizer.size for number in ids)
    assert len(tokenizer.pieces(ids)) == len(tokenizer.split(text)) == len(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_many_equals_one_by_one_and_seen_text_comes_back(kind):
    tokenizer, lines = TOKENIZERS[kind], [*corpus(20), ""]
    assert tokenizer.encode_many(lines) == [tokenizer.encode(line) for line in lines]
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_many(lines)] == lines
    assert tokenizer.encode("") == []
    assert tokenizer.kind == kind


@pytest.mark.parametrize("kind", KINDS)
def test_specials_do_not_show_and_unknown_does(kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("Ein Hund")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "Ein Hund"
    assert tokenizer.pieces([PAD, BOS, EOS, UNK]) == list(SPECIALS)
    shown = tokenizer.decode([*ids, UNK])
    assert shown.startswith("Ein Hund")
    assert shown.endswith("<unk>")
    assert tokenizer.decode([UNK], ["Öl"]) == "Öl"


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_spells_a_special_is_text(kind):
    tokenizer = TOKENIZERS[kind]
    assert not {PAD, BOS, EOS} & set(tokenizer.encode("<s> </s> <pad> x<s>"))
    if kind != "words":
        assert tokenizer.decode(tokenizer.encode("<s> </s> <pad> <unk>")) == "<s> </s> <pad> <unk>"
    trained = train_tokenizer(kind, ["foo<s> bar<s> <pad>"] * 50, Text(vocabulary=400, tokenised=True))
    assert trained.decode(trained.encode("bar<s>")) == "bar<s>"
    assert not {PAD, BOS, EOS} & set(trained.encode("foo<s> <pad> <s>"))


@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogates_are_replaced(kind):
    tokenizer = train_tokenizer(kind, ["a\ud800b c"], Text(vocabulary=300))
    assert "\ufffd" in tokenizer.split("a\ud800 x")[0] or kind != "words"
    if kind != "words":
        assert tokenizer.decode(tokenizer.encode("a\ud800")) == "a\ufffd"


def test_invalid_bytes_become_replacement_characters():
    tokenizer = TOKENIZERS["bytes"]
    assert tokenizer.size == 260
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"
    assert tokenizer.split("é a\n") == ["<0xC3>", "<0xA9>", "▁", "a", "<0x0A>"]


def test_unseen_characters_are_spelled_by_bytes():
    tokenizer = TOKENIZERS["characters"]
    assert len(tokenizer.encode("Häuser")) == 6
    assert tokenizer.split("H€") == ["H", "<0xE2>", "<0x82>", "<0xAC>"]
    limited = train_tokenizer("characters", ["aaab"], Text(word_minimum=2))
    assert limited.size == 4 + 256 + 1


def test_words_are_kept_by_frequency_then_text():
    lines = ["b a c", "b  a d", " e c \u2028"]
    tokenizer = train_tokenizer("words", lines, Text())
    assert tokenizer.pieces(range(4, tokenizer.size)) == ["a", "b", "c", "d", "e", "\u2028"]
    assert train_tokenizer("words", lines, Text(word_minimum=2)).size == 4 + 3
    limited = train_tokenizer("words", lines, Text(word_limit=2))
    assert limited.encode("a b c") == [4, 5, UNK]
    assert limited.split("a new  b") == ["a", "new", "b"]
    assert limited.decode([4, UNK, 5]) == "a <unk> b"
    assert limited.decode([4, UNK, EOS], ["x", "new", "y"]) == "a new"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_first_word_is_spelled_like_any_other(kind):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.encode("Hund Hund Hund") == tokenizer.encode("Hund") * 3
    assert tokenizer.split("Hund")[0].startswith("▁")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_frequent_words_are_one_piece(kind):
    tokenizer = train_tokenizer(kind, corpus(), Text(vocabulary=600))
    assert tokenizer.split("Ein Hund singt um 7 Uhr.") == ["▁Ein", "▁Hund", "▁singt", "▁um", "▁7", "▁Uhr", "."]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_vocabulary_is_a_limit_and_not_a_duty(kind):
    assert TOKENIZERS[kind].size <= 400
    assert len(TOKENIZERS[kind].encode("Hund Katzchen Straßlich")) < 10
    assert train_tokenizer(kind, corpus(), Text(vocabulary=280)).size <= 280
    for vocabulary in (1, 260, 100_000):
        small = train_tokenizer(kind, ["ab ab"], Text(vocabulary=vocabulary))
        assert 260 <= small.size < 270
        assert small.decode(small.encode("€ ab")) == "€ ab"
    nothing = train_tokenizer(kind, [], Text())
    assert nothing.decode(nothing.encode("ab")) == "ab"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_words_are_cut_where_scripts_meet_or_at_spaces(kind):
    words = " ".join(f"{first},{rest}{last}" for first in "BFGHL" for rest in ("aus", "ein", "und") for last in "st")
    lines = [f"हिन्दी, हिन्दी 12kg ❤️! {words}"] * 50
    scripts = train_tokenizer(kind, lines, Text(vocabulary=4000))
    spaces = train_tokenizer(kind, lines, Text(vocabulary=4000, moses=True))
    assert any("," in piece and len(piece) > 1 for piece in spaces.pieces(range(4, spaces.size)))
    for piece in scripts.pieces(range(4, scripts.size)):
        kinds = {
            "letter" if c.isalpha() else "digit" if c.isdigit() else "sign" for c in piece if c in "हनद12kgHaus,!❤"
        }
        assert len(kinds) <= 1 or piece.startswith("<0x"), piece
    if kind == "bpe":
        assert scripts.split("हिन्दी") == ["▁हिन्दी"]  # its vowel signs are marks, not letters


PROGRAM = """
import sys; sys.path.insert(0, sys.argv[1])
from test_tokenizer import corpus, train_tokenizer, Text
train_tokenizer(sys.argv[2], corpus(), Text(vocabulary=400)).save(sys.argv[3])
"""


@pytest.mark.parametrize("kind", ["characters", "words", "bpe", "unigram"])
def test_training_twice_gives_the_same_file(kind, tmp_path):
    from pathlib import Path

    for name in ("a", "b"):
        train(kind).save(tmp_path / name)
    TOKENIZERS[kind].save(tmp_path / "c")
    program = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), kind, str(tmp_path / "d")]
    subprocess.run(program, check=True, timeout=60)
    contents = {(tmp_path / name).read_bytes() for name in "abcd"}
    assert len(contents) == 1


@pytest.mark.parametrize("name", [*KINDS, "spaces"])
def test_saved_and_loaded_is_the_same(name, tmp_path):
    tokenizer, path = TOKENIZERS[name], tmp_path / "t.json"
    tokenizer.save(path)
    loaded = load_tokenizer(path)
    lines = [*corpus(30, seed=5), "Öl, 123 नमस्ते  x"]
    assert (loaded.kind, loaded.size) == (tokenizer.kind, tokenizer.size)
    assert loaded.encode_many(lines) == tokenizer.encode_many(lines)
    assert loaded.pieces(range(loaded.size)) == tokenizer.pieces(range(tokenizer.size))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def damage(kind, change):
    """The content of a saved tokenizer, changed."""

    def make(tmp_path):
        TOKENIZERS[kind].save(tmp_path / "t.json")
        content = json.loads((tmp_path / "t.json").read_bytes())
        change(content)
        return json.dumps(content).encode()

    return make


DAMAGES = {
    "no file": None,
    "empty": b"",
    "cut off": b'{"format": 1, "kind": "wor',
    "not UTF-8": b'{"format": "\xff"}',
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "other format": damage("bpe", lambda c: c.update(format=2)),
    "format is true": damage("bpe", lambda c: c.update(format=True)),
    "unknown kind": damage("bpe", lambda c: c.update(kind="os.system")),
    "kind is a list": damage("bpe", lambda c: c.update(kind=["bpe"])),
    "no pieces": damage("words", lambda c: c.pop("pieces")),
    "numbers as pieces": damage("words", lambda c: c["pieces"].append(7)),
    "lists as pieces": damage("words", lambda c: c["pieces"].append(["a"])),
    "empty piece": damage("words", lambda c: c["pieces"].append("")),
    "no specials": damage("words", lambda c: c["pieces"].pop(0)),
    "specials swapped": damage("bpe", lambda c: c["pieces"].insert(0, c["pieces"].pop(1))),
    "duplicate piece": damage("words", lambda c: c["pieces"].append(c["pieces"][5])),
    "second special": damage("words", lambda c: c["pieces"].append("<pad>")),
    "surrogate": damage("words", lambda c: c["pieces"].append("\ud800")),
    "word with a space": damage("words", lambda c: c["pieces"].append("a b")),
    "long character": damage("characters", lambda c: c["pieces"].append("ab")),
    "pieces for bytes": damage("bytes", lambda c: c["pieces"].append("a")),
    "missing byte": damage("bpe", lambda c: c["pieces"].remove(ALPHABET[0])),
    "no alphabet": damage("bpe", lambda c: c["pieces"].append("日")),
    "a pattern": damage("bpe", lambda c: c.update(split="(a+)+$")),
    "no split": damage("bpe", lambda c: c.pop("split")),
    "no merges": damage("bpe", lambda c: c.pop("merges")),
    "merges of numbers": damage("bpe", lambda c: c.update(merges=[1, 2])),
    "merge of one": damage("bpe", lambda c: c["merges"].append("a")),
    "merge of three": damage("bpe", lambda c: c["merges"].append("a b c")),
    "merge of the unknown": damage("bpe", lambda c: c["merges"].append("a xyzxyz")),
    "merge into the unknown": damage("bpe", lambda c: c["merges"].append("q q")),
    "duplicate subword": damage("bpe", lambda c: c["pieces"].append(c["pieces"][-1])),
    "no scores": damage("unigram", lambda c: c.pop("scores")),
    "too few scores": damage("unigram", lambda c: c["scores"].pop()),
    "score is text": damage("unigram", lambda c: c["scores"].__setitem__(3, "1")),
    "score is not a number": damage("unigram", lambda c: c["scores"].__setitem__(3, float("nan"))),
    "score is infinite": damage("unigram", lambda c: c["scores"].__setitem__(3, float("-inf"))),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_named(name, tmp_path):
    content, path = DAMAGES[name], tmp_path / "damaged.json"
    if content is not None:
        path.write_bytes(content(tmp_path) if callable(content) else content)
    with pytest.raises(ModelError, match=r"damaged\.json"):
        load_tokenizer(path)
