"""The README's table: made from the records, and the same as them."""

import copy
import re

import pytest

from benchmarks.experiments import Experiment
from benchmarks.figures import Figure
from benchmarks.process import ROOT
from benchmarks.run import summary
from benchmarks.table import BEGIN, END, NONE, insert, keep, read, render

RESULTS = ROOT / "benchmarks" / "results"


def record(name, figures, taken, facts=None, notes=()):
    rounds = [
        {"side": side, "round": number, "figures": values, "error": ""}
        for side, several in taken.items()
        for number, values in enumerate(several)
    ]
    experiment = Experiment(name, f"title of {name}", figures, [])
    return {
        "name": name,
        "title": experiment.title,
        "figures": [vars(figure) for figure in figures],
        "summary": summary(experiment, rounds),
        "notes": list(notes),
        "facts": facts or {},
        "rounds": rounds,
        "peers": {"eole": "0.6.4"},
        "machine": "a machine",
        "threads": 2,
        "torch": "2.13.0",
        "commit": "0123456789abcdef",
    }


@pytest.fixture
def training():
    figures = [Figure("tokens_per_second", "tokens/s", True), Figure("memory", "MB", False)]
    taken = {
        "regard": [{"tokens_per_second": speed, "memory": 200e6} for speed in (900, 1000, 1100)],
        "eole": [{"tokens_per_second": speed, "memory": 800e6} for speed in (500, 510, 490)],
        "JoeyNMT": [{"tokens_per_second": speed, "memory": 400e6} for speed in (250, 250, 250)],
    }
    return record("train-a", figures, taken, notes=["OpenNMT-py is not installed"])


def test_ratios_are_against_the_best_peer_of_each_figure(training):
    text = render([training])
    assert "| title of train-a | 1,000 tokens/s | 20% | eole: 500 tokens/s | 4% | **2.00** | JoeyNMT 4.00 |" in text
    assert "peak memory above the built model | 200 MB | 0% | JoeyNMT: 400 MB | 0% | **2.00** | eole 4.00 |" in text
    assert "Machine: a machine; 2 threads" in text
    assert "at least 3 interleaved rounds" in text
    assert "- train-a: OpenNMT-py is not installed" in text


def test_without_peers_only_our_figures_are_shown(training):
    alone = record("train-a", [Figure("tokens_per_second", "tokens/s", True)], {"regard": [{"tokens_per_second": 10}]})
    assert "| title of train-a | 10 tokens/s | 0% | – | – | – | – |" in render([alone])


def test_a_failed_round_is_not_counted(training):
    figure = Figure("seconds", "s", False)
    taken = [
        {"side": "regard", "round": 0, "figures": {"seconds": 4.0}, "error": ""},
        {"side": "regard", "round": 1, "figures": {"seconds": 0.1}, "error": "exit code 1"},
    ]
    found = summary(Experiment("latency", "", [figure], []), taken)
    assert found["seconds"]["sides"]["regard"]["median"] == 4.0


def test_the_limit_of_the_machine_is_no_peer():
    taken = {"regard": [{"32x4": 60}], "its matrix products alone": [{"32x4": 80}]}
    text = render([record("limit-a", [Figure("32x4", "tokens/s", True)], taken)])
    assert "| title of limit-a: batch 32, beam 4 | 60 tokens/s | 80 tokens/s | 75% |" in text
    assert "best peer" not in text


def test_decoding_rows_say_batch_and_beam():
    figures = [Figure("1x1", "tokens/s", True), Figure("32x4", "tokens/s", True)]
    text = render([record("decode-a", figures, {"regard": [{"1x1": 300, "32x4": 2000}]})])
    assert "title of decode-a: batch 1, greedy |" in text
    assert "title of decode-a: batch 32, beam 4 |" in text


def test_sizes_are_told_against_the_smallest():
    figures = [Figure("tokens_per_second", "tokens/s", True), Figure("peak", "MB", False)]
    taken = {
        "1,000 pairs": [{"tokens_per_second": 2000, "peak": 500e6}],
        "16,000 pairs": [{"tokens_per_second": 1900, "peak": 500.3e6}],
    }
    text = render([record("size-corpus", figures, taken, {"pairs": [1000, 16_000]})])
    assert "| training | 16,000 pairs | 1,900 tokens/s | 0% | 0.95 |" in text
    assert "grows by 20.0 bytes a pair" in text


def test_the_section_goes_between_the_marks_and_nowhere_else():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    changed = insert(text, "new", BEGIN, END)
    assert changed == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert insert(changed, "new", BEGIN, END) == changed
    with pytest.raises(ValueError, match="expected the lines"):
        insert("no marks", "new", BEGIN, END)


def test_a_page_is_kept_or_checked(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"page\.md and the records disagree"):
        keep(page, "new", (BEGIN, END), check=True)
    keep(page, "new", (BEGIN, END), check=False)
    keep(page, "new", (BEGIN, END), check=True)


def test_readme_and_records_agree():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert insert(readme, render(read(RESULTS)), BEGIN, END) == readme


def test_the_agreement_would_be_missed(training):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    changed = copy.deepcopy(training)
    changed["summary"]["memory"]["over"]["JoeyNMT"] = 3.0
    assert render([changed]) != render([training]) != NONE
    assert insert(readme, render([*read(RESULTS), training]), BEGIN, END) != readme


def follows(found):
    """Whether the summary of a record is that of its rounds."""
    figures = [Figure(**figure) for figure in found["figures"]]
    return summary(Experiment(found["name"], "", figures, []), found["rounds"]) == found["summary"]


def test_what_is_recorded_follows_from_its_rounds(training):
    assert [found["name"] for found in read(RESULTS) if not follows(found)] == []
    assert follows(training)
    training["rounds"][0]["figures"]["tokens_per_second"] = 2000
    assert not follows(training)


PLACES = re.compile(r"/(root|home|Users|tmp|work|mnt)/")


def test_no_record_names_a_place_of_a_machine():
    assert [path.name for path in RESULTS.glob("*.json") if PLACES.search(path.read_text(encoding="utf-8"))] == []
    assert PLACES.search('"directory": "/home/somebody/model"')
