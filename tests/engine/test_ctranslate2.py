"""The CTranslate2 engine: the outputs and scores of torch, and a clear word where it cannot give them."""

import json
import shutil

import pytest
import torch

from regard.config import Search
from regard.data.batch import BOS, PAD
from regard.engine.ctranslate2 import FOLDER, load_engine, unable
from regard.errors import ConfigError, ModelError

SIZE = {"kind": "transformer", "width": 16, "heads": 2, "feed_forward": 24, "encoder_layers": 1, "decoder_layers": 2}
SOURCES = [[4, 5, 6, 7, 8, 2], [9, 2], [6, 10, 11, 2], [5, 5, 5, 5, 12, 13, 14, 2], [17, 18, 2], [19, 4, 19, 2]]


def assert_same(ours, fast, options, sources=SOURCES):
    one, other = ours.search(sources, options), fast.search(sources, options)
    for wanted, found in zip(one, other, strict=True):
        assert [output.ids for output in found] == [output.ids for output in wanted]
        assert [output.finished for output in found] == [output.finished for output in wanted]
        for name in ("score", "log_probability"):
            expected = pytest.approx([getattr(output, name) for output in wanted], abs=1e-3)
            assert [getattr(output, name) for output in found] == expected
    return other


@pytest.mark.parametrize(
    "options",
    [
        {"method": "greedy"},
        {"method": "greedy", "alpha": 0.6},
        {"beam": 1},
        {"beam": 4},
        {"beam": 6, "nbest": 3},
        {"beam": 6, "nbest": 3, "alpha": 0.0},
        {"beam": 6, "nbest": 2, "alpha": 0.6},
        {"beam": 6, "nbest": 3, "penalty": "gnmt", "alpha": 0.6},
    ],
    ids=str,
)
def test_outputs_scores_and_their_order(exported, unchecked, options):
    """Long limits, so that outputs end by themselves; of several random models, as one may be too easy."""
    seen = []
    for seed in range(4):
        seen += assert_same(*exported(SIZE, seed, ending=1.0), Search(stop="count", maximum_length=60, **options))
    assert any(outputs[0].finished and len(outputs[0].ids) > 1 for outputs in seen)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_each_output_has_its_own_maximum_length(exported, unchecked, method):
    """In one batch; what is cut off is told, and pays for its end."""
    for seed in (2, 7):
        found = assert_same(*exported(SIZE, seed), Search(method=method, stop="count", beam=3, growth=0.5))
        limits = [-(-len(source) // 2) + 10 for source in SOURCES]
        lengths = [len(outputs[0].ids) for outputs in found]
        assert all(length <= limit for length, limit in zip(lengths, limits, strict=True))
        cut = [outputs[0].finished is False for outputs in found]
        assert cut == [length == limit for length, limit in zip(lengths, limits, strict=True)]
        assert any(cut)


def test_padding_is_never_chosen(exported):
    """These models would love to; scores stay those that torch gives to the same output."""
    for seed in range(3):
        ours, fast = exported(SIZE, seed, quiet=False)
        for options in (Search(method="greedy", maximum_length=8), Search(stop="count", nbest=3, maximum_length=8)):
            for source, outputs in zip(SOURCES, fast.search(SOURCES, options), strict=True):
                for output in outputs:
                    assert {PAD, BOS}.isdisjoint(output.ids)
                    price = ours.score([source], [[*output.ids, 2]])[0].sum()
                    assert output.log_probability == pytest.approx(price, abs=1e-3)


def test_nothing_long_is_cut(exported, unchecked):
    """CTranslate2 by itself would drop what is behind 1024 source tokens."""
    ours, fast = exported(SIZE, 4, longest=1400)
    long = [4 + number % 15 for number in range(1300)] + [2]
    options = Search(method="greedy", maximum_length=5)
    (found,) = assert_same(ours, fast, options, [long])[0]
    assert ours.search([[*long[:1023], 2]], options)[0][0].log_probability != pytest.approx(
        found.log_probability, abs=1e-3
    )
    with pytest.raises(ConfigError, match=r"has 2811 positions"):
        fast.search([long], Search(method="greedy", maximum_length=3000))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"method": "sample"}, "method = 'sample'"),
        ({"stop": "bound"}, "stop = 'bound'"),
        ({"minimum_length": 2}, "minimum_length = 2"),
        ({"no_repeat": 3}, "no_repeat = 3"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(exported, options, name):
    search = Search(**{"stop": "count"} | options)
    assert unable(search) == name
    with pytest.raises(ConfigError, match=name + r".* use the engine torch"):
        exported(SIZE)[1].search(SOURCES, search)


def test_scores_of_given_outputs(exported):
    ours, fast = exported(SIZE)
    sources = [*SOURCES, [4, 2], [2]]
    targets = [*SOURCES[1:], [2], [5, 5, 2], SOURCES[0]]
    for wanted, found in zip(ours.score(sources, targets), fast.score(sources, targets), strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(ConfigError, match=f"a text of {fast.positions + 1} tokens with an export that has"):
        fast.score([[4, 2]], [[4] * fast.positions + [2]])


def test_an_input_that_just_fits(exported):
    ours, fast = exported(SIZE)
    longest = [4 + number % 15 for number in range(fast.positions - 1)] + [2]
    assert_same(ours, fast, Search(method="greedy", stop="count", maximum_length=5), [longest])
    with pytest.raises(ConfigError, match=f"an input of {fast.positions + 1} tokens"):
        fast.search([[4, *longest]], Search(method="greedy", stop="count", maximum_length=5))


def test_the_rest_is_refused_as_well(exported):
    fast = exported(SIZE)[1]
    with pytest.raises(ConfigError, match="forced beginnings"):
        fast.search(SOURCES[:1], Search(stop="count"), [[4]])
    fast.search(SOURCES[:1], Search(stop="count"), [[]])
    with pytest.raises(ConfigError, match="attention maps"):
        fast.attend(SOURCES[0], SOURCES[0])
    assert fast.cross_attention(SOURCES, SOURCES) is None
    assert unable(Search(stop="count"), align=True) == "alignments"
    assert unable(Search(stop="count")) is None
    assert unable(Search(method="greedy")) is None, "greedy search does not ask how a beam search stops"


# Damage


@pytest.fixture
def directory(exported, tmp_path):
    exported(SIZE)
    return tmp_path / "model-0"


def test_torch_keeps_its_threads(directory):
    """A student is trained in the process in which its teacher was asked."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        load_engine(directory, 1, 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["model.bin", "config.json", "shared_vocabulary.json", "export.json", "parity.json"])
def test_a_flipped_bit_is_noticed(directory, name):
    path = directory / FOLDER / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"{name}: damaged"):
        load_engine(directory)


def test_an_export_of_another_model_is_noticed(directory, tmp_path, exported):
    exported(SIZE, 1)
    other = tmp_path / "model-1"
    shutil.rmtree(other / FOLDER)
    shutil.copytree(directory / FOLDER, other / FOLDER)
    with pytest.raises(ModelError, match="made from another model"):
        load_engine(other)


def test_a_missing_or_incomplete_export(directory):
    manifest = directory / FOLDER / "MANIFEST.json"
    listed = json.loads(manifest.read_text())
    del listed["files"]["model.bin"]
    manifest.write_text(json.dumps(listed))
    with pytest.raises(ModelError, match=r"does not list model\.bin"):
        load_engine(directory)
    shutil.rmtree(directory / FOLDER)
    with pytest.raises(ModelError, match=r"no such export.*regard export"):
        load_engine(directory)
