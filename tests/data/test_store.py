"""The memory-mapped corpus: what goes in comes out, and damage is noticed."""

import json
import os

import numpy as np
import pytest

from regard.data import store as module
from regard.data.batch import EOS, make_batch
from regard.data.store import Store, add_column, write_store
from regard.errors import DataError

FILES = ["source.bin", "source.idx", "target.bin", "target.idx"]
ROWS = [([5, 6, 7], [8]), ([], [9, 9]), ([4], []), (list(range(4, 40)), [5] * 50)]


@pytest.fixture
def directory(tmp_path):
    write_store(tmp_path / "store", ROWS, 100, 100, {"tokenizer": "ä"})
    return tmp_path / "store"


def content(store):
    return [(row.source.tolist(), row.target.tolist()) for row in store.rows(range(len(store)))]


def test_rows_come_back_with_an_end(directory):
    store = Store(directory)
    assert content(store) == [([*source, EOS], [*target, EOS]) for source, target in ROWS]
    assert store.meta == {"tokenizer": "ä"}
    assert (store.source_size, store.target_size) == (100, 100)
    source, target = store.lengths()
    assert source.tolist() == [4, 1, 2, 37]
    assert target.tolist() == [2, 3, 1, 51]
    assert source.dtype == target.dtype == np.uint16
    assert (store.source_tokens, store.target_tokens) == (44, 57)
    store.verify()
    assert sorted(os.listdir(directory)) == sorted(["store.json", *FILES])


@pytest.mark.parametrize("large", [0, 1 << 28])
def test_a_batch_equals_the_padded_rows(directory, large, monkeypatch):
    monkeypatch.setattr(module, "LARGE", large)
    store = Store(directory)
    numbers = [3, 0, 1, 0]
    expected = make_batch([store.source(i) for i in numbers], [store.target(i) for i in numbers], numbers)
    found = store.batch(numbers)
    for name in ("source", "source_length", "target", "target_length", "index"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)


COLUMN = [[1, 0, 300], [], [2], [1] * 36]


@pytest.mark.parametrize("large", [0, 1 << 28])
def test_a_column_has_a_number_for_each_source_token(directory, large, monkeypatch):
    monkeypatch.setattr(module, "LARGE", large)
    before = Store(directory)
    assert before.columns == ()
    assert before.batch([0]).extra == {}
    store = add_column(before, "fertility", COLUMN, 301)
    assert Store(directory).columns == store.columns == ("fertility",)
    found = store.batch([2, 0, 1])
    assert found.extra["fertility"].tolist() == [[2, 0, 0, 0], [1, 0, 300, 0], [0, 0, 0, 0]]
    assert found.source.tolist() == before.batch([2, 0, 1]).source.tolist()
    store.verify()
    assert content(store) == content(before)
    again = add_column(store, "fertility", [[0] * len(row) for row in COLUMN], 1)
    assert not again.batch([0, 3]).extra["fertility"].any()


def test_a_column_that_does_not_fit_is_refused(directory):
    store = Store(directory)
    for rows, message in (
        (COLUMN[:3], "found 3 rows, expected 4"),
        ([*COLUMN, [1]], "row 4: found 1 numbers, expected no such row"),
        ([[1, 2], *COLUMN[1:]], "row 0: found 2 numbers, expected 3 numbers"),
        ([[1, 0, 301], *COLUMN[1:]], "outside the vocabulary of 301"),
    ):
        with pytest.raises(ValueError, match=message):
            add_column(store, "fertility", rows, 301)
        assert Store(directory).columns == ()
    for name in ("source", "a/b", ""):
        with pytest.raises(ValueError, match="cannot be called"):
            add_column(store, name, COLUMN, 301)


def test_damage_of_a_column_is_noticed(directory):
    add_column(Store(directory), "fertility", COLUMN, 301)
    path = directory / "fertility.bin"
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"fertility\.bin: damaged"):
        Store(directory).verify()
    path.unlink()
    with pytest.raises(DataError, match=r"fertility\.bin: cannot be read"):
        Store(directory)
    text = (directory / "store.json").read_text()
    (directory / "store.json").write_text(text.replace('"fertility":', '"../fertility":'))
    with pytest.raises(DataError, match="a column called"):
        Store(directory)


def test_stores_keep_no_files_open(directory):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Store(directory).batch([0, 1])
    assert len(os.listdir("/proc/self/fd")) <= before + 6


def test_rows_stay_the_same_after_release(directory):
    store = Store(directory)
    row = store.source(3)
    before = content(store)
    store.release()
    assert row.tolist() == before[3][0]
    assert content(store) == before


def test_a_row_of_any_length_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    rows = [([4], [4] * size) for size in (1, 65_534, 65_535, 70_000, 3)]
    source, target = write_store(tmp_path, iter(rows), 10, 10).lengths()
    assert source.tolist() == [2] * 5
    assert target.tolist() == [2, 65_535, 65_536, 70_001, 4]


def test_wide_ids_and_many_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    rows = [([70_000 + i], [4] * i) for i in range(50)]
    store = write_store(tmp_path, iter(rows), 80_000, 65_536)
    assert content(store) == [([*source, EOS], [*target, EOS]) for source, target in rows]
    assert (store.source(0).dtype, store.target(0).dtype) == (np.uint32, np.uint16)
    assert store.lengths()[1].tolist() == list(range(1, 51))


def test_ids_outside_the_vocabulary_are_refused(tmp_path):
    for bad in (100, -1):
        with pytest.raises(ValueError, match="outside the vocabulary of 100"):
            write_store(tmp_path, [([bad], [4])], 100, 100)


def test_an_unfinished_store_is_no_store(tmp_path):
    write_store(tmp_path, ROWS, 100, 100)

    def failing():
        yield ROWS[0]
        raise DataError("the corpus ends here")

    with pytest.raises(DataError, match="ends here"):
        write_store(tmp_path, failing(), 100, 100)
    with pytest.raises(DataError, match=r"store\.json: no finished store"):
        Store(tmp_path)
    with pytest.raises(DataError, match="no pair"):
        write_store(tmp_path, [], 100, 100)


@pytest.mark.parametrize("name", ["source.bin", "source.idx", "target.bin", "target.idx"])
@pytest.mark.parametrize("how", ["missing", "shorter", "longer", "empty"])
def test_a_damaged_file_is_named(directory, name, how):
    path = directory / name
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"shorter": data[:-1], "longer": data + b"\0", "empty": b""}[how])
    with pytest.raises(DataError, match=name):
        Store(directory)


@pytest.mark.parametrize("name", ["source.bin", "source.idx", "target.bin", "target.idx"])
def test_one_flipped_bit_is_noticed(directory, name):
    path = directory / name
    data = bytearray(path.read_bytes())
    data[11] ^= 4
    path.write_bytes(data)
    with pytest.raises(DataError, match=name):
        Store(directory).verify()


def test_offsets_that_do_not_ascend_are_noticed(directory):
    path = directory / "target.idx"
    offsets = np.frombuffer(path.read_bytes(), dtype="<i8").copy()
    offsets[2] = 1
    path.write_bytes(offsets.tobytes())
    with pytest.raises(DataError, match=r"target\.idx: damaged"):
        Store(directory).lengths()


def test_ids_changed_beyond_the_vocabulary_are_noticed(directory):
    path = directory / "target.bin"
    ids = np.frombuffer(path.read_bytes(), dtype="<u2").copy()
    ids[0] = 100
    path.write_bytes(ids.tobytes())
    with pytest.raises(DataError, match=r"target\.bin: damaged"):
        Store(directory).batch([0])


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(format=99),
        lambda d: d.pop("pairs"),
        lambda d: d.update(pairs=5),
        lambda d: d.update(pairs="many"),
        lambda d: d.update(meta=3),
        lambda d: d.update(source=[]),
        lambda d: d["source"].update(type="O"),
        lambda d: d["source"].update(tokens=10**18),
        lambda d: d["target"].pop("sha256"),
    ],
)
def test_a_damaged_description_is_a_data_error(directory, change):
    path = directory / "store.json"
    description = json.loads(path.read_bytes())
    change(description)
    path.write_text(json.dumps(description))
    with pytest.raises(DataError, match="store"):
        Store(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_description_that_is_no_json_is_a_data_error(directory, content):
    (directory / "store.json").write_bytes(content)
    with pytest.raises(DataError, match=r"store\.json"):
        Store(directory)
