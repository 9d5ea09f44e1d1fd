"""Exported Transformers compute what ours do, in every form that can be exported; the others are refused by name."""

import itertools

import pytest

from regard.config import Search
from regard.directory import check_listed, read_directory, read_json
from regard.engine.export import check_exportable, write_export
from regard.errors import ConfigError

SIZE = {"kind": "transformer", "width": 16, "heads": 2, "feed_forward": 24, "encoder_layers": 2, "decoder_layers": 1}
SOURCES = [[4, 5, 6, 7, 8, 2], [9, 2], [6, 10, 11, 2], [5, 5, 5, 5, 12, 13, 14, 2]]


FORMS = {
    "norm": ["pre", "post"],
    "activation": ["relu", "gelu", "swiglu"],
    "tie": ["none", "output", "embeddings", "all"],
    "positions": ["sinusoidal", "learned", "none", "shaw", "rotary"],
    "share_layers": [False, True],
}
CASES = [dict(zip(FORMS, values, strict=True)) for values in itertools.product(*FORMS.values())]


@pytest.mark.parametrize(
    "form", CASES[::7], ids=lambda form: "-".join(map(str, form.values()))
)  # every value, most pairs
def test_every_form_gives_the_outputs_of_torch(exported, unchecked, form):
    ours, fast = exported(SIZE | form | {"max_length": 40, "relative_limit": 2}, CASES.index(form))
    for options in (Search(method="greedy", maximum_length=12), Search(stop="count", beam=3, maximum_length=12)):
        for one, other in zip(ours.search(SOURCES, options), fast.search(SOURCES, options), strict=True):
            if form["positions"] != "none":  # without them the words so far are a set, and outputs tie
                assert one[0].ids == other[0].ids
            assert one[0].score == pytest.approx(other[0].score, abs=1e-4)
            assert one[0].log_probability == pytest.approx(other[0].log_probability, abs=1e-3)
            assert one[0].finished == other[0].finished


def test_the_cases_have_every_value():
    for key, values in FORMS.items():
        assert {form[key] for form in CASES[::7]} == set(values)


def test_the_learned_table_is_the_limit(exported):
    ours, fast = exported(SIZE | {"positions": "learned", "max_length": 12})
    assert fast.limit == ours.limit == 12
    options = Search(method="greedy")
    found = fast.search(SOURCES, options)
    assert [outputs[0].ids for outputs in found] == [outputs[0].ids for outputs in ours.search(SOURCES, options)]
    assert max(len(outputs[0].ids) for outputs in found) <= 11


def test_the_sinusoidal_table_is_as_long_as_outputs_may_get(exported):
    _, fast = exported(SIZE, longest=2000)
    assert fast.limit is None
    assert fast.positions == 2 * 2000 + 10 + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"kind": "rnn"}}, r"model\.kind = 'rnn'"),
        ({"model": SIZE | {"position_join": "concatenate"}}, r"model\.position_join = 'concatenate'"),
        ({"model": SIZE | {"positions": "transformer_xl"}}, r"model\.positions = 'transformer_xl'"),
        ({"model": SIZE | {"positions": "alibi"}}, r"model\.positions = 'alibi'"),
        ({"model": SIZE | {"neighbourhood": 4}}, r"model\.neighbourhood = 4"),
        ({"model": SIZE | {"norm": "none"}}, r"model\.norm = 'none'"),
        ({"model": SIZE | {"residual": False}}, r"model\.residual = False"),
        ({"model": SIZE | {"self_attention": False}}, r"model\.self_attention = False"),
        ({"model": SIZE | {"feed_forward": 0}}, "without feed-forward"),
        ({"model": SIZE | {"encoder_layers": 0}}, "no encoder"),
        ({"text": {"target": "words"}}, r"text\.target = 'words'"),
    ],
)
def test_what_cannot_be_exported_is_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        check_exportable({"model": SIZE, "text": {"target": "bpe"}} | change)
    check_exportable({"model": SIZE, "text": {"target": "bpe"}})


def test_an_export_is_whole_or_not_there(exported, tmp_path):
    exported(SIZE)
    directory, config = read_directory(tmp_path / "model-0")
    folder = directory / "ctranslate2"
    assert check_listed(folder) >= {"model.bin", "config.json", "export.json", "parity.json"}
    before = read_json(folder / "export.json")

    def fail(folder, facts):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_export(directory, config, Search(), "int8", fail)
    assert read_json(folder / "export.json") == before
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        ["MANIFEST.json", "config.json", "ctranslate2", "model.safetensors"]
    )
    write_export(directory, config, Search(), "int8", lambda folder, facts: {"sentences": 3})
    assert read_json(folder / "export.json")["quantization"] == "int8"
    assert read_json(folder / "parity.json") == {"sentences": 3}
    read_directory(directory)  # the model's own manifest still holds
