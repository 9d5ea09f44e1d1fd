"""The attention page: one HTML file that holds its style, its script and its data, and asks the network for nothing.

Token text is hostile. The data lies in a JSON element in which no character can end it; the script writes it
by `textContent` only; and the page's content policy allows that one script, by its hash, and no connection.
Weights travel as whole ten-thousandths, two bytes each, in base64; equal maps (the encoder's, in every
hypothesis) are stored once.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from regard.errors import ConfigError
from regard.view.record import DECIMALS, AttentionReport, AttentionView, WritingView
from regard.view.tokens import shown, shown_text

SCRIPTS = ("matrix.js", "reader.js", "writing.js", "page.js")
SIZE_LIMIT = 64_000_000  # characters of a page; browsers grow slow beyond
FRAME_HEIGHT = 760


def read_resource(name: str) -> str:
    """A text file that lies beside this module."""
    return files("regard.view").joinpath(name).read_text(encoding="utf-8")


def escape_json(values: Any) -> str:
    """JSON that can stand inside a script element: no `<`, `>`, `&` and no line separators."""
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def content_policy(script: str = "") -> str:
    """What a page may do: its own styles, the one script with this hash, nothing else."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    allowed = f"script-src 'sha256-{digest}'; " if script else ""
    return f"default-src 'none'; style-src 'unsafe-inline'; {allowed}base-uri 'none'; form-action 'none'"


def page_data(report: AttentionReport) -> dict[str, Any]:
    """The report as the script reads it."""
    blobs: dict[str, int] = {}
    model = report.model
    return {
        "model": {"name": shown_text(model.name), "kind": shown_text(model.kind), "parameters": model.parameters},
        "scale": 10**DECIMALS,
        "views": [_view_data(view, blobs) for view in report.views],
        "blobs": list(blobs),  # in the order of their numbers
    }


def _view_data(view: AttentionView, blobs: dict[str, int]) -> dict[str, Any]:
    layers = []
    for layer in view.layers:
        whole = np.clip(np.round(layer.weights * 10**DECIMALS), 0, 65535).astype("<u2")
        blob = base64.b64encode(whole.tobytes()).decode("ascii")
        layers.append(
            {
                "name": shown_text(layer.name),
                "kind": layer.kind,
                "queries": layer.queries,
                "keys": layer.keys,
                "shape": list(layer.weights.shape),
                "blob": blobs.setdefault(blob, len(blobs)),
                "information": [round(float(bits), 3) for bits in layer.information()],
            }
        )
    return {
        "source": shown_text(view.source),
        "text": shown_text(view.text),
        "score": round(float(view.score), 4) if np.isfinite(view.score) else None,
        "source_tokens": [shown(token) for token in view.source_tokens],
        "target_tokens": [shown(token) for token in view.target_tokens],
        "layers": layers,
        "writing": _writing_data(view.writing) if view.writing else None,
    }


def _writing_data(writing: WritingView) -> dict[str, Any]:
    return {
        "fertility": None if writing.fertility is None else [int(number) for number in writing.fertility],
        "start": [shown(token) for token in writing.start],
        "passes": [
            {
                "tokens": [shown(token) for token in each.tokens],
                "certain": [round(float(share), 3) for share in each.certain],
                "fresh": [bool(new) for new in each.fresh],
            }
            for each in writing.passes
        ],
    }


def render_page(report: AttentionReport) -> str:
    """The whole page as text."""
    script = "\n".join(read_resource(name) for name in SCRIPTS)
    first = report.views[0]
    page = Template(read_resource("page.html")).substitute(
        policy=html.escape(content_policy(script)),
        title=html.escape(shown_text(f"{first.source[:60]} → {first.text[:60]}")),
        style=read_resource("page.css"),
        data=escape_json(page_data(report)),
        script=script,
    )
    if len(page) > SIZE_LIMIT:
        raise ConfigError(
            f"the page would have {len(page) / 1e6:.0f} MB (limit {SIZE_LIMIT / 1e6:.0f} MB): "
            "ask for fewer hypotheses or a shorter text, or write .json, which has no limit"
        )
    return page


def write_page(path: Path, report: AttentionReport) -> None:
    """Write the page as one HTML file."""
    path.write_text(render_page(report), encoding="utf-8", newline="\n")


def write_json(path: Path, report: AttentionReport) -> None:
    """Write the report as JSON, to be read back by `AttentionReport.from_dict`."""
    path.write_text(json.dumps(report.to_dict(), allow_nan=False) + "\n", encoding="utf-8", newline="\n")


def render_frame(report: AttentionReport) -> str:
    """The page inside a frame of its own, for a notebook cell."""
    return (
        f'<iframe sandbox="allow-scripts" style="width:100%;height:{FRAME_HEIGHT}px;border:0" '
        f'title="attention" srcdoc="{html.escape(render_page(report))}"></iframe>'
    )
