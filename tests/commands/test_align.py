"""`align`: links, scores, fertilities, attention, and every mistake with its exit code."""

import json

import pytest

from regard.align.links import read_links, write_links
from regard.columns import corpus_rows
from regard.prepare import open_prepared
from regard.tasks.bilingual import aligned_pairs
from regard.tasks.made import write_tsv


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Pairs of the made languages with a blank one among them, and their gold alignment."""
    folder = tmp_path_factory.mktemp("made")
    pairs = aligned_pairs(150, words=60)
    sides = [pair.pair for pair in pairs]
    write_tsv(folder / "pairs.tsv", [*sides[:5], ("", "t1 t2"), *sides[5:]])
    lines = [write_links(pair.links) for pair in pairs]
    lines.insert(5, "")
    (folder / "gold").write_text("".join(line + "\n" for line in lines))
    return folder


def lengths(path):
    return [tuple(len(side.split()) for side in line.split("\t")) for line in path.read_text().splitlines()]


def test_a_line_for_each_pair(made, call, tmp_path):
    done = call("align", made / "pairs.tsv", "-o", "links")
    assert (done.code, done.out) == (0, b""), done.err
    assert "forward: HMM, 5 of 5" in done.err
    assert done.err.splitlines()[-1] == "151 pairs: 1 blank on a side"
    links = read_links(tmp_path / "links", lengths(made / "pairs.tsv"))
    assert links[5].sure == set()
    assert sum(bool(each.sure) for each in links) == 150
    assert [path.name for path in tmp_path.iterdir()] == ["links"]

    # to stdout, from stdin, and from two files it is the same
    plain = call("align", stdin=(made / "pairs.tsv").read_bytes())
    assert plain.out == (tmp_path / "links").read_bytes()
    for column, name in enumerate(("source", "target")):
        sides = [line.split("\t")[column] + "\n" for line in (made / "pairs.tsv").read_text().splitlines()]
        (tmp_path / name).write_text("".join(sides))
    two = call("align", "source", "target", "--quiet")
    assert two.out == plain.out
    assert two.err == "151 pairs: 1 blank on a side\n"


def test_gold_and_agreement(made, call, tmp_path):
    done = call("align", made / "pairs.tsv", "--gold", made / "gold", "--json", "-o", "links")
    assert done.code == 0, done.err
    gold = json.loads(done.out)["gold"]
    assert gold["alignment_error"] < 0.13  # there are only 150 pairs to learn from
    assert gold["alignment_error"] == pytest.approx(1 - gold["f1"])
    assert gold["links"] == len((tmp_path / "links").read_text().split())
    text = call("align", made / "pairs.tsv", "--gold", made / "gold", "--against", "links").out.decode().splitlines()
    assert text[0].startswith(f"alignment error rate: {100 * gold['alignment_error']:.2f} %  (precision ")
    assert text[1].startswith(
        "agreement: F1 100.00 %  (precision 100.00 %, recall 100.00 %, alignment error rate 0.00 %"
    )
    worse = json.loads(call("align", made / "pairs.tsv", "--gold", made / "gold", "--json", "--kind", "ibm1").out)
    assert worse["gold"]["alignment_error"] > gold["alignment_error"] + 0.02


def test_options_of_the_aligner(made, call):
    def links(*words):
        done = call("align", made / "pairs.tsv", "--iterations", "2", "--quiet", *words)
        assert done.code == 0, done.err
        return [set(line.split()) for line in done.out.decode().splitlines()]

    forward, backward = links("--direction", "forward"), links("--direction", "backward")
    both = links("--symmetrise", "intersection")
    assert both == [one & other for one, other in zip(forward, backward, strict=True)]
    assert links("--symmetrise", "union") == [one | other for one, other in zip(forward, backward, strict=True)]
    assert links("--threshold", "0.3", "--null", "0.3", "--prior", "0") != links()
    told = call("align", made / "pairs.tsv", "--iterations", "1,3", "--kind", "ibm2").err
    assert "forward: model 1, 1 of 1" in told
    assert "backward: model 2, 3 of 3" in told


def test_lower_case_and_too_long(call, tmp_path):
    (tmp_path / "pairs.tsv").write_text("A b\tX y\na B\tx Y\nb\tY\nb b b b\ty y y y\n")
    done = call("align", "pairs.tsv", "--lowercase", "--longest", "3")
    assert done.out == b"0-0 1-1\n0-0 1-1\n0-0\n\n"
    assert done.err.splitlines()[-1] == "4 pairs: 1 with more than 3 tokens"


def test_fertilities_and_their_picture(made, call, tmp_path):
    done = call("align", made / "pairs.tsv", "--fertilities", "numbers", "--histogram", "x.svg", "--quiet")
    assert done.code == 0, done.err
    rows = [list(map(int, line.split())) for line in (tmp_path / "numbers").read_text().split("\n")[:-1]]
    assert rows[5] == []
    for row, (source, target) in zip(rows, lengths(made / "pairs.tsv"), strict=True):
        assert len(row) == source
        assert sum(row) == (target if source else 0)
    every = [number for row in rows for number in row]
    mean, zeros = sum(every) / len(every), 100 * every.count(0) / len(every)
    assert done.out.decode() == f"fertility: mean {mean:.3f}, {zeros:.1f} % zeros\n"
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")
    assert call("align", made / "pairs.tsv", "--histogram", "x.png", "--json").out.startswith(b'{\n "fertility"')


def test_the_tokens_of_a_model(shop, call, tmp_path):
    """`rnn` reads words, `transformer` characters: a b c is three tokens of the one and five of the other."""
    words = call("align", shop / "test.tsv", "--quiet").out
    assert call("align", shop / "test.tsv", "--model", shop / "rnn", "--quiet").out == words
    assert call("align", shop / "test.tsv", "--prepared", shop / "rnn" / "data", "--quiet").out == words
    done = call("align", shop / "test.tsv", "--model", shop / "transformer", "-o", "links", "--fertilities", "numbers")
    assert done.code == 0, done.err
    pairs = [line.split("\t") for line in (shop / "test.tsv").read_text().splitlines()]
    read_links(tmp_path / "links", [tuple(map(len, pair)) for pair in pairs])
    for line, (source, target) in zip((tmp_path / "numbers").read_text().splitlines(), pairs, strict=True):
        assert (len(line.split()), sum(map(int, line.split()))) == (len(source), len(target))


def test_ids_for_another_aligner(shop, call, tmp_path):
    """Of a prepared corpus: all its pairs, training before validation, as data.aligner expects links for them."""
    prepared = open_prepared(shop / "rnn" / "data")
    done = call("align", "--prepared", shop / "rnn" / "data", "--ids", "ids")
    assert (done.code, done.out) == (0, b""), done.err
    lines = [line.split(" ||| ") for line in (tmp_path / "ids").read_text().splitlines()]
    found = [tuple([int(word) for word in side.split()] for side in line) for line in lines]
    assert found == [(list(source), list(target)) for source, target in corpus_rows(prepared)]
    assert len(found) == len(prepared.train) + len(prepared.valid)

    # given pairs in the tokens of a model; our own aligner finds the same links from ids as from words
    assert call("align", shop / "test.tsv", "--model", shop / "rnn", "--ids", "ids", "--quiet").code == 0
    write_tsv(tmp_path / "ids.tsv", [line.split(" ||| ") for line in (tmp_path / "ids").read_text().splitlines()])
    assert call("align", "ids.tsv", "--quiet").out == call("align", shop / "test.tsv", "--quiet").out


def test_by_attention(shop, call, tmp_path):
    """The links are those of the Predictor, for its own outputs."""
    texts = [line.split("\t")[0] for line in (shop / "test.tsv").read_text().splitlines()]
    done = call(
        "translate", shop / "rnn", "--jsonl", "maximum_length=6", stdin="".join(f"{t}\n" for t in texts).encode()
    )
    found = [json.loads(line) for line in done.out.splitlines()]
    write_tsv(tmp_path / "out.tsv", [("", "a"), *((each["source"], each["text"]) for each in found)])
    done = call("align", "out.tsv", "--attention", shop / "rnn", "-o", "links")
    assert done.code == 0, done.err
    expected = ["", *(write_links(map(tuple, each["alignment"] or ())) for each in found)]
    assert (tmp_path / "links").read_text().split("\n")[:-1] == expected
    same = call("align", "out.tsv", "--attention", shop / "rnn", "--against", "links", "--json")
    assert json.loads(same.out)["against"]["f1"] == 1.0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["missing.tsv"], 3, "no such file"),
        (["pairs.tsv", "short"], 3, "pairs.tsv has 2 lines but "),
        (["pairs.tsv", "--gold", "short"], 3, "short has 1 lines, but there are 2 pairs"),
        (["pairs.tsv", "--gold", "bad"], 3, "bad: line 2: expected links as 3-4 or 3?4, found '0_0'"),
        (["pairs.tsv", "--against", "far"], 3, "far: line 2: 0-1 is outside the pair: its target has 1 tokens"),
        (["pairs.tsv", "--symmetrise", "diag"], 2, "symmetrise"),
        (["pairs.tsv", "--iterations", "1,2,3"], 2, "--iterations 1,2,3: expected one number or two"),
        (["pairs.tsv", "--threshold", "2"], 2, "threshold"),
        (["pairs.tsv", "--null", "0"], 2, "null"),
        (["pairs.tsv", "--histogram", "x.gif"], 2, "known endings"),
        (["pairs.tsv", "-o", "no/where"], 2, "expected a file in a folder that is there"),
        (["pairs.tsv", "--model", "none"], 4, "none: no such model directory"),
        (["pairs.tsv", "--prepared", "none"], 3, "not a prepared corpus"),
        (["pairs.tsv", "--model", "a", "--attention", "b"], 2, "exclude each other"),
        (["pairs.tsv", "--model", "a", "--lowercase"], 2, "--lowercase is for words"),
        (["pairs.tsv", "--attention", "a", "--kind", "ibm1"], 2, "--kind cannot be given with it"),
        (["pairs.tsv", "--direction", "forward", "--symmetrise", "union"], 2, "--symmetrise joins two directions"),
        (["pairs.tsv", "--kind", "ibm1", "--null", "0.1"], 2, "--null is of model 2 and hmm"),
        (["pairs.tsv", "--json"], 2, "--json prints scores"),
        (["pairs.tsv", "--ids", "x", "-o", "y"], 2, "--ids aligns nothing: --output cannot be given with it"),
        (["pairs.tsv", "--ids", "x", "--kind", "ibm1"], 2, "--ids aligns nothing: --kind cannot be given with it"),
        (["pairs.tsv", "--ids", "pairs.tsv"], 2, "pairs.tsv"),
        (["empty.tsv"], 3, "empty.tsv: 0 pairs, none of them"),
        (["pairs.tsv", "--longest", "0"], 2, "--longest"),
        (["a", "b", "c"], 2, "found 3"),
    ],
)
def test_mistakes(words, code, message, call, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b\tx y\na\tx\n")
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "short").write_text("0-0\n")
    (tmp_path / "bad").write_text("0-0\n0_0\n")
    (tmp_path / "far").write_text("0-1\n0-1\n")
    done = call("align", *words)
    assert done.code == code, done.err
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_model_without_attention(shop, call, tmp_path):
    options = ["text.source=words", "text.target=words", "train.max_steps=2", "train.validate_every=2"]
    model = "model={kind='rnn', width=8, embedding=8, attention='none'}"
    done = call("train", shop / "tiny.toml", "-o", "plain", *options, model, "--quiet")
    assert done.code == 0, done.err
    done = call("align", shop / "test.tsv", "--attention", "plain")
    assert done.code == 4
    assert "no attention from target to source" in done.err
