"""`regard prepare`: tokenizers and memory-mapped stores from files of pairs, and what is odd about them."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from regard.commands.train import add_corpus, make_options

EPILOGUE = """\
examples:
  regard prepare pairs.tsv -o corpus               then:  regard train --prepared corpus -o model
  regard prepare recipe.toml -o corpus             then:  regard train recipe.toml --prepared corpus -o model
  regard prepare train.tsv --test test.tsv -o corpus       does the test occur in training?
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    add_corpus(parser)
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder of the prepared corpus")
    parser.add_argument("--test", nargs="+", metavar="FILE", help="test pairs, to look for overlap with training")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the split into training and validation")


def run(arguments: argparse.Namespace) -> None:
    """Prepare, and print the report."""
    from regard.config import dump_toml
    from regard.prepare import prepare, start_task

    options = make_options(arguments)
    directory = Path(arguments.output)
    prepared = prepare(options, directory, lambda text: print(text, file=sys.stderr), start_task(options))
    (directory / "run.toml").write_text(dump_toml(options), encoding="utf-8")
    report = json.loads((directory / "audit.json").read_text(encoding="utf-8"))
    if arguments.json:
        print(json.dumps({"corpora": report, "stores": prepared.facts}, ensure_ascii=False, indent=1))
    else:
        print_report(report, prepared.facts)


KINDS = {
    "empty_source": "empty source",
    "empty_target": "empty target",
    "identical": "source = target",
    "duplicates": "seen before",
    "contradicting": "same source, other target",
    "lopsided": "one side 9 × longer",
    "too_long": "too long",
}


def print_report(report: dict[str, Any], facts: dict[str, Any]) -> None:
    """The report as a table, with the first lines of each kind of problem."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="what is odd about the data", title_justify="left")
    table.add_column("")
    for name in report:
        table.add_column(name, justify="right")
    table.add_column("first lines of train", style="dim")
    table.add_row("pairs", *(f"{corpus['pairs']:,}" for corpus in report.values()))
    for kind, label in KINDS.items():
        lines = ", ".join(map(str, report["train"]["examples"].get(kind, ())[:5]))
        table.add_row(label, *(f"{corpus[kind]:,}" for corpus in report.values()), lines)
    seen = [corpus.get("seen_in_training", {}) for corpus in report.values()]
    for key, label in (("seen_pairs", "pair occurs in train"), ("seen_sources", "source occurs in train")):
        table.add_row(label, *(f"{each[key]:,}" if each else "" for each in seen))
    for side in ("source", "target"):
        lengths = [corpus[f"{side}_length"] for corpus in report.values()]
        table.add_row(f"{side} words, mean", *(f"{length['mean']:.1f}" for length in lengths))
        table.add_row(f"{side} words, longest", *(f"{length['longest']:,}" for length in lengths))
    console = Console()
    console.print(table)
    for name in ("train", "valid"):
        part = facts[name]
        console.print(
            f"{name}: {part['pairs']:,} pairs stored, {part['source_tokens']:,} + {part['target_tokens']:,} tokens"
            f" (left out: {part['empty']:,} empty, {part['too_long']:,} too long)",
            highlight=False,
        )
