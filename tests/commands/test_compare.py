"""`regard compare`: three tiny models from recipes to one page; going on, failing rows, wrong input."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

RECIPE = """
seed = 3
data = {train = "pairs.tsv", test = "test.tsv", batch_tokens = 300}
text = {source = "words", target = "words"}
[model]
MODEL
[train]
max_steps = 12
warmup = 2
rate = 2e-2
validate_every = 4
decode_limit = 8
metric = "cer"
samples = 0
log_every = 2
[search]
beam = 2
maximum_length = 8
"""
MODELS = {
    "plain": "kind = 'rnn'\nwidth = 16\nembedding = 16\nattention = 'none'",
    "attentive": "kind = 'rnn'\nwidth = 16\nembedding = 16",
    "transformer": "kind = 'transformer'\nwidth = 8\nheads = 2\nfeed_forward = 8\nencoder_layers = 1",
}
QUICK = ("--samples", 50, "--skip-speed", "--quiet")


@pytest.fixture(scope="module")
def folder(shop, tmp_path_factory):
    """Pairs and three recipes."""
    folder = tmp_path_factory.mktemp("ladder")
    for name in ("pairs.tsv", "test.tsv"):
        shutil.copy(shop / name, folder / name)
    for name, model in MODELS.items():
        (folder / f"{name}.toml").write_text(RECIPE.replace("MODEL", model))
    return folder


@pytest.fixture(scope="module")
def compared(folder, call):
    """The comparison of the three, and what was printed."""
    words = [folder / f"{name}.toml" for name in MODELS]
    done = call("compare", *words, "-o", folder / "out", *QUICK)
    assert done.code == 0, done.err
    return folder / "out", done.out.decode(), json.loads((folder / "out" / "comparison.json").read_text())


@pytest.fixture
def no_pictures(monkeypatch):
    """Pictures are drawn once, by the first comparison; drawing takes longer than the models."""
    monkeypatch.setattr("regard.study.report.draw_all", lambda *_: [])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_figures_are_those_of_the_other_commands(compared, folder, call):
    out, _, found = compared
    assert [row["name"] for row in found["rows"]] == list(MODELS)
    words = [out / "attentive", folder / "test.tsv", "--samples", 50, "--metrics", "exact_match,wer,cer", "--by-length"]
    done = call("evaluate", *words, "--against", out / "plain.result" / "hypotheses.txt", "--json")
    alone = json.loads(done.out)
    row = found["rows"][1]
    assert row["scores"] == alone["scores"]
    assert row["by_length"] == alone["by_length"]
    against = row["against_first"]["wer"]
    assert against["difference"] == pytest.approx(-alone["comparison"]["wer"]["difference"])
    assert against["p_value"] == alone["comparison"]["wer"]["p_value"]
    source = "".join(line.split("\t")[0] + "\n" for line in (folder / "test.tsv").read_text().splitlines())
    outputs = call("translate", out / "attentive", stdin=source.encode()).out
    assert (out / "attentive.result" / "hypotheses.txt").read_bytes() == outputs
    kept = json.loads((out / "attentive.result" / "result.json").read_text())
    assert (kept["scores"], len(kept["data_sha256"])) == (row["scores"], 64)
    weights = json.loads((out / "attentive" / "model" / "config.json").read_text())
    assert row["parameters"] == weights["parameters"]


def test_the_log_gives_rate_and_time(compared):
    out, _, found = compared
    reach = found["reach"]
    for row in found["rows"]:
        records = [json.loads(line) for line in (out / row["name"] / "metrics.jsonl").read_text().splitlines()]
        validations = [record for record in records if record["kind"] == "validation"]
        passed = 0.0
        for each in validations:
            passed += each["validation_seconds"]
            if each["metrics"][reach["measure"]] <= reach["value"]:
                break
        assert row["reached"] == {"seconds": pytest.approx(each["seconds"] - passed), "step": each["step"]}
        assert row["training"]["curve"]["values"]["loss"] == [record["loss"] for record in validations]
        assert row["training"]["target_tokens_per_second"] > 0
    bests = [min(row["training"]["curve"]["values"][reach["measure"]]) for row in found["rows"]]
    assert (reach["measure"], reach["value"]) == ("cer", max(bests))


def test_attention_side_by_side(compared, folder):
    _, _, found = compared
    plain, attentive, transformer = (row["attention"] for row in found["rows"])
    assert plain["missing"] == "this model has no attention between input and output"
    for look in (attentive, transformer):
        assert len(look["weights"]) == len(look["rows"])
        assert all(sum(line) == pytest.approx(1, abs=1e-5) for line in look["weights"])
        assert look["columns"] == [*found["sentence"].split(), "</s>"]
    assert transformer["heads"] == 2
    sources = [line.split("\t")[0] for line in (folder / "test.tsv").read_text().splitlines()]
    assert len(found["sentence"]) == sorted(map(len, sources))[len(sources) // 2]


def test_everything_is_written(compared):
    out, text, found = compared
    page = (out / "comparison.html").read_text()
    markdown = (out / "comparison.md").read_text()
    for name in MODELS:
        assert len(re.findall(rf">{name}<", page)) >= 4  # tables, keys of the charts, attention
        assert f"| {name} |" in markdown
        assert f"\n{name} " in text
    assert page.count("<svg") == 5 + 2  # by length, four of learning, two with attention
    assert not re.findall(r"https?://|<script|src=", page)
    for name in ("length", "learning", "attention"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"{name}.svg").stat().st_size > 1000
        assert f"({name}.png)" in markdown
    differing = [check["what"] for check in found["fairness"]["checks"] if not check["same"]]
    assert differing == []
    assert set(found["fairness"]["sizes"]) == {"transformer"}
    assert "parameters: not all within ± 20 % of plain: transformer (-" in text


def test_again_is_the_same_and_trains_nothing(compared, folder, call, no_pictures):
    out, text, found = compared
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*") if path.suffix in (".jsonl", ".json", ".txt")}
    words = [folder / f"{name}.toml" for name in MODELS]
    done = call("compare", *words, "-o", out, *QUICK)
    assert (done.code, done.out.decode()) == (0, text)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    again = json.loads((out / "comparison.json").read_text())
    volatile = ("seconds", "finished", "command")
    assert {key: again[key] for key in again if key not in volatile} == {
        key: found[key] for key in found if key not in volatile
    }


def test_runs_and_models_and_what_is_chosen(compared, folder, call, shop, tmp_path, no_pictures):
    out, *_ = compared
    shutil.copytree(out / "attentive" / "model", tmp_path / "alone")
    words = ["alone", out / "plain", shop / "transformer", "--test", folder / "test.tsv", "--no-train", "-o", "other"]
    more = [
        "--metrics",
        "cer,bleu",
        "--sentence",
        "3 1 2",
        "--reach",
        "loss=1.9",
        "--beam",
        3,
        "--samples",
        0,
        "passes=2",
    ]
    done = call("compare", *words, *more, "passes=2", "--skip-speed", "--maximum-length", 8)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "other" / "comparison.json").read_text())
    alone, plain, transformer = found["rows"]
    assert (found["metrics"], found["sentence"], found["reach"]["measure"]) == (["cer", "bleu"], "3 1 2", "loss")
    assert (alone["reached"], alone["training"].get("curve")) == (None, None)
    assert "curve" in plain["training"]
    assert "interval" not in plain["scores"]["cer"]
    assert transformer["attention"]["columns"][:3] == ["3", "▁", "1"]
    checks = {check["what"]: check for check in found["fairness"]["checks"]}
    for what in ("tokenizers", "token budget of an update", "weights kept"):
        assert not checks[what]["same"], what
    assert checks["search"]["same"]
    assert " 2 passes, " in checks["search"]["values"]["plain"], "an option of the search is for all rows"
    orders = checks["order of the data"]["values"]
    assert orders.pop("alone") is None
    assert all(order.startswith("seed 3 (") for order in orders.values())
    assert "different: " in done.out.decode()
    assert "(not known of alone)" in done.out.decode()


def test_speed_and_memory_are_in_the_table(compared, folder, call, monkeypatch, tmp_path, no_pictures):
    from regard.study import speed

    monkeypatch.setattr(speed, "measure_memory", lambda *_: {"peak_bytes": 3e8})
    out, *_ = compared
    words = [
        out / "plain",
        out / "transformer",
        "--test",
        folder / "test.tsv",
        "-o",
        "fast",
        "--rounds",
        1,
        "--sentences",
        3,
        "--batch",
        2,
    ]
    done = call("compare", *words, "--samples", 5, "--quiet", "--maximum-length", 4, "--line", 2)
    assert done.code == 0, done.err
    assert "peak" in done.out.decode()
    assert "take turns (here 1)" in done.out.decode()
    found = json.loads((tmp_path / "fast" / "comparison.json").read_text())
    assert found["sentence"] == (folder / "test.tsv").read_text().splitlines()[1].split("\t")[0]
    for row in found["rows"]:
        assert row["speed"]["peak_bytes"] == 3e8
        assert row["speed"]["latency_seconds"]["median"] > 0


def test_a_failed_row_keeps_the_others(compared, folder, call, tmp_path, no_pictures):
    out, *_ = compared
    shutil.copytree(out / "plain", tmp_path / "damaged")
    weights = tmp_path / "damaged" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    wild = (
        RECIPE.replace("MODEL", MODELS["plain"]).replace("2e-2", "1e30").replace("pairs.tsv", str(folder / "pairs.tsv"))
    )
    wild = wild.replace("test.tsv", str(folder / "test.tsv")).replace("samples = 0", "clip = 0\nbad_steps = 0")
    (tmp_path / "wild.toml").write_text(wild)
    done = call("compare", "wild.toml", "damaged", out / "attentive", "-o", "new", *QUICK)
    assert done.code == 5, done.err
    assert "2 of 3 rows failed: wild: training diverged" in done.err
    found = json.loads((tmp_path / "new" / "comparison.json").read_text())
    assert [row["failure"] is None for row in found["rows"]] == [False, False, True]
    assert "damaged" in found["rows"][1]["failure"]
    assert found["first"] == "attentive"
    for text in (done.out.decode(), (tmp_path / "new" / "comparison.html").read_text()):
        assert "wild (failed)" in text
        assert "wild failed: training diverged" in text


def test_a_stopped_comparison_goes_on(compared, folder, call, tmp_path, no_pictures):
    """SIGTERM while the second row is trained: 75, and the same command ends with the same weights."""
    out, *_ = compared
    slow = [folder / "plain.toml", folder / "attentive.toml", "-o", "out", *QUICK]
    shutil.copytree(out / "plain", "out/plain")
    command = [sys.executable, "-m", "regard", "compare", *map(str, slow)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while not (tmp_path / "out" / "attentive" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    assert b"go on with: regard compare" in errors
    done = call("compare", *slow)
    assert done.code == 0, done.err
    weights = "attentive/model/model.safetensors"
    assert (tmp_path / "out" / weights).read_bytes() == (out / weights).read_bytes()


def test_pictures_need_matplotlib_and_nothing_else_does(compared, folder, call, monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    out, *_ = compared
    words = [out / "plain", out / "attentive", "--test", folder / "test.tsv", "-o", "bare", "--samples", 0]
    done = call("compare", *words, "--skip-speed")
    assert done.code == 0, done.err
    assert 'no PNG or SVG is written: drawing pictures needs matplotlib: pip install "regard[plot]"' in done.err
    assert os.path.exists("bare/comparison.html")
    assert not os.path.exists("bare/length.png")


def test_wrong_input_is_told_before_the_work(compared, folder, call, tmp_path):
    out, *_ = compared
    good = folder / "plain.toml"
    (tmp_path / "odd.toml").write_text(RECIPE.replace("MODEL", "kind = 'rnn'\nwidht = 3").replace("pairs.tsv", "x.tsv"))
    (tmp_path / "test.tsv").write_text("a\tb\n")
    (tmp_path / "empty.tsv").write_text("")
    for words, code, message in (
        ([], 2, "nothing to compare"),
        (["missing.toml"], 2, "missing.toml: cannot be read"),
        (["missing"], 4, "missing: no such model directory"),
        ([folder], 4, "not a model directory"),
        ([good, "odd.toml"], 2, "different test pairs: plain has test.tsv, odd has test.tsv"),
        ([good, "odd.toml", "--test", folder / "test.tsv"], 2, "odd: model: widht: unknown key; did you mean 'width'?"),
        ([good, "train.max_stpes=3"], 2, "max_stpes: unknown key; did you mean 'max_steps'?"),
        ([good, "--test", "missing.tsv"], 3, "missing.tsv: no such file"),
        ([good, "--test", "empty.tsv"], 3, "empty.tsv: no pairs in it"),
        ([good, "--metrics", "blue"], 2, "unknown metric 'blue'"),
        ([good, "--reach", "high"], 2, "--reach high: expected a number"),
        ([good, "--line", 31], 2, "--line 31: the test has 30 lines"),
        ([good, "--samples", -1], 2, "--samples -1"),
        ([good, "-o", good], 2, "plain.toml: expected a directory, found a file"),
        ([out / "plain", "nonsense=4"], 2, "'nonsense=4': an option of recipes, and no recipe is named"),
        ([good, "--also", "plain beam=0"], 2, "plain beam=0"),
        ([good, "--no-train"], 4, "not trained yet: plain (leave --no-train out to train)"),
        ([good, out / "plain", "--no-train"], 4, f"not trained yet: {folder.name}-plain"),
    ):
        done = call("compare", "-o", "fresh", *words, "--quiet")
        assert (done.code, done.out) == (code, b""), (words, done.err)
        assert message in done.err, done.err
        assert not os.path.exists("fresh"), "nothing is left of a wrong call"
    changed = call("compare", good, folder / "attentive.toml", "train.max_steps=20", "-o", out, *QUICK)
    assert changed.code == 2
    assert "this run was started with other options" in changed.err
