"""What was looked at: `record(model)` listens to attention, `AttentionReport` keeps and shows what was heard.

Recording sets the `tap` of every attention in a model for the length of a `with` block; torch is imported only
there. The kept types hold numpy arrays and text, so that a report is read, drawn and sent without torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.errors import ConfigError, DataError

Kind = Literal["encoder", "decoder", "places", "cross"]
Side = Literal["source", "target"]
DECIMALS = 4  # of a weight in JSON and on the page
SIDES: dict[Kind, tuple[Side, Side]] = {  # kind → who looks, who is looked at
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),  # of what has been written so far
    "places": ("target", "target"),  # all at once, filled in parallel
    "cross": ("target", "source"),
}


class Maps(Mapping[str, Any]):
    """Recorded weights by module name: `maps["decoder.layers.3.cross"]` is one tensor `[B,H,T,S]`.

    Several calls of one module (step by step) are joined over T; where S grew in between, the narrower ones
    are padded with zeros on the right. The calls themselves are in `maps.calls[name]`.
    """

    def __init__(self) -> None:
        self.calls: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> Any:
        import torch

        calls = self.calls[name]
        if len({call.shape[:2] for call in calls}) > 1:
            shapes = ", ".join(str(tuple(call.shape)) for call in calls)
            raise ValueError(f"{name}: recorded calls of different batches cannot be joined ({shapes}); see .calls")
        width = max(call.shape[3] for call in calls)
        return torch.cat([torch.nn.functional.pad(call, (0, width - call.shape[3])) for call in calls], dim=2)

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)


@contextmanager
def record(model: Any) -> Iterator[Maps]:
    """Listen to every attention of a model inside a `with` block; the weights are detached copies on the CPU."""
    listeners = {name: module for name, module in model.named_modules() if hasattr(module, "tap")}
    busy = [name for name, module in listeners.items() if module.tap is not None]
    if busy:
        raise RuntimeError(f"this model is being recorded already (tap set on {busy[0] or 'the model itself'})")
    maps = Maps()

    def listen(name: str) -> Any:
        return lambda weights: maps.calls.setdefault(name, []).append(weights.detach().to("cpu", copy=True))

    try:
        for name, module in listeners.items():
            module.tap = listen(name)
        yield maps
    finally:
        for module in listeners.values():
            module.tap = None


def guess_kind(name: str) -> Kind:
    """The kind of attention by its module name: `encoder.layers.0.self`, `decoder.layers.3.cross`, `attention`."""
    parts = name.split(".")
    if any("cross" in part for part in parts):
        return "cross"
    if any("encoder" in part for part in parts):
        return "encoder"
    if any(part.startswith("place") for part in parts):
        return "places"
    return "decoder" if any(part.startswith("self") for part in parts) else "cross"


def layers_of(maps: Mapping[str, Any], row: int, source_length: int, target_length: int) -> list["Map"]:
    """The maps of one example of a recorded batch, cut to its true lengths (EOS counted)."""
    lengths = {"source": source_length, "target": target_length}
    layers = []
    for name, weights in maps.items():
        kind = guess_kind(name)
        queries, keys = SIDES[kind]
        shape = lengths[queries], lengths[keys]
        cut = weights[row, :, : shape[0], : shape[1]].float().numpy()
        missing = [(0, whole - part) for whole, part in zip(shape, cut.shape[1:], strict=True)]
        layers.append(Map(name, kind, queries, keys, np.pad(cut, [(0, 0), *missing])))  # the end may have no place
    return layers


@dataclass(frozen=True, eq=False)
class Map:
    """The weights of one attention: how much each query looked at each key, for every head."""

    name: str  # of the module
    kind: Kind
    queries: Side  # whose words look (rows)
    keys: Side  # whose words are looked at (columns)
    weights: np.ndarray  # [H,T,S]

    def __post_init__(self) -> None:
        weights = np.nan_to_num(np.asarray(self.weights, dtype=np.float32))
        if weights.ndim != 3:
            raise ValueError(f"{self.name}: expected weights [heads, rows, columns], found {weights.shape}")
        object.__setattr__(self, "weights", weights)

    def information(self) -> np.ndarray:
        """How telling each head is `[H]`: the mutual information, in bits, of the row and where it looks.

        High when rows look sharply *and* at different places; zero for a head that is flat or always looks at
        the same word.
        """
        if not self.weights.size:
            return np.zeros(len(self.weights), dtype=np.float32)
        return _entropy(self.weights.mean(axis=1)) - _entropy(self.weights).mean(axis=1)


def _entropy(weights: np.ndarray) -> np.ndarray:
    total = weights.sum(axis=-1, keepdims=True)
    share = weights / np.where(total > 0, total, 1)
    return -(share * np.log2(np.where(share > 0, share, 1))).sum(axis=-1)


@dataclass(frozen=True)
class FilledPlaces:
    """The words at all places after a pass, how certain each is, and which of them the pass has filled."""

    tokens: Sequence[str]
    certain: Sequence[float]
    fresh: Sequence[bool]


@dataclass(frozen=True)
class WritingView:
    """How a hypothesis came about whose words were written all at once."""

    fertility: Sequence[int] | None  # of each source token, where the model has it
    start: Sequence[str]  # what stood at the places at first
    passes: Sequence[FilledPlaces]

    def __post_init__(self) -> None:
        places = len(self.start)
        for each in self.passes:
            if not len(each.tokens) == len(each.certain) == len(each.fresh) == places:
                raise ValueError(f"a pass over {len(each.tokens)} places, expected {places}")


@dataclass(frozen=True, eq=False)
class AttentionView:
    """One hypothesis and everything that was looked at while it was written."""

    source_tokens: Sequence[str]  # as shown, with "</s>" when the model reads it
    target_tokens: Sequence[str]  # as shown, with the closing "</s>"
    source: str
    text: str  # the hypothesis
    score: float
    layers: Sequence[Map]
    writing: WritingView | None = None  # where all words were written at once

    def __post_init__(self) -> None:
        if self.writing and self.writing.fertility and len(self.writing.fertility) != len(self.source_tokens):
            found, wanted = len(self.writing.fertility), len(self.source_tokens)
            raise ValueError(f"{found} fertilities do not fit {wanted} source tokens")
        for layer in self.layers:
            rows, columns = self.labels(layer)
            if layer.weights.shape[1:] != (len(rows), len(columns)):
                found, wanted = layer.weights.shape[1:], (len(rows), len(columns))
                raise ValueError(f"{layer.name}: weights {found} do not fit the tokens {wanted}")

    def labels(self, layer: Map) -> tuple[list[str], list[str]]:
        """Words of the rows and of the columns of a map.

        A decoder that is about to write word t has read the words before it: in its self-attention the columns
        are the output shifted right behind `<s>`.
        """
        sides = {"source": list(self.source_tokens), "target": list(self.target_tokens)}
        columns = sides[layer.keys]
        return sides[layer.queries], ["<s>", *columns[:-1]] if layer.kind == "decoder" else columns

    def most_telling(self, kind: Kind | None = None) -> tuple[Map, int] | None:
        """The map and head with most information: cross-attention (or the kind asked for), else any kind."""
        wanted = [layer for layer in self.layers if layer.kind == (kind or "cross")]
        layers = wanted or ([] if kind else list(self.layers))
        choices = [(bits, layer, head) for layer in layers for head, bits in enumerate(layer.information())]
        if not choices:
            return None
        _, layer, head = max(choices, key=lambda choice: choice[0])
        return layer, head

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; weights rounded to four decimals."""
        return {
            "source": self.source,
            "text": self.text,
            "score": round(float(self.score), 6) if np.isfinite(self.score) else None,
            "source_tokens": list(self.source_tokens),
            "target_tokens": list(self.target_tokens),
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "queries": layer.queries,
                    "keys": layer.keys,
                    "weights": np.round(layer.weights.astype(np.float64), DECIMALS).tolist(),
                }
                for layer in self.layers
            ],
            **({"writing": asdict(self.writing)} if self.writing else {}),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AttentionView":
        """The reverse of `to_dict`."""

        def make() -> AttentionView:
            score = float("nan") if values["score"] is None else float(values["score"])
            made = {"score": score, "layers": [Map(**layer) for layer in values["layers"]]}
            if writing := values.get("writing"):
                passes = [FilledPlaces(**each) for each in writing["passes"]]
                made["writing"] = WritingView(**{**writing, "passes": passes})
            return cls(**{**values, **made})

        return _read(make)


@dataclass(frozen=True)
class Description:
    """The model in one line."""

    name: str
    kind: str  # "transformer", "rnn", …
    parameters: int


@dataclass(frozen=True, eq=False)
class AttentionReport:
    """The hypotheses of one sentence, best first, with their attention: shows itself in a notebook, saves itself."""

    views: Sequence[AttentionView]
    model: Description

    def __post_init__(self) -> None:
        if not self.views:
            raise ValueError("an attention report needs at least one hypothesis")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"format": 1, "model": asdict(self.model), "views": [view.to_dict() for view in self.views]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AttentionReport":
        """The reverse of `to_dict`."""
        return _read(
            lambda: cls([AttentionView.from_dict(view) for view in values["views"]], Description(**values["model"]))
        )

    def save(self, path: str | Path) -> Path:
        """Write .html, .json, .png or .svg, by the ending (the pictures show the best hypothesis)."""
        from regard.view import plots, report

        path = Path(path)
        writers = {
            ".html": lambda: report.write_page(path, self),
            ".json": lambda: report.write_json(path, self),
            ".png": lambda: plots.plot_attention(path, self.views[0]),
            ".svg": lambda: plots.plot_attention(path, self.views[0]),
        }
        if path.suffix.lower() not in writers:
            raise ConfigError(f"{path}: unknown ending '{path.suffix}'; known endings: {', '.join(writers)}")
        writers[path.suffix.lower()]()
        return path

    def to_terminal(self, console: Any = None) -> None:
        """Print a heat map of the best hypothesis on a rich console (standard output when none is given)."""
        from regard.view.terminal import print_attention

        print_attention(self.views[0], console)

    def _repr_html_(self) -> str:
        from regard.view.report import render_frame

        return render_frame(self)


def _read(make: Any) -> Any:
    try:
        return make()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"not an attention report: {type(error).__name__}: {error}") from None
