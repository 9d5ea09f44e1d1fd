"""What a person sees, on a terminal and in a log file."""

import io

import pytest
from toy_run import trainer

from regard.training.progress import Progress
from regard.training.state import Goal, Validation

SAMPLE = {"source": "[red]ein[/red]\x1b[2J", "reference": "one", "output": "two"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_lines_now_and_then():
    stream = io.StringIO()
    now = [100.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: now[0])
        with Progress(stream=stream, every=15) as progress:
            progress.begin(0, 1000)
            for step in range(1, 41):
                now[0] += 1
                progress.update(step, loss=20.0, tokens=10, rate=0.001)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "step 15/1000  loss 2.000  rate 1.00e-03  10 tokens/s  16 min left",
        "step 30/1000  loss 2.000  rate 1.00e-03  10 tokens/s  16 min left",
    ]


def test_other_work_than_training_is_counted_too():
    stream = io.StringIO()
    now = [100.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.monotonic", lambda: now[0])
        with Progress(stream=stream, every=15) as progress:
            progress.begin(1000, 5000, "line")
            for done in range(1500, 3001, 500):
                now[0] += 10
                progress.advance(done, 500)
    assert stream.getvalue().splitlines() == [
        "line 2000/5000  50 lines/s  60 s left",
        "line 3000/5000  50 lines/s  40 s left",
    ]


def test_validation_shows_numbers_and_samples_as_text():
    stream = io.StringIO()
    validation = Validation(1.5, 4.48, {"bleu": 31.25}, [SAMPLE])
    Progress(stream=stream).validation(200, validation, Goal("bleu", higher=True), True)
    text = stream.getvalue()
    assert "validation at step 200: loss 1.5  perplexity 4.48  bleu 31.25  (best bleu so far)" in text
    assert "source  [red]ein[/red]�[2J" in text
    assert "\x1b" not in text


def test_a_bar_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    trainer(tmp_path, progress=Progress(stream=stream), max_steps=5).run()
    assert "\x1b[" in stream.getvalue()
    assert "validation at step 3/5" in stream.getvalue()


def test_a_run_tells_its_estimate_and_its_end(tmp_path):
    stream = io.StringIO()
    trainer(tmp_path, progress=Progress(stream=stream), max_steps=5).run()
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("at most 5 updates of about")
    assert lines[-1].startswith("finished at step 5 (max_steps); kept: ")


def test_quiet_still_warns():
    stream = io.StringIO()
    progress = Progress(quiet=True, stream=stream)
    progress.say("hello")
    progress.warn("oh")
    assert stream.getvalue() == "warning: oh\n"
