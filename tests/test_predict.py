"""The Predictor: the one path from raw text to finished text."""

import json

import numpy as np
import pytest

import regard
from regard.config import Search, Text
from regard.data.batch import EOS, UNK, Hypothesis
from regard.data.tokenizer import train_tokenizer
from regard.errors import ConfigError, DataError, ModelError
from regard.predict import Predictor, length_batches
from regard.tasks.translation import Translation


class Parrot:
    """An engine that says what it hears, and looks at the word it says."""

    limit = None
    workers = 1

    def __init__(self):
        self.batches, self.prefixes = [], []

    def search(self, sources, options, prefixes=None, seeds=None):
        self.batches.append([list(source) for source in sources])
        self.prefixes += prefixes or []
        return [[Hypothesis(tuple(source[:-1]), -1.0, -2.0)] * options.nbest for source in sources]

    def cross_attention(self, sources, targets):
        return np.stack([np.eye(len(target), len(source)) for source, target in zip(sources, targets, strict=True)])


@pytest.fixture
def parrot():
    options = Text(source="words", target="words")
    tokenizer = train_tokenizer("words", ["a b c"], options)
    task = Translation(options, tokenizer, tokenizer)
    return Predictor(task, Parrot(), Search(batch_tokens=60), 6, {"model": {"kind": "parrot"}, "name": "polly"})


def test_order_is_kept_and_blank_lines_stay_away_from_the_model(parrot):
    texts = ["a b c", "", "a", " \t\u2028", "c b"]
    assert [output.text for output in parrot.translate(texts)] == ["a b c", "", "a", "", "c b"]
    assert parrot.counts["blank"] == 2
    assert sum(map(len, parrot.engine.batches)) == 3
    assert all(len(source) > 1 for batch in parrot.engine.batches for source in batch)


def test_unknown_words_are_copied_and_counted(parrot):
    (output,) = parrot.translate(["a zebra c"], align=True)
    assert output.text == "a zebra c"
    assert output.ids[1] == UNK
    assert output.source_tokens == ("a", "zebra", "c")
    assert output.alignment == ((0, 0), (1, 1), (2, 2))
    assert parrot.counts["unknown words copied"] == 1
    parrot.engine.cross_attention = lambda sources, targets: None
    assert parrot.translate(["a zebra"], align=True)[0].text == "a <unk>"
    assert parrot.counts["unknown words"] == 1


def test_too_long_texts_go_in_parts_and_come_back_whole(parrot):
    text = "a b c. a b c. a b c. a b c."
    (output,) = parrot.nbest([text], prefixes=["b"], align=True, nbest=2, beam=2)[0][:1]
    assert output.text == text
    assert parrot.counts["too long"] == 1
    assert max(len(source) for batch in parrot.engine.batches for source in batch) <= 6
    assert output.alignment == tuple((place, place) for place in range(12))
    assert [len(prefix) for prefix in parrot.engine.prefixes] == [1, 0, 0, 0], "the first part takes the prefix"


def test_options_of_the_search_are_checked(parrot):
    with pytest.raises(ConfigError, match="baem: unknown key; did you mean 'beam'"):
        parrot.translate(["a"], baem=3)
    with pytest.raises(TypeError, match="list of texts"):
        parrot.translate("a")


def test_batches_by_length():
    lengths = [3, 9, 1, 5, 5, 2]
    batches = length_batches(lengths, 10)
    assert sorted(row for batch in batches for row in batch) == list(range(6))
    assert all(len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= 10 for batch in batches)
    assert length_batches([], 10) == []


# Real models through the library


def test_the_library(shop, call):
    model = regard.load(shop / "rnn")
    texts = ["a b c", "", "d"]
    outputs = model.translate(texts, beam=2, maximum_length=5, align=True)
    assert [type(output) for output in outputs] == [Hypothesis] * 3
    done = call("translate", shop / "rnn", "--beam", 2, "maximum_length=5", stdin="\n".join(texts).encode())
    assert done.out.decode().splitlines() == [output.text for output in outputs]
    assert len(outputs[0].tokens) == len(outputs[0].ids) == len(outputs[0].alignment)
    assert [len(each) for each in model.nbest(["a b"], nbest=3)] == [3]


def test_attention_shows_itself(shop):
    report = regard.load(shop / "transformer").attend("a b", maximum_length=3)
    html = report._repr_html_()
    assert "<iframe" in html
    assert report.views[0].source_tokens == ["a", "▁", "b", "</s>"]
    with pytest.raises(DataError, match="0 tokens"):
        regard.load(shop / "transformer").attend("  ")


def test_record(shop):
    model = regard.load(shop / "transformer")
    source = [*model.task.source.ids("a b"), EOS]
    with regard.record(model.engine.models[0]) as maps:
        model.engine.score([source], [source])
    assert any("cross" in name for name in maps)
    for name in maps:
        np.testing.assert_allclose(maps[name].sum(-1), 1, atol=1e-5)


def test_loading_nothing_or_two_that_differ(shop):
    with pytest.raises(ModelError, match="no model directory given"):
        regard.load()
    with pytest.raises(ModelError, match="tokenizers differ"):
        regard.load(shop / "rnn", shop / "transformer")


def test_texts_beyond_the_table_of_positions(shop, call, tmp_path):
    words = ("model.positions=learned", "model.max_length=12", "data.max_length=12", "train.max_steps=1", "--quiet")
    done = call("train", shop / "tiny.toml", "-o", tmp_path / "run", *words)
    assert done.code == 0, done.err
    model = regard.load(tmp_path / "run")
    assert model.longest == 12
    assert model.translate(["a b c d e f g h i j k"])[0].text is not None
    assert model.counts["too long"] == 1
    with pytest.raises(DataError, match="pair 2: longer than the model's 12 tokens"):
        model.score(["a", "a"], ["a", "a b c d e f g h"])
    with pytest.raises(DataError, match="tokens; expected 1 to 11"):
        model.attend("a b c d e f g h")
    (tmp_path / "long.tsv").write_text("a b\tb a\na b c d e f g h\th g f e d c b a\n")
    done = call("evaluate", tmp_path / "run", tmp_path / "long.tsv", "--samples", 0, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["scores"]["perplexity"]["value"] > 1
    assert result["notes"]["pairs too long for the perplexity"] == 1


def test_each_text_has_its_own_beginning(shop):
    with pytest.raises(DataError, match="1 prefixes for 2 texts"):
        regard.load(shop / "rnn").nbest(["a", "b"], prefixes=["b"])
