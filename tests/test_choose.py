import itertools
import json
from pathlib import Path

import pytest

from regard.choose import choose, follow_teacher, overlap, study
from regard.config import Data
from regard.errors import DataError


def write(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return str(path)


def choose_for(path: str):
    return choose(Data(train=path))


def test_the_corpus_is_read_as_told(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"de": "w{i} und w{i}", "en": "v{i} and v{i}"}}\n' for i in range(50)))
    run, _ = choose(Data(train=str(path), source_key="de", target_key="en"))
    assert run.data.source_key == "de"


def sentences(number: int) -> list[tuple[str, str]]:
    return [(f"the w{i} sees a v{i % 97} near z{i % 31}", f"das w{i} sieht ein v{i % 97}") for i in range(number)]


def test_commands_get_words_on_both_sides(tmp_path):
    verbs, times = ["jump", "run", "walk"], ["once", "twice", "thrice"]
    pairs = [
        (f"{verb} {time}", " ".join(["DO"] * n + [verb.upper()])) for verb in verbs for n, time in enumerate(times)
    ]
    run, reasons = choose_for(write(tmp_path / "a.tsv", pairs * 20))
    assert (run.text.source, run.text.target) == ("words", "words")
    assert run.model["kind"] == "rnn"
    assert any("words" in reason for reason in reasons)


def test_spelling_to_sound_gets_characters_and_symbols(tmp_path):
    words = [f"{a}{b}{c}o" for a in "bcdfg" for b in "aeiou" for c in "lmnpr"]
    run, _ = choose_for(write(tmp_path / "a.tsv", [(word, " ".join(word)) for word in words]))
    assert (run.text.source, run.text.target) == ("characters", "words")
    assert run.text.target_unicode == "none"  # phonemes are written as the data write them


def test_hangul_syllables_are_taken_apart(tmp_path):
    syllables = [chr(0xAC00 + 37 * i) for i in range(300)]
    run, reasons = choose_for(write(tmp_path / "a.tsv", [(s + t, "k a n") for s, t in itertools.pairwise(syllables)]))
    assert run.text.source_unicode == "NFD"
    assert any("NFD" in reason for reason in reasons)


def test_sentences_get_a_transformer_that_grows_with_the_corpus(tmp_path):
    run, _ = choose_for(write(tmp_path / "a.tsv", sentences(2000)))
    assert run.model["kind"] == "transformer"
    assert (run.text.source, run.text.target) == ("bpe", "bpe")
    assert run.text.joint
    assert run.model["tie"] == "all"
    larger, _ = choose_for(write(tmp_path / "b.tsv", sentences(8000)))
    assert larger.text.vocabulary > run.text.vocabulary


def test_different_scripts_get_separate_vocabularies(tmp_path):
    pairs = [
        (f"the w{i} is here", "".join(chr(0x430 + (i * k) % 32) for k in range(1, 9)) + " тут есть") for i in range(500)
    ]
    run, _ = choose_for(write(tmp_path / "a.tsv", pairs))
    assert not run.text.joint
    assert run.model["tie"] == "output"


def test_names_of_files_do_not_matter(tmp_path):
    one, _ = choose_for(write(tmp_path / "train.en-de.tsv", sentences(300)))
    other, _ = choose_for(write(tmp_path / "phonemes.tsv", sentences(300)))
    assert one.model_copy(update={"data": other.data}) == other


def test_an_empty_corpus_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"empty\.tsv"):
        choose_for(write(tmp_path / "empty.tsv", []))


def test_study_counts():
    facts = study(["a b a", "c", ""])
    assert (facts.lines, facts.words, facts.word_types) == (3, 4, 3)
    assert facts.single == pytest.approx(2 / 3)


def test_overlap_is_that_of_the_side_with_less():
    assert overlap(study(["abc"]).characters, study(["abcx"]).characters) == pytest.approx(0.75)


def test_a_student_is_as_its_teacher_with_the_layers_in_the_encoder(shop):
    run, reasons = follow_teacher(shop / "transformer", Data(train=str(shop / "pairs.tsv")))
    config = json.loads((shop / "transformer" / "model" / "config.json").read_text())
    assert run.text.model_dump() == config["text"]
    changed = {key for key, value in run.model.items() if config["model"][key] != value}
    assert changed <= {"encoder_layers", "decoder_layers", "norm", "dropout"}
    assert (run.model["encoder_layers"], run.model["decoder_layers"]) == (2 * config["model"]["encoder_layers"], 1)
    assert (run.train.metric, run.data.max_length) == ("auto", config["longest"])
    assert len(reasons) == 3
    assert not [reason for reason in reasons if "RNN" in reason]
    run, _ = follow_teacher(shop / "rnn", Data(train=str(shop / "pairs.tsv")))
    assert run.model == json.loads((shop / "rnn" / "model" / "config.json").read_text())["model"]
