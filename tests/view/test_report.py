import base64
import hashlib
import json
import re

import numpy as np
import pytest

from regard.errors import ConfigError
from regard.view import report as room
from regard.view.record import AttentionReport, Description
from regard.view.tokens import shown

TAGS = {"html", "head", "meta", "title", "style", "body", "header", "p", "span", "noscript", "main", "section",
        "div", "nav", "figure", "figcaption", "aside", "script"}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "dir", "hidden", "type"}


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))


def unpack(data: dict, layer: dict) -> np.ndarray:
    whole = np.frombuffer(base64.b64decode(data["blobs"][layer["blob"]]), dtype="<u2")
    return whole.reshape(layer["shape"]) / data["scale"]


def test_page_holds_the_whole_report(report):
    data = data_of(room.render_page(report))
    assert data["model"] == {"name": "runs/cat", "kind": "transformer", "parameters": 12345}
    assert len(data["views"]) == 2
    for view, stored in zip(report.views, data["views"], strict=True):
        assert stored["text"] == view.text
        assert stored["target_tokens"] == list(view.target_tokens)
        for layer, packed in zip(view.layers, stored["layers"], strict=True):
            assert np.abs(unpack(data, packed) - layer.weights).max() <= 5.1e-5


def test_equal_maps_are_stored_once(report):
    data = data_of(room.render_page(report))
    first, second = (
        [layer["blob"] for layer in view["layers"] if layer["kind"] == "encoder"] for view in data["views"]
    )
    assert first == second


def test_hostile_text_stays_text(hostile_report, parse, payloads):
    page = room.render_page(hostile_report)
    found = parse(page)
    assert set(found.tags) <= TAGS
    assert found.tags.count("script") == 2
    assert found.tags.count("title") == found.tags.count("style") == 1
    assert {name for _, name, _ in found.attributes} <= ATTRIBUTES | {"aria-label", "aria-live"}
    data = data_of(page)
    assert data["views"][0]["source_tokens"] == [shown(token) for token in [*payloads, "</s>"]]
    assert data["model"]["name"] == payloads[1]


def test_json_cannot_end_its_element():
    text = room.escape_json({"x": "</script><!--&\u2028\u2029"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"x": "</script><!--&\u2028\u2029"}


def test_policy_allows_this_script_only(report, parse):
    page = room.render_page(report)
    policy = parse(page).values("meta", "content")[0]
    script = re.search(r"<script>(.*?)</script>", page, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; ")
    assert re.search(r"script-src ([^;]*)", policy).group(1) == f"'sha256-{digest}'"
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")


def test_page_asks_the_network_for_nothing(report, parse):
    page = room.render_page(report)
    names = {name for _, name, _ in parse(page).attributes}
    assert not names & {"src", "href", "srcset", "action", "background", "poster"}
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", page)


def test_script_writes_text_only():
    script = "".join(room.read_resource(name) for name in room.SCRIPTS)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)


def test_large_page_is_small_enough(make_view):
    tokens = [f"word{number}" for number in range(99)] + ["</s>"]
    report = AttentionReport([make_view(tokens, tokens, layers=4, heads=8)], Description("m", "transformer", 1))
    assert len(room.render_page(report)) < 3_000_000


def test_size_limit_is_told(report, monkeypatch):
    monkeypatch.setattr(room, "SIZE_LIMIT", 1000)
    with pytest.raises(ConfigError, match="fewer hypotheses"):
        room.render_page(report)


def test_notebook_frame_holds_the_page(hostile_report, parse):
    found = parse(hostile_report._repr_html_())
    assert found.tags == ["iframe"]
    assert found.values("iframe", "sandbox") == ["allow-scripts"]
    assert found.values("iframe", "srcdoc")[0] == room.render_page(hostile_report)


def test_written_page_is_utf8(hostile_report, tmp_path):
    path = hostile_report.save(tmp_path / "x.html")
    assert path.read_bytes().decode("utf-8").startswith("<!doctype html>")
