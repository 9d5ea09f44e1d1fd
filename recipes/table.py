"""The README's table of results and the figures of docs/lineage.md, made from the `result.json` beside each recipe.

python -m recipes.table            write them
python -m recipes.table --check    fail if the pages and the results disagree
"""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.table import keep, markdown

FOLDER = Path(__file__).parent
BEGIN, END = "<!-- results: written by `make results-table` -->", "<!-- end of results -->"
LANGUAGES = ["arm", "bul", "fre", "geo", "gre", "hin", "hun", "ice", "kor", "lit"]

# result, or those whose mean is told → task, which score, published figure
ABOUT: dict[str, tuple[str, str, str]] = {
    "multi30k/transformer": ("Multi30k, English to German", "tokenised_bleu", "41.02 (Wu et al. 2021)"),
    "multi30k/fast": ("the same in less time", "tokenised_bleu", "–"),
    "multi30k/self-taught": ("the same, going on with what it says itself", "tokenised_bleu", "–"),
    "multi30k/student": ("the same, smaller, distilled from fast", "tokenised_bleu", "–"),
    "multi30k/rnn": ("the same, RNN with additive attention", "tokenised_bleu", "–"),
    "zero/multi30k": ("the same, raw text, no configuration", "tokenised_bleu", "–"),
    "lineage/1-rnn": ("Multi30k, German to English: RNN with a fixed context", "tokenised_bleu", "–"),
    "lineage/2-additive": ("the same, additive attention", "tokenised_bleu", "28.11 (Trevett, words, 10 epochs)"),
    "lineage/3-dot": ("the same, Luong's dot", "tokenised_bleu", "–"),
    "lineage/4-general": ("the same, general", "tokenised_bleu", "–"),
    "lineage/5-concat": ("the same, concat", "tokenised_bleu", "–"),
    "lineage/6-convs2s": ("the same, ConvS2S", "tokenised_bleu", "34.14 (Trevett, words, 10 epochs)"),
    "lineage/7-bytenet": ("the same, ByteNet", "tokenised_bleu", "–"),
    "lineage/8-transformer": ("the same, Transformer", "tokenised_bleu", "36.52 (Trevett, words, 10 epochs)"),
    "lineage/9-restricted": ("the same, neighbourhood 8", "tokenised_bleu", "–"),
    "ladder/1-attention": ("the same, attention alone", "tokenised_bleu", "–"),
    "ladder/2-positions": ("the same with positions", "tokenised_bleu", "–"),
    "ladder/3-self-attention": ("the same with self-attention", "tokenised_bleu", "–"),
    "ladder/4-heads": ("the same with several heads and feed-forward", "tokenised_bleu", "–"),
    "ladder/5-transformer": ("the same with residuals, layer norm and depth", "tokenised_bleu", "–"),
    "ladder/reverse/2-positions": ("letters backwards: attention and positions", "exact_match", "–"),
    "ladder/reverse/3-self-attention": ("the same with self-attention", "exact_match", "–"),
    "ladder/reverse/4-heads": ("the same with several heads and feed-forward", "exact_match", "–"),
    "parallel/student": ("Multi30k, English to German, one decoder layer, taught", "tokenised_bleu", "–"),
    "parallel/nat-raw": ("all words at once: fertilities, people's translations", "tokenised_bleu", "–"),
    "parallel/nat": ("the same, the teacher's translations", "tokenised_bleu", "–"),
    "parallel/tuned": ("the same, fine-tuned", "tokenised_bleu", "–"),
    "parallel/ctc": ("CTC with glancing, the teacher's translations", "tokenised_bleu", "–"),
    "parallel/maskpredict": ("mask-predict, ten passes, the teacher's translations", "tokenised_bleu", "–"),
    "scan/simple": ("SCAN, simple split", "exact_match", "99.8 % (Lake & Baroni 2018)"),
    "zero/scan": ("the same, no configuration", "exact_match", "–"),
    "scan/length": ("SCAN, longer than in training (cut-off 26)", "exact_match", "100 % (Csordás et al. 2021)"),
    "scan/length-absolute": ("the same, absolute positions", "exact_match", "fails (Csordás et al. 2021)"),
    "scan/jump-rnn": ("SCAN, new verb, LSTM with attention", "exact_match", "0.08 % (Lake & Baroni 2018)"),
    "scan/jump-convs2s": ("the same, ConvS2S", "exact_match", "69.2 % (Dessì & Baroni 2019)"),
    "scan/jump-transformer": ("the same, Transformer", "exact_match", "–"),
    "g2p/fre": ("SIGMORPHON 2020, French spelling to sound: word error", "word_error", "–"),
    "zero/g2p-fre": ("the same, no configuration", "word_error", "–"),
    "zero/g2p-*": (
        "ten languages, no configuration: mean word error",
        "word_error",
        "18.5 %, swept (the task's baseline)",
    ),
}


def read(name: str) -> dict[str, Any] | None:
    """A recorded result."""
    path = FOLDER / f"{name}.result" / "result.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def row(name: str) -> list[str] | None:
    """One line of the table, if everything it needs is recorded."""
    task, score, published = ABOUT[name]
    names = [name.replace("*", language) for language in LANGUAGES] if "*" in name else [name, *others(name)]
    found = [result for each in names if (result := read(each))]
    if len(found) < len(names):
        return None
    values = [result["scores"][score]["value"] for result in found]
    interval = found[0]["scores"][score].get("interval") if len(found) == 1 else None
    minutes = sum(trained_seconds(result) for result in found) / 60
    threads = " / ".join(sorted({str(result["model"]["training"]["threads"]) for result in found}))
    shown = shape(score, statistics.mean(values))
    if interval:
        shown += f" ({' … '.join(shape(score, end) for end in interval)})"
    elif len(found) > 1 and "*" not in name:
        shown = f"mean of {len(found)} runs {shown}: {', '.join(shape(score, value) for value in values)}"
    recipe = f"[{name}](recipes/{name}.toml)" if (FOLDER / f"{name}.toml").exists() else f"`{name}`"
    return [recipe, task, shown, published, f"{minutes:,.0f} min, {threads} thread{'s' if threads != '1' else ''}"]


def others(name: str) -> list[str]:
    """Further runs of a recipe: NAME.seed-2.result and so on."""
    folders = sorted(FOLDER.glob(f"{name}.seed-*.result"))
    return [path.relative_to(FOLDER).as_posix().removesuffix(".result") for path in folders]


def trained_seconds(result: dict[str, Any]) -> float:
    """How long the training took, over all its sittings."""
    training = result["model"]["training"]
    return training.get("seconds") or training["training_seconds"]


def shape(score: str, value: float) -> str:
    """BLEU as it is, a rate in per cent."""
    return f"{value:.2f}" if score.endswith("bleu") else f"{100 * value:.2f} %"


def fill(text: str) -> str:
    """A page with every `<!-- result NAME -->…<!-- end -->` as it is recorded, or a dash."""
    return re.sub(
        r"(<!-- result ([\w/-]+) -->).*?(<!-- end -->)", lambda found: found[1] + figure(found[2]) + found[3], text
    )


def figure(name: str) -> str:
    """The main score of a recorded result, of several runs their mean."""
    found = [result for each in [name, *others(name)] if (result := read(each))]
    if not found:
        return "–"
    known = ABOUT[name][1] if name in ABOUT else ""
    score = next(each for each in (known, "tokenised_bleu", "exact_match") if each in found[0]["scores"])
    named = {"word_error": " word error", "exact_match": " right"}.get(score, "")
    runs = f" (mean of {len(found)} runs)" if len(found) > 1 else ""
    return shape(score, statistics.mean(result["scores"][score]["value"] for result in found)) + named + runs


def render() -> str:
    """The table."""
    rows = [line for name in ABOUT if (line := row(name))]
    head = ["result", "task", "reached (95 %)", "published", "training"]
    return markdown(head, rows) if rows else "No result is recorded yet."


def main(words: list[str]) -> None:
    """Write the table into README.md, or check it."""
    check, lineage = "--check" in words, FOLDER.parent / "docs" / "lineage.md"
    keep(FOLDER.parent / "README.md", render(), (BEGIN, END), check)
    text = lineage.read_text(encoding="utf-8")
    if not check:
        lineage.write_text(fill(text), encoding="utf-8")
    elif fill(text) != text:
        sys.exit(f"{lineage.name} and the results of the recipes disagree; run: make results-table")


if __name__ == "__main__":
    main(sys.argv[1:])
