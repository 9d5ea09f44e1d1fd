"""What a teacher says as training data: which output, what is kept of the real pairs, what is measured."""

import json
import shutil
from pathlib import Path

import pytest

from regard.config import load_run
from regard.data.batch import Hypothesis
from regard.data.text import Pair, read_pairs
from regard.directory import hash_file, identify
from regard.distill import DistilledPairs, distill, make_record, measure, teacher_task
from regard.errors import ConfigError, DataError
from regard.metrics import bleu, sentence_bleu
from regard.pipeline import check_options
from regard.predict import load
from regard.prepare import Splitter, prepare
from regard.recipe import make_run
from regard.training.progress import Progress


def said(text, finished=True):
    return Hypothesis(ids=(), score=0.0, log_probability=0.0, text=text, finished=finished)


def options(shop, *overrides, teacher="rnn"):
    return make_run(shop / "tiny.toml", "unused", overrides, teacher=shop / teacher)[0]


@pytest.fixture
def student(shop):
    return options(shop, "text={source='words', target='words'}", "model={kind='rnn', width=8, embedding=8}")


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# One pair


def target_of(*outputs, lowercase=False):
    record = make_record(Pair("s", "the cat sat on the mat"), outputs, lowercase)
    assert (record["source"], record["reference"]) == ("s", "the cat sat on the mat")
    return record["target"], record.get("kept")


def test_the_output_or_the_closest_of_several():
    assert target_of(said("a dog ran")) == ("a dog ran", None)
    assert target_of(said("a dog ran"), said("the cat sat on a mat"), said("cat mat")) == ("the cat sat on a mat", None)
    assert target_of(said("x y"), said("z w")) == ("x y", None), "of equals the more probable"
    shouted = said("the cat ran"), said("THE CAT SAT ON THE MAT")
    assert target_of(*shouted) == ("the cat ran", None)
    assert target_of(*shouted, lowercase=True) == ("THE CAT SAT ON THE MAT", None)


def test_the_real_target_stays_where_the_teacher_failed():
    assert target_of(said("  ")) == ("the cat sat on the mat", "blank")
    assert target_of(said("the the the", finished=False)) == ("the cat sat on the mat", "cut off")
    assert target_of(said("the cat sat on the mat", finished=False), said("the cat")) == ("the cat", None)


def test_what_is_measured():
    rows = [
        ("A b c d e", "a b c d e", None),
        ("x y z u", "x y z v w", None),
        ("r", "r", "blank"),
        ("q", "q", "cut off"),
    ]
    found = [
        {"source": "s", "target": target, "reference": reference, **({"kept": kept} if kept else {})}
        for target, reference, kept in rows * 600
    ]
    facts = measure(found, lowercase=False)
    assert [facts[key] for key in ("pairs", "equal", "blank", "cut_off")] == [2400, 0, 600, 600]
    assert facts["length_ratio"] == pytest.approx(9 / 10)
    whole = bleu([row[0] for row in rows[:2]] * 600, [row[1] for row in rows[:2]] * 600)
    assert facts["bleu"] == pytest.approx(whole.value), "blocks add up to the corpus"
    assert facts["signature"] == whole.signature
    folded = [{"source": "s", "target": "a b", "reference": "A b"}]
    assert (measure(folded, lowercase=True)["equal"], measure(folded, lowercase=False)["equal"]) == (1, 0)
    assert "bleu" not in measure([{**found[2]}], lowercase=False)


# The options


def test_a_student_takes_text_and_search_from_its_teacher(shop):
    run = make_run(shop / "tiny.toml", "unused", ["text={}"], teacher=shop / "rnn")[0]
    stored = load(shop / "rnn")
    assert run.text == stored.task.options
    assert run.distill
    assert run.distill.teacher == (str(shop / "rnn"),)
    assert run.distill.search == stored.search.model_copy(update={"beam": 5, "nbest": 1, "stop": "count"})
    assert run.distill.output == "best"
    run = options(shop, "distill.output=closest", "distill.search={beam=3, alpha=0.5}")
    assert run.distill
    assert (run.distill.search.beam, run.distill.search.nbest, run.distill.search.alpha) == (3, 3, 0.5)


def test_a_teacher_may_stand_in_the_recipe(shop, tmp_path):
    shutil.copytree(shop / "rnn", tmp_path / "old")
    (tmp_path / "a.toml").write_text("[distill]\nteacher = 'old'\nmix = true\n")
    run = make_run(tmp_path / "a.toml", "unused")[0]
    assert run.distill
    assert (run.distill.teacher, run.distill.mix) == ((str(tmp_path / "old"),), True)
    run = make_run(tmp_path / "a.toml", "unused", teacher=[shop / "rnn", shop / "rnn"])[0]
    assert run.distill
    assert (run.distill.teacher, run.distill.mix) == ((str(shop / "rnn"),) * 2, True)


def test_wrong_options_are_named(shop):
    for override, message in (
        ("distill.search.baem=3", r"distill\.search\.baem: unknown key; did you mean 'beam'"),
        ("distill.teacher=5", r"distill\.teacher"),
        ("distill.output=longest", r"distill\.output"),
        ("distill={output='closest', search={method='greedy'}}", r"distill\.teacher: Field required"),
    ):
        with pytest.raises(ConfigError, match=message):
            options(shop, override)
    with pytest.raises(ConfigError, match=r"search\.nbest must be above 1"):
        options(shop, "distill.output=closest", "distill.search.method=greedy")


def test_tokenizers_are_the_teachers_unless_the_text_section_differs(shop):
    heard = []
    task = teacher_task(options(shop, "text={}"), heard.append)
    assert task
    assert task.source.tokenizer.size == load(shop / "rnn").task.source.tokenizer.size
    assert teacher_task(options(shop, "text={source='bytes'}"), heard.append) is None
    assert heard == [
        "tokenizers: the teacher's",
        "tokenizers: the student's own, since text.source is not the teacher's",
    ]


def test_the_student_of_the_recipes_reads_as_its_teacher(monkeypatch):
    monkeypatch.setenv("REGARD_DATA", "/data")
    monkeypatch.setenv("TEACHER", "/teacher")
    folder = Path(__file__).parents[1] / "recipes" / "multi30k"
    student, teacher = (check_options(load_run(folder / f"{name}.toml")) for name in ("student", "fast"))
    assert student.text == teacher.text
    kept = ("kind", "width", "heads", "feed_forward", "norm", "positions", "tie")  # it begins with its teacher's layers
    assert [student.model[name] for name in kept] == [teacher.model[name] for name in kept]
    assert (student.data.train, student.data.valid) == (teacher.data.train, teacher.data.valid)
    assert student.model["decoder_layers"] < teacher.model["decoder_layers"]


# The file


@pytest.fixture
def decoded(student, tmp_path):
    """A run directory with decoded pairs, and the pairs as training reads them."""
    return tmp_path, distill(student, tmp_path, Progress(quiet=True), "cpu", begun=False)


def test_the_pairs_are_what_the_teacher_translates(shop, student, decoded):
    folder, pairs = decoded
    splitter = Splitter(student)
    assert list(splitter.measured())
    real = list(splitter.train())
    outputs = load(shop / "rnn").translate([pair.source for pair in real], beam=5, stop="count")
    found = records(folder / "distilled.jsonl")
    assert [(row["source"], row["reference"]) for row in found] == real
    taught = [row for row in found if "kept" not in row]
    assert len(taught) > 20
    for row, output in zip(found, outputs, strict=True):
        if "kept" in row:
            assert row["target"] == row["reference"]
            assert not (output.finished and output.text.strip())
        else:
            assert row["target"] == output.text
    assert list(pairs.train()) == [Pair(row["source"], row["target"]) for row in found]
    assert list(read_pairs(str(folder / "distilled.jsonl"))) == list(pairs.train()), "it is a file of pairs like any"
    facts = json.loads((folder / "distilled.json").read_text())
    assert facts["teacher"] == [identify(shop / "rnn")]
    assert facts["sha256"] == hash_file(folder / "distilled.jsonl")
    assert facts["pairs"] == len(real)
    assert sorted(path.name for path in folder.iterdir()) == ["distilled.json", "distilled.jsonl"]


def test_of_several_outputs_the_best_or_the_closest(shop, student, decoded, tmp_path):
    assert student.distill
    search = student.distill.search.model_copy(update={"nbest": 5})
    rows = {}
    for output in ("best", "closest"):
        options = student.distill.model_copy(update={"search": search, "output": output})
        folder = tmp_path / output
        folder.mkdir()
        distill(student.model_copy(update={"distill": options}), folder, Progress(quiet=True), "cpu", begun=False)
        rows[output] = records(folder / "distilled.jsonl")
    assert rows["best"] == records(decoded[0] / "distilled.jsonl")
    assert rows["closest"] != rows["best"]
    for best, closest in zip(rows["best"], rows["closest"], strict=True):
        if "kept" not in best:
            scores = [sentence_bleu(row["target"], row["reference"]) for row in (best, closest)]
            assert scores[0] <= scores[1]


def test_validation_stays_real_and_mixing_adds_the_real_pairs(student, decoded):
    folder, pairs = decoded
    assert student.distill
    splitter = Splitter(student)
    everything = list(splitter.measured())
    assert list(pairs.measured()) == everything
    assert list(pairs.valid()) == list(splitter.valid())
    mixed = student.model_copy(update={"distill": student.distill.model_copy(update={"mix": True})})
    found = list(DistilledPairs(mixed, folder, pairs.facts).train())
    rows = records(folder / "distilled.jsonl")
    changed = [row for row in rows if row["target"] != row["reference"]]
    assert changed
    assert sorted(found) == sorted(
        [Pair(row["source"], row["target"]) for row in rows]
        + [Pair(row["source"], row["reference"]) for row in changed]
    )
    one = prepare(student, folder / "data", lambda text: None, splitter=pairs)
    two = prepare(mixed, folder / "data", lambda text: None, splitter=DistilledPairs(mixed, folder, pairs.facts))
    assert one.facts["train"]["pairs"] == len(rows), "and the corpus is made anew"
    assert two.facts["train"]["pairs"] == len(found)


def test_decoded_only_once_and_only_used_as_it_was_made(shop, student, decoded, monkeypatch):
    folder, _ = decoded
    assert student.distill
    progress = Progress(quiet=True)
    monkeypatch.setattr("regard.distill.load", lambda *paths, **named: 1 / 0)
    distill(student, folder, progress, "cpu", begun=False)
    for change, message in (
        ({"output": "closest"}, "made with another output"),
        ({"teacher": (str(shop / "transformer"),)}, "made with another teacher"),
        ({"search": student.distill.search.model_copy(update={"beam": 2})}, "made with another search"),
    ):
        other = student.model_copy(update={"distill": student.distill.model_copy(update=change)})
        for begun, hint in ((False, "delete it to decode anew"), (True, "choose another -o")):
            with pytest.raises(ConfigError, match=f"{message}; {hint}"):
                distill(other, folder, progress, "cpu", begun)
    fewer = student.model_copy(update={"data": student.data.model_copy(update={"max_pairs": 50})})
    with pytest.raises(DataError, match="made from other pairs"):
        distill(fewer, folder, progress, "cpu", begun=False)
    distill(fewer, folder, progress, "cpu", begun=True)  # it stays with what it began with
    with (folder / "distilled.jsonl").open("a") as stream:
        stream.write("{}\n")
    with pytest.raises(DataError, match="damaged"):
        distill(student, folder, progress, "cpu", begun=False)


def test_outputs_of_two_engines_are_not_mixed(student, tmp_path, monkeypatch):
    progress = Progress(quiet=True)

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    monkeypatch.setattr("regard.distill.BLOCK", 30)
    monkeypatch.setattr("regard.distill.measure", stop)
    with pytest.raises(Stop):
        distill(student, tmp_path, progress, "cpu", begun=False)
    assert json.loads((tmp_path / "distilled.jsonl.part.json").read_text())["job"]["engine"] == "torch"
    monkeypatch.setattr("regard.distill.computed_by", lambda *_: {"engine": "ctranslate2", "export": "1"})
    with pytest.raises(ConfigError, match="made with another engine, export"):
        distill(student, tmp_path, progress, "cpu", begun=False)


def test_prepare_alone_has_no_teacher(student, tmp_path):
    with pytest.raises(ConfigError, match=r"\[distill\] section needs"):
        prepare(student, tmp_path / "data", lambda text: None)
