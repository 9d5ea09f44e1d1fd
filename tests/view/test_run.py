import math

import pytest

from regard.view.run import duration, render_run, write_run_report

TAGS = {"html", "head", "meta", "title", "style", "body", "header", "p", "span", "main", "section", "div", "h1", "h2",
        "h3", "dl", "dt", "dd", "figure", "i", "svg", "line", "text", "polyline", "circle", "article", "table", "tr",
        "th", "td", "pre"}  # fmt: skip


def metrics(steps: int) -> list[dict]:
    records: list[dict] = []
    for step in range(1, steps + 1):
        records.append({"kind": "train", "step": step, "epoch": 1, "loss": 5 / step, "rate": 1e-5 * step,
                        "gradient_norm": 1.0, "tokens_per_second": 1000})  # fmt: skip
        if step % 5 == 0:
            samples = [{"source": "ein Haus", "reference": "a house", "output": "a" if step < 20 else "a house"}]
            records.append({"kind": "validation", "step": step, "loss": 4 / step, "metrics": {"bleu": step},
                            "samples": samples})  # fmt: skip
    return records


def test_full_report(tmp_path, parse):
    path = tmp_path / "run.html"
    summary = {"model": "rnn", "parameters": 1234567, "scores": {"bleu": 33.3}, "time": 4000, "chosen": "best"}
    write_run_report(path, {"title": "runs/a", "metrics": metrics(40), "settings": "seed = 1\n", "summary": summary})
    page = path.read_text(encoding="utf-8")
    found = parse(page)
    assert found.tags.count("svg") == 5
    assert found.tags.count("polyline") == 6  # training and validation loss share a chart
    assert set(found.tags) <= TAGS
    for text in ("1,234,567", "33.3", "1 h 06 min", "seed = 1", "steps 5 – 15", "steps 20 – 40", "bleu: 40 at step 40"):
        assert text in page
    assert 'class="right"' in page


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_short_runs(steps, parse):
    page = render_run({"metrics": metrics(steps), "settings": "", "summary": {}})
    assert set(parse(page).tags) <= TAGS
    assert ("Nothing was logged yet" in page) == (steps == 0)
    assert "nan" not in page


def test_nothing_at_all():
    assert "Training run" in render_run({})


def test_values_that_are_not_numbers_are_left_out():
    records = [
        {"kind": "train", "step": 1, "loss": math.nan},
        {"kind": "train", "step": 2, "loss": math.inf},
        {"kind": "train", "step": None, "loss": 1.0},
        {"kind": "train", "step": 3, "loss": "3"},
        {"kind": "validation", "step": 3, "metrics": {"bleu": {"signature": 1}}, "samples": None},
        {"kind": "other"},
        "not a record",
    ]
    assert "Nothing was logged yet" in render_run({"metrics": records})


def test_long_runs_are_thinned(parse):
    found = parse(render_run({"metrics": [{"kind": "train", "step": step, "loss": 1.0} for step in range(20_000)]}))
    assert found.tags.count("circle") <= 300


def test_hostile_text_stays_text(payloads, parse):
    for payload in payloads:
        sample = {"source": payload, "reference": payload, "output": payload}
        record = {"kind": "validation", "step": 5, "loss": 1.0, "metrics": {payload: 1.0}, "samples": [sample]}
        summary = {payload: payload, "scores": {payload: [payload]}}
        page = render_run({"title": payload, "metrics": [record], "settings": payload, "summary": summary})
        found = parse(page)
        assert set(found.tags) <= TAGS | {"title"}
        assert not [name for _, name, _ in found.attributes if name.startswith("on") or name in ("src", "href")]
        assert "script-src" not in found.values("meta", "content")[0]
        page.encode("utf-8")


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.4, "3 s"), (200, "3 min 20 s"), (7500, "2 h 05 min"), (math.nan, "nan")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text
