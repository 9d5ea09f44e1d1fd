"""The tables of a comparison: figures of every row, what is fair, each model's own settings, scores by length."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from regard.study.fairness import TOLERANCE
from regard.study.history import LOSSES, is_higher_better, is_rate
from regard.view.run import duration
from regard.view.tables import Table

NOTHING = "–"
SIGNIFICANT = 0.05
MEASURES = {
    "bleu": "BLEU", "tokenised_bleu": "tokenised BLEU", "lower_bleu": "BLEU, lower case", "chrf": "chrF",
    "lower_chrf": "chrF, lower case", "exact_match": "exact match", "word_error": "word error", "wer": "WER",
    "cer": "CER",
}  # fmt: skip
Figures = Mapping[str, Any]
Cell = Callable[[Figures], str]


def main_table(comparison: Figures) -> Table:
    """One line for each row: size, training, quality, speed, memory."""
    columns = dict(_columns(comparison))
    rows = []
    for row in comparison["rows"]:
        failed = row["failure"] is not None
        cells = [NOTHING if failed else tell(row) for tell in columns.values()]
        rows.append([row["name"] + (" (failed)" if failed else ""), *cells])
    return Table(["model", *columns], rows)


def _columns(comparison: Figures) -> Iterator[tuple[str, Cell]]:
    sizes, reach, first = comparison["fairness"]["sizes"], comparison["reach"], comparison["first"]
    yield "parameters", lambda row: f"{row['parameters']:,}{_share(sizes.get(row['name']))}"
    if has_rates(comparison):
        yield "training, tokens/s", lambda row: _number(row["training"].get("target_tokens_per_second"), "{:,.0f}")
    if reach:
        yield f"time to {describe_reach(reach)}", lambda row: _reached(row)
    main, *others = comparison["metrics"] or [""]
    sampled = any("interval" in row["scores"][main] for row in sound_rows(comparison))
    if main:
        yield f"{measure_name(main)}{' (95 %)' if sampled else ''}", lambda row: _score(row["scores"][main])
    if any(row["against_first"] for row in sound_rows(comparison)):
        yield f"against {first}", lambda row: _against(row, main, first)
    for name in others:
        yield measure_name(name), lambda row, name=name: format_score(row["scores"][name], row["scores"][name]["value"])
    yield "perplexity", lambda row: format_score(row["scores"]["perplexity"], row["scores"]["perplexity"]["value"])
    if any(row.get("speed") for row in comparison["rows"]):
        yield "latency, greedy, ms", lambda row: _median(row, "greedy_latency_seconds", 1000)
        yield "latency, ms", lambda row: _median(row, "latency_seconds", 1000)
        yield "sentences/s", lambda row: _median(row, "sentences_per_second")
        yield "peak memory, MB", lambda row: _number((row["speed"] or {}).get("peak_bytes"), "{:,.0f}", 1e-6)


def sound_rows(comparison: Figures) -> list[Figures]:
    """The rows that did not fail."""
    return [row for row in comparison["rows"] if row["failure"] is None]


def has_rates(comparison: Figures) -> bool:
    """Whether the log of any row is there."""
    return any(row["training"].get("target_tokens_per_second") for row in sound_rows(comparison))


def measure_name(name: str) -> str:
    """A metric as people call it."""
    return MEASURES.get(name, name)


def describe_reach(reach: Figures) -> str:
    """The validation score to be reached, in words."""
    sign = "≥" if is_higher_better(reach["measure"]) else "≤"
    return f"validation {measure_name(reach['measure'])} {sign} {_measured(reach['measure'], reach['value'])}"


def _measured(measure: str, value: float) -> str:
    if is_rate(measure):
        return f"{100 * value:.2f} %"
    return f"{value:.3f}" if measure in LOSSES else f"{value:.2f}"


def format_score(score: Figures, value: float | None) -> str:
    """A value of a score in its unit: per cent where the metric is a rate."""
    if value is None:
        return "∞"
    return f"{100 * value:.2f} %" if "%" in score["text"] else f"{value:.2f}"


def _score(score: Figures) -> str:
    text = format_score(score, score["value"])
    if "interval" not in score:
        return text
    low, high = (format_score(score, value).removesuffix(" %") for value in score["interval"])
    return f"{text} ({low} … {high})"


def _against(row: Figures, main: str, first: str | None) -> str:
    if row["name"] == first or main not in row["against_first"]:
        return NOTHING
    found = row["against_first"][main]
    scale = 100 if "%" in row["scores"][main]["text"] else 1
    mark = "" if found["p_value"] < SIGNIFICANT else ", not significant"
    return f"{scale * found['difference']:+.2f}, p = {found['p_value']:.3f}{mark}"


def _share(share: float | None) -> str:
    return "" if share is None else f" ({100 * share:+.1f} %)"


def _reached(row: Figures) -> str:
    if row["reached"] is None:
        return "not reached" if "curve" in row["training"] else NOTHING
    return duration(row["reached"]["seconds"])


def _median(row: Figures, name: str, scale: float = 1) -> str:
    if not row["speed"] or name not in row["speed"]:
        return NOTHING
    value = scale * row["speed"][name]["median"]
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _number(value: float | None, form: str, scale: float = 1) -> str:
    return NOTHING if value is None else form.format(scale * value)


def length_table(comparison: Figures) -> Table | None:
    """The main score of every row for each range of source lengths."""
    rows = sound_rows(comparison)
    if not rows:
        return None
    main = comparison["metrics"][0]
    ranges = [_range(each["first"], each["last"]) for each in rows[0]["by_length"]]
    counts = [f"{each['count']:,}" for each in rows[0]["by_length"]]
    cells = [
        [row["name"], *(format_score(row["scores"][main], each["value"]) for each in row["by_length"])] for row in rows
    ]
    return Table([f"source {comparison['length_unit']}", *ranges], [["lines", *counts], *cells])


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} – {last}"


def settings_table(comparison: Figures) -> Table | None:
    """Each model's own settings."""
    rows = sound_rows(comparison)
    if not rows:
        return None
    heads = list(rows[0]["settings"])
    cells = [[row["name"], *(row["settings"][head] or NOTHING for head in heads)] for row in rows]
    return Table(["model", *(head if head != "model" else "kind and sizes" for head in heads)], cells,
                 frozenset(range(1, len(heads) + 1)))  # fmt: skip


def fairness_lines(comparison: Figures) -> list[tuple[str, str, bool]]:
    """What was asked of all rows, the answer in words, and whether it is a difference."""
    lines = []
    for check in comparison["fairness"]["checks"]:
        known = {name: value for name, value in check["values"].items() if value is not None}
        unknown = [name for name, value in check["values"].items() if value is None]
        if not known:
            answer = "not known"
        elif check["same"]:
            answer = f"the same: {next(iter(known.values()))}"
        else:
            answer = f"different: {grouped(known)}"
        if unknown and known:
            answer += f" (not known of {', '.join(unknown)})"
        lines.append((check["what"], answer, not check["same"]))
    sizes = comparison["fairness"]["sizes"]
    limit = f"within ± {100 * TOLERANCE:.0f} % of {comparison['first']}"
    if len(sound_rows(comparison)) < 2:
        return lines
    if sizes:
        far = ", ".join(f"{name}{_share(share)}" for name, share in sizes.items())
        lines.append(("parameters", f"not all {limit}: {far}", True))
    else:
        lines.append(("parameters", f"all {limit}", False))
    return lines


def grouped(values: Mapping[str, str]) -> str:
    """Rows with equal values named together."""
    names: dict[str, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return "; ".join(f"{value} – {', '.join(group)}" for value, group in names.items())


def verdict(comparison: Figures) -> str:
    """Whether it is fair, in one sentence."""
    if len(sound_rows(comparison)) < 2:
        return "Nothing to compare: fewer than two rows have figures."
    differences = [what for what, _, differs in fairness_lines(comparison) if differs]
    checks = comparison["fairness"]["checks"]
    unknown = [check["what"] for check in checks if None in check["values"].values()]
    if differences:
        found = f"Alike in everything that must be the same but: {', '.join(differences)}."
    elif unknown:
        found = "Nothing is known to differ that must be the same."
    else:
        found = "Fair: everything that must be the same is the same."
    return found + (f" Not known of every row: {', '.join(unknown)}." if unknown else "")


def notes(comparison: Figures) -> list[str]:
    """What the columns mean, and what is special about single rows."""
    return [*_column_notes(comparison), *_row_notes(comparison)]


def _column_notes(comparison: Figures) -> Iterator[str]:
    test, reach = comparison["test"], comparison["reach"]
    where = f"Machine: {comparison['machine']}, threads: {comparison['threads']}"
    yield f"Test: {' and '.join(test['files'])}, {test['lines']:,} lines. {where}."
    sound = sound_rows(comparison)
    if sound:
        main = comparison["metrics"][0]
        score = sound[0]["scores"][main]
        signature = f" [{score['signature']}]" if score["signature"] else ""
        sampled = "; in brackets the middle 95 % of bootstrap samples, p by paired bootstrap"
        yield f"Score: {score['label']}{signature}{sampled if 'interval' in score else ''}."
    if has_rates(comparison):
        yield "Training rate: target tokens a second, the median over the log of the run, without validations."
    if reach:
        by = f"the best of {reach['weakest']}, the weakest row" if reach["weakest"] else "as was asked"
        yield (
            f"Time to {describe_reach(reach)} ({by}): training time at the first such validation, without validations."
        )
    if timed := [row["speed"] for row in sound if row["speed"]]:
        yield from _speed_notes(timed)


def _speed_notes(timed: Sequence[Figures]) -> Iterator[str]:
    spread = max(figure["spread"] for speed in timed for figure in speed.values() if isinstance(figure, Mapping))
    rounds = max(len(speed["rounds"]) for speed in timed)
    yield (
        "Latency: the median of sentences decoded alone, from raw text to finished text, greedily and by the row's own "
        "search. Throughput: the test in large batches by the row's own search."
    )
    yield (
        f"Speed: medians of rounds in which the rows take turns (here {rounds}); largest difference between two rounds "
        f"of a row {100 * spread:.0f} %. Peak memory: of a whole process that loads the model and decodes the test in "
        "large batches."
    )


def _row_notes(comparison: Figures) -> Iterator[str]:
    for row in comparison["rows"]:
        if row["failure"] is not None:
            yield f"{row['name']} failed: {row['failure']}"
        elif row["notes"]:
            told = ", ".join(f"{number:,} {what}" for what, number in row["notes"].items())
            yield f"{row['name']}: of its outputs or inputs {told}."


def to_text(comparison: Figures) -> str:
    """What is printed: the table, its notes, what is fair."""
    lines = [main_table(comparison).to_text(), "", verdict(comparison)]
    lines += [f"  {what}: {answer}" for what, answer, _ in fairness_lines(comparison)]
    return "\n".join([*lines, "", *notes(comparison)])


def to_markdown(comparison: Figures, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """The same as a Markdown page, with the settings, the scores by length and the pictures there are."""
    parts = ["# Comparison", main_table(comparison).to_markdown()]
    parts.append("\n".join(f"- {note}" for note in notes(comparison)))
    parts += ["## Fair?", verdict(comparison)]
    parts.append("\n".join(f"- {what}: {answer}" for what, answer, _ in fairness_lines(comparison)))
    if table := settings_table(comparison):
        parts += ["## Each model's own settings", table.to_markdown()]
    if table := length_table(comparison):
        parts += [f"## {measure_name(comparison['metrics'][0])} by source length", table.to_markdown()]
    parts += [f"![{title}]({name})" for title, name in pictures]
    return "\n\n".join(parts) + "\n"
