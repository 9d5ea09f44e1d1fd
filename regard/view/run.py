"""The run report: curves, samples over time and settings of one training, as one HTML file without any script.

It is made from what the run wrote anyway: the records of metrics.jsonl, the resolved TOML and a summary. It
shares the attention page's style sheet. All text is escaped.
"""

import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.view.curves import Line, Points, draw_chart, number
from regard.view.report import content_policy, read_resource
from regard.view.tokens import escaped, shown_text

ROWS = 12  # most outputs shown of one sample
TRAIN_CURVES = (
    ("rate", "Learning rate"),
    ("gradient_norm", "Gradient norm"),
    ("tokens_per_second", "Tokens per second"),
)
NAMES = {"bleu": "BLEU", "chrf": "chrF", "wer": "WER", "cer": "CER", "exact_match": "Exact match"}


def write_run_report(path: str | Path, run: Mapping[str, Any]) -> None:
    """Write the report of a run given as {"metrics": [records], "settings": TOML text, "summary": {…}, "title": …}."""
    Path(path).write_text(render_run(run), encoding="utf-8", errors="replace", newline="\n")


def render_run(run: Mapping[str, Any]) -> str:
    """The report as text; every part may be missing."""
    records = [record for record in run.get("metrics") or () if isinstance(record, Mapping)]
    train = [record for record in records if record.get("kind") == "train"]
    validation = [record for record in records if record.get("kind") == "validation"]
    title = escaped(run.get("title") or "Training run")
    parts = [
        f"<h1>{title}</h1>",
        _facts(run.get("summary") or {}),
        _section("Curves", _charts(train, validation), "charts", "Nothing was logged yet."),
        _section("Samples over time", _samples(validation), "", ""),
        _settings(str(run.get("settings") or "")),
    ]
    return render_document(title, "run", "run", parts)


def render_document(title: str, style: str, brand: str, parts: Sequence[str]) -> str:
    """A page without any script: its head, its masthead, and its parts, which are HTML already, as is the title."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(content_policy())}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="generator" content="regard">\n<title>{title}</title>\n'
        f"<style>\n{read_resource('page.css')}</style>\n</head>\n"
        f'<body class="{style}">\n<header class="masthead"><p class="brand">regard <span>{brand}</span></p></header>\n'
        f"<main>\n{chr(10).join(part for part in parts if part)}\n</main>\n</body>\n</html>\n"
    )


def render_list(lines: Sequence[str], style: str = "notes") -> str:
    """Lines of text, one below the other."""
    return f'<ul class="{style}">{"".join(f"<li>{escaped(line)}</li>" for line in lines)}</ul>'


def _section(title: str, content: str, style: str, otherwise: str) -> str:
    if content:
        return f'<section><h2>{title}</h2><div class="{style}">{content}</div></section>'
    return f'<section><h2>{title}</h2><p class="help">{otherwise}</p></section>' if otherwise else ""


def _facts(summary: Mapping[str, Any]) -> str:
    facts = [
        f"<div><dt>{escaped(_name(key))}</dt><dd>{escaped(_value(key, value))}</dd></div>"
        for key, value in _flatten(summary)
    ]
    return f'<dl class="facts">{"".join(facts)}</dl>' if facts else ""


def _flatten(summary: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Nested values one level up: {"scores": {"bleu": 3}} is told as bleu."""
    flat: list[tuple[str, Any]] = []
    for key, value in summary.items():
        if isinstance(value, Mapping):
            flat.extend(_flatten(value))
        elif value is not None:
            flat.append((str(key), value))
    return flat


def _name(key: str) -> str:
    plain = key.replace("_", " ").strip()
    return NAMES.get(key, plain[:1].upper() + plain[1:])


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if key in ("time", "seconds", "duration", "wall_time"):
            return duration(value)
        return number(value) if math.isfinite(value) else str(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def duration(seconds: float) -> str:
    """Seconds as 42 s, 3 min 20 s, 2 h 05 min."""
    if not math.isfinite(seconds):
        return str(seconds)
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _charts(train: Sequence[Mapping[str, Any]], validation: Sequence[Mapping[str, Any]]) -> str:
    losses = [Line("training", _points(train, "loss")), Line("validation", _points(validation, "loss"), "second")]
    charts = [draw_chart("Loss", losses)]
    for name in dict.fromkeys(name for record in validation for name in _metrics(record)):
        points = _points([{**_metrics(record), "step": record.get("step")} for record in validation], name)
        charts.append(draw_chart(shown_text(_name(str(name))), [Line(shown_text(str(name)), points, "second")]))
    for key, title in TRAIN_CURVES:
        charts.append(draw_chart(title, [Line(key.replace("_", " "), _points(train, key))]))
    return "".join(charts)


def _metrics(record: Mapping[str, Any]) -> Mapping[str, Any]:
    metrics = record.get("metrics")
    return metrics if isinstance(metrics, Mapping) else {}


def _points(records: Sequence[Mapping[str, Any]], key: str) -> Points:
    pairs = [(record.get("step"), record.get(key)) for record in records]
    return [(x, y) for x, y in pairs if _is_number(x) and _is_number(y)]  # type: ignore[misc]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _samples(validation: Sequence[Mapping[str, Any]]) -> str:
    """Each sample sentence once, with its outputs as training went on."""
    outputs: dict[tuple[str, str], list[tuple[Any, str]]] = {}
    for record in validation:
        for sample in record.get("samples") or ():
            if isinstance(sample, Mapping):
                key = (str(sample.get("source", "")), str(sample.get("reference", "")))
                outputs.setdefault(key, []).append((record.get("step", ""), str(sample.get("output", ""))))
    return "".join(_sample(source, reference, history) for (source, reference), history in outputs.items())


def _sample(source: str, reference: str, history: Sequence[tuple[Any, str]]) -> str:
    rows = []
    for first, last, output in _chosen(_stretches(history)):
        style = ' class="right"' if output == reference else ""
        steps = f"step {_step(first)}" if first == last else f"steps {_step(first)} – {_step(last)}"
        rows.append(f'<tr{style}><th scope="row">{steps}</th><td dir="auto">{escaped(output) or "–"}</td></tr>')
    wanted = f'<p class="wanted" dir="auto">{escaped(reference)}</p>' if reference else ""
    return (
        f'<article class="sample"><p class="given" dir="auto">{escaped(source)}</p>{wanted}'
        f"<table>{''.join(rows)}</table></article>"
    )


def _stretches(history: Sequence[tuple[Any, str]]) -> list[tuple[Any, Any, str]]:
    """Equal outputs in a row told once: (first step, last step, output)."""
    stretches: list[tuple[Any, Any, str]] = []
    for step, output in history:
        if stretches and stretches[-1][2] == output:
            stretches[-1] = (stretches[-1][0], step, output)
        else:
            stretches.append((step, step, output))
    return stretches


def _chosen(rows: Sequence[Any]) -> list[Any]:
    if len(rows) <= ROWS:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (ROWS - 1))] for place in range(ROWS)]


def _step(step: Any) -> str:
    return number(step) if _is_number(step) else escaped(step)


def _settings(text: str) -> str:
    if not text.strip():
        return ""
    lines = "\n".join(escaped(line) for line in text.split("\n"))
    return f'<section><h2>Settings</h2><div class="settings"><pre>{lines}</pre></div></section>'
