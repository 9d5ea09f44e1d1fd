"""The page in a real browser; skipped where there is no chromium."""

import re
import shutil
import subprocess
import time

import pytest

from regard.view.record import AttentionReport, Description
from regard.view.run import write_run_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH")
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=2000",
    "--enable-logging=stderr",
]  # fmt: skip


@pytest.fixture(scope="module")
def browse(tmp_path_factory):
    """Open a saved page and return its document after the script has run."""
    folder = tmp_path_factory.mktemp("profile")

    def browse(path, address="") -> str:
        profile = f"--user-data-dir={folder}"
        command = [str(CHROMIUM), *OPTIONS, profile, "--dump-dom", f"file://{path}{address}"]
        result = subprocess.run(command, capture_output=True, timeout=90, check=True)
        messages = re.findall(r".*CONSOLE.*", result.stderr.decode("utf-8", "replace"))
        assert not messages, messages
        return result.stdout.decode("utf-8")

    return browse


def body_data(page: str, name: str) -> str:
    return re.search(rf'<body[^>]*data-{name}="([^"]*)"', page).group(1)


def with_script(path, script: str):
    """The same page with a script of the test's own and no policy against it."""
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", path.read_text(encoding="utf-8"))
    changed = path.with_name("changed.html")
    changed.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    return changed


def test_page_draws_itself(report, browse, tmp_path):
    page = browse(report.save(tmp_path / "x.html"), "#kind=encoder&layer=2&head=3&hypothesis=2")
    assert [body_data(page, name) for name in ("ready", "kind", "layer", "head")] == ["yes", "encoder", "2", "3"]
    assert 'data-cells="16"' in page
    assert page.count('class="thumbnail') == 3 * 2 * 5
    assert page.count('<button class="token') == 8
    assert "encoder.layers.1.self, head 3 of 4" in page


def test_hostile_text_runs_nothing(hostile_report, browse, tmp_path):
    page = browse(hostile_report.save(tmp_path / "x.html"))
    assert body_data(page, "ready") == "yes"
    assert "<title>pwned" not in page
    drawn = page[page.index("<body") : page.index('<script type="application/json"')]
    assert not re.search(r"<(script|img|iframe|b>\$)|<svg/", drawn)


def test_keys_and_pointer(report, browse, tmp_path):
    script = """
      const matrix = document.getElementById("matrix");
      for (const key of ["ArrowDown", "ArrowDown", "ArrowRight"])
        matrix.dispatchEvent(new KeyboardEvent("keydown", { key }));
      document.querySelectorAll(".tokens")[1].children[2].dispatchEvent(new PointerEvent("pointerenter"));
    """
    page = browse(with_script(report.save(tmp_path / "x.html"), script))
    assert re.search(r'id="announcement"[^>]*>kleine → little: 0\.\d{3}<', page)
    assert re.search(r'<button class="token chosen"[^>]*>Katze<', page)
    assert re.search(r'<button class="token[^>]*background-color: rgb[^>]*>(a|little|cat|&lt;/s&gt;)<', page)
    assert page.count("<path d=") == int(re.search(r'data-lines="(\d+)"', page).group(1)) > 0


def test_one_map_leaves_nothing_to_choose(small_report, browse, tmp_path):
    page = browse(small_report.save(tmp_path / "x.html"))
    assert re.search(r'<nav[^>]* hidden=""', page)
    assert re.search(r'<aside[^>]* hidden=""', page)
    assert page.count('<span class="label') == 5


def test_hundred_words_stay_responsive(make_view, browse, tmp_path):
    tokens = [f"word{number}" for number in range(99)] + ["</s>"]
    report = AttentionReport([make_view(tokens, tokens, layers=4, heads=8)], Description("m", "transformer", 1))
    script = """
      const words = document.querySelectorAll(".token");
      for (let time = 0; time < 20; time++) words[time].dispatchEvent(new PointerEvent("pointerenter"));
      document.querySelectorAll(".thumbnail")[5].click();
    """
    start = time.monotonic()
    page = browse(with_script(report.save(tmp_path / "x.html"), script))
    assert time.monotonic() - start < 30
    assert 'data-cells="10000"' in page
    assert page.count('class="thumbnail') == 3 * 4 * 9


def test_run_report_opens(browse, tmp_path):
    records = [{"kind": "train", "step": step, "loss": 1 / step} for step in range(1, 9)]
    write_run_report(tmp_path / "run.html", {"metrics": records, "settings": "seed = 1"})
    assert browse(tmp_path / "run.html").count("<polyline") == 1


def test_how_all_words_were_written(parallel_report, browse, tmp_path):
    page = browse(parallel_report.save(tmp_path / "x.html"))
    section = page[page.index('id="writing"') : page.index('id="choosers"')]
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", section) == ["fertilities", "places", "pass 1", "pass 2"]
    assert re.findall(r"<sub[^>]*>(\d)</sub>", section) == ["1", "1", "0"]
    assert section.count("word fresh") + section.count("word mark fresh") == 3
    assert "<script" not in section
    assert "--doubt: 20%" in section
    other = browse(tmp_path / "x.html", "#hypothesis=2")
    assert re.search(r'id="writing"[^>]*hidden', other), "an output that nobody followed has none"
