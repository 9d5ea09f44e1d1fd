"""Made reports, and a parser that tells what a browser would find in a page."""

from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from regard.view.record import AttentionReport, AttentionView, Description, FilledPlaces, Map, WritingView

PAYLOADS = [
    "<script>document.title='pwned'</script>",
    "</script><script>document.title='pwned'</script>",
    "<!--<script>",
    '"><img src=x onerror="document.title=\'pwned\'">',
    "' onmouseover='document.title=1' x='",
    "]]><svg/onload=document.title='pwned'>",
    "</style></title></textarea><iframe src=https://example.org>",
    "&lt;b&gt;&amp;<b>$data ${policy} $$ %s {0}",
    "javascript:document.title='pwned'",
    "\u2028\u2029\u202e\x00\x1b[31m\x7f\ufeff\ud800",
    "\\u003cscript\\u003e",
    "`${document.title='pwned'}`",
]


def softmax_weights(heads: int, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    scores = np.exp(np.random.default_rng(seed).normal(size=(heads, rows, columns)) * 2)
    return (scores / scores.sum(-1, keepdims=True)).astype(np.float32)


def build_view(source: list[str], target: list[str], layers: int = 2, heads: int = 4, score: float = -0.25):
    sizes = {"source": len(source), "target": len(target)}
    maps = []
    for number in range(layers):
        for name, kind, queries, keys in (
            ("encoder.layers.{}.self", "encoder", "source", "source"),
            ("decoder.layers.{}.self", "decoder", "target", "target"),
            ("decoder.layers.{}.cross", "cross", "target", "source"),
        ):
            weights = softmax_weights(heads, sizes[queries], sizes[keys], seed=number)
            maps.append(Map(name.format(number), kind, queries, keys, weights))
    return AttentionView(source, target, " ".join(source), " ".join(target), score, maps)


@pytest.fixture
def make_view() -> Callable[..., AttentionView]:
    return build_view


@pytest.fixture
def parallel_report() -> AttentionReport:
    """All words at once, in two passes; a hostile word among them."""
    source, target = ["a", PAYLOADS[0], "</s>"], ["ein", "Hund", "</s>"]
    passes = [
        FilledPlaces(["ein", PAYLOADS[1]], [0.9, 0.2], [True, True]),
        FilledPlaces(["ein", "Hund"], [0.9, 0.8], [False, True]),
    ]
    writing = WritingView([1, 1, 0], ["a", PAYLOADS[0]], passes)
    view = replace(build_view(source, target), writing=writing)
    return AttentionReport([view, build_view(source, target)], Description("runs/dog", "maskpredict", 12345))


@pytest.fixture
def report() -> AttentionReport:
    views = [
        build_view(["a", "little", "cat", "</s>"], ["eine", "kleine", "Katze", "</s>"]),
        build_view(["a", "little", "cat", "</s>"], ["die", "Katze", "</s>"], score=-0.75),
    ]
    return AttentionReport(views, Description("runs/cat", "transformer", 12345))


@pytest.fixture
def small_report() -> AttentionReport:
    layer = Map("decoder.attention", "cross", "target", "source", softmax_weights(1, 3, 2))
    view = AttentionView(["3", "</s>"], ["0", "3", "</s>"], "3", "03", -0.1, [layer])
    return AttentionReport([view], Description("quickstart/rnn", "rnn", 99))


@pytest.fixture
def hostile_report() -> AttentionReport:
    return AttentionReport(
        [build_view([*PAYLOADS, "</s>"], [*reversed(PAYLOADS), "</s>"], layers=1, heads=2)],
        Description(PAYLOADS[1], PAYLOADS[3], 1),
    )


@pytest.fixture
def payloads() -> list[str]:
    return PAYLOADS


class Found(HTMLParser):
    """Tags, attributes and script texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, text: str) -> None:
        self.texts.setdefault(self.inside, []).append(text)

    def values(self, tag: str, name: str) -> list[str]:
        return [value for found, attribute, value in self.attributes if (found, attribute) == (tag, name)]


@pytest.fixture
def parse() -> Callable[[str], Found]:
    def parse(page: str) -> Found:
        found = Found()
        found.feed(page)
        found.close()
        return found

    return parse
