"""The line discipline, the forms of pairs, and errors that name file and line."""

import gzip
import io
import json
import lzma
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.text import Pair, read_lines, read_pairs, read_stream, write_line
from regard.errors import DataError

AWKWARD = "\r\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\x00\t \ufeffaé🙂\u0301"
texts = st.text(st.one_of(st.sampled_from(AWKWARD), st.characters(codec="utf-8", exclude_characters="\n")), max_size=20)


def write(path, content):
    data = content if isinstance(content, bytes) else content.encode()
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wb") as file:
        file.write(data)
    return str(path)


def lines_of(data, decode="strict"):
    return list(read_stream(io.BytesIO(data), "x", decode))


@given(st.lists(texts), st.booleans())
def test_only_a_newline_ends_a_line(lines, final):
    data = b"".join(line.encode() + b"\n" for line in lines)
    if lines and lines[-1] and not final:
        data = data[:-1]
    found = lines_of(data)
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert found == expected
    assert len(found) == data.count(b"\n") + (data[-1:] not in (b"", b"\n"))


@given(st.lists(st.text(max_size=20)))
def test_a_record_written_is_one_line(records):
    stream = io.BytesIO()
    for record in records:
        write_line(stream, record)
    data = stream.getvalue()
    assert data.count(b"\n") == len(records)
    assert b"\r" not in data
    assert [len(line) for line in data.decode().split("\n")[:-1]] == [len(record) for record in records]


def test_one_carriage_return_is_dropped_and_a_blank_line_counts():
    assert lines_of(b"a\r\r\n\n\r\nb\rc") == ["a\r", "", "", "b\rc"]


def test_lone_surrogates_are_written_as_replacement_characters():
    stream = io.BytesIO()
    write_line(stream, "a\ud800b")
    assert stream.getvalue() == "a\ufffdb\n".encode()


def test_invalid_utf8_names_file_line_and_byte(tmp_path):
    path = write(tmp_path / "bad.txt", b"good\nab\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt: line 2, byte 3: .*0xff"):
        list(read_lines(path))
    assert list(read_lines(path, "replace")) == ["good", "ab\ufffd"]


@pytest.mark.parametrize("ending", ["txt", "txt.gz", "txt.xz"])
def test_packed_files_read_like_plain_ones(tmp_path, ending):
    path = write(tmp_path / f"x.{ending}", "\ufeffeins\r\nzwei")
    assert list(read_lines(path)) == ["eins", "zwei"]


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_truncated_or_foreign_packed_files_are_named(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    write(path, "".join(f"line {i * i}\n" for i in range(5000)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=rf"x\.{ending}: damaged or truncated"):
        list(read_lines(path))
    path.write_bytes(b"no archive at all")
    with pytest.raises(DataError, match=rf"x\.{ending}: damaged or truncated after line 0"):
        list(read_lines(path))


def test_missing_file_and_directory_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.txt: no such file"):
        list(read_lines(tmp_path / "nothing.txt"))
    with pytest.raises(DataError, match="is a directory"):
        list(read_lines(tmp_path))


def test_standard_input_is_read_as_bytes_whatever_the_locale():
    program = "from regard.data.text import *; import sys; [write_line(sys.stdout.buffer, x) for x in read_lines('-')]"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="ä\r\nb\u2028c".encode(),
        stdout=subprocess.PIPE,
        env={"LC_ALL": "C", "PYTHONUTF8": "0"},
        check=True,
    )
    assert done.stdout == "ä\nb\u2028c\n".encode()


def test_aligned_files(tmp_path):
    source, target = write(tmp_path / "a.gz", "ein\nzwei\n"), write(tmp_path / "b", "one\ntwo")
    assert list(read_pairs((source, target))) == [Pair("ein", "one"), Pair("zwei", "two")]


@pytest.mark.parametrize(("left", "right"), [(2, 5), (4, 1), (0, 1)])
def test_misaligned_files_say_both_counts(tmp_path, left, right):
    source, target = write(tmp_path / "a", "x\n" * left), write(tmp_path / "b", "y\n" * right)
    with pytest.raises(DataError, match=f"a has {left} lines but .*b has {right}"):
        list(read_pairs((source, target)))


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x", "x.txt.xz"])
def test_tsv_is_known_by_ending_or_first_line(tmp_path, name):
    path = write(tmp_path / name, "a b\tc\n\t\nd\te\t\t\n")
    assert list(read_pairs(path)) == [Pair("a b", "c"), Pair("", ""), Pair("d", "e")]


@pytest.mark.parametrize(("line", "found"), [("only one", "no TAB"), ("a\tb\tc", "3 columns"), ("", "no TAB")])
def test_wrong_columns_are_named(tmp_path, line, found):
    path = write(tmp_path / "x.tsv", f"a\tb\n{line}\n")
    with pytest.raises(DataError, match=rf"x\.tsv: line 2: expected source<TAB>target, found {found}"):
        list(read_pairs(path))


def test_text_without_columns_is_no_file_of_pairs(tmp_path):
    path = write(tmp_path / "x", "just text\n")
    with pytest.raises(DataError, match=r'line 1: neither .* found "just text"'):
        list(read_pairs(path))
    with pytest.raises(DataError, match="no target side"):
        list(read_pairs(path, "text"))
    with pytest.raises(DataError, match="empty"):
        list(read_pairs(write(tmp_path / "y", "")))


def jsonl(path, *records):
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def test_jsonl_by_keys_and_by_languages(tmp_path):
    flat = jsonl(tmp_path / "a.jsonl.gz", {"target": "one\nnew", "source": "ein", "id": 3})
    assert list(read_pairs(flat)) == [Pair("ein", "one\nnew")]
    named = jsonl(tmp_path / "b", {"q": "ein", "a": "one"})
    assert list(read_pairs(named, source_key="q", target_key="a")) == [Pair("ein", "one")]
    nested = jsonl(tmp_path / "c.json", {"translation": {"de": "ein", "en": "one"}})
    assert list(read_pairs(nested, source_key="en", target_key="de")) == [Pair("one", "ein")]


def test_languages_keep_the_order_of_the_first_line(tmp_path):
    first, second = {"translation": {"de": "ein", "en": "one"}}, {"translation": {"en": "two", "de": "zwei"}}
    path = jsonl(tmp_path / "x.jsonl", first, second)
    assert list(read_pairs(path)) == [Pair("ein", "one"), Pair("zwei", "two")]
    path = jsonl(tmp_path / "y.jsonl", first, {"translation": {"fr": "un", "en": "one"}})
    with pytest.raises(DataError, match='line 2: expected the keys "de", "en"; found "fr", "en"'):
        list(read_pairs(path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "a", "goal": "b"}', 'expected the keys "source", "target"; found "source", "goal"'),
        ("{}", "found none"),
        ('{"source": "a", "target": 5}', '"target" must be a string, found "5"'),
        ('{"source": "a", "target": null}', '"target" must be a string'),
        ('["a", "b"]', "expected a JSON object"),
        ('{"source": "a"', "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"translation": {"de": "a", "en": "b", "fr": "c"}}', 'found "de", "en", "fr"'),
        ('{"source": "a", "target": "\\ud800"}', "lone surrogate"),
    ],
)
def test_wrong_json_names_line_and_keys(tmp_path, line, message):
    path = write(tmp_path / "x.jsonl", '{"source": "a", "target": "b"}\n' + line + "\n")
    with pytest.raises(DataError, match=r"x\.jsonl: line 2: ") as caught:
        list(read_pairs(path))
    assert message in str(caught.value)
