"""`regard export`: a model for the fast engine, checked on real sentences against torch."""

import argparse
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.commands.options import positive
from regard.errors import ConfigError

if TYPE_CHECKING:
    from regard.predict import Predictor

COMMON = 200  # target tokens any source may become
EPILOGUE = """\
examples:
  regard export model --to ctranslate2
  regard export model --to ctranslate2 --quantization int8
  regard export model --to ctranslate2 --check test.en
  regard export model --to ctranslate2 --shortlist train.en train.de      less work in the output layer

The export is written into the model directory; `regard translate` then takes it by itself.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument("model", metavar="MODEL", help="model or run directory")
    parser.add_argument("--to", required=True, choices=["ctranslate2"], help="the engine it is for")
    parser.add_argument(
        "--quantization",
        choices=["float32", "float16", "int16", "int8"],
        default="float32",
        help="how weights are stored (default: float32)",
    )
    parser.add_argument(
        "--shortlist",
        nargs="+",
        metavar="FILE",
        help="pairs from which is learned what a source token may become: other tokens are never written",
    )
    parser.add_argument(
        "--shortlist-size", type=positive, default=50, metavar="N", help="target tokens for each source token"
    )
    parser.add_argument(
        "--check", metavar="FILE", help="source lines to compare both engines on (default: the run's validation pairs)"
    )
    parser.add_argument(
        "--check-lines", type=positive, default=500, metavar="N", help="at most so many of them (default: 500)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Export, check, and tell how far both engines agree."""
    from regard.directory import read_directory
    from regard.engine.export import check_exportable, write_export
    from regard.predict import load

    directory, config = read_directory(arguments.model)
    check_exportable(config)
    lines = check_lines(directory, arguments)
    torch = load(directory)

    def check(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
        return compare(torch, with_export(torch, folder, facts), lines)

    shortlist = learn_shortlist(torch, arguments) if arguments.shortlist else []
    parity = write_export(directory, config, torch.search, arguments.quantization, check, shortlist)
    for method, row in parity["methods"].items():
        print(
            f"{method}: {row['same']} of {parity['sentences']} outputs as by torch ({row['share']:.1%}), "
            f"largest difference of a score {row['score_difference']:.2g}"
        )
    if (
        arguments.quantization == "float32"
        and not shortlist
        and any(row["share"] < 0.99 for row in parity["methods"].values())
    ):
        print("warning: less than 99 % of the outputs are those of torch", file=sys.stderr)
    print(f"written: {directory / arguments.to}", file=sys.stderr)


def learn_shortlist(torch: "Predictor", arguments: argparse.Namespace) -> list[str]:
    """What source tokens may become, by aligning the given pairs in the tokens of the model."""
    from regard.align.aligner import align_bitext
    from regard.align.bitext import Bitext
    from regard.align.shortlist import make_shortlist
    from regard.data.text import read_pairs
    from regard.errors import DataError
    from regard.recipe import locate_corpus

    bitext = Bitext.read(torch.task.rows(read_pairs(locate_corpus(arguments.shortlist) or "")), torch.longest)
    if not bitext.usable.any():
        raise DataError(f"{arguments.shortlist[0]}: no pairs to learn a shortlist from")
    links = align_bitext(bitext, say=lambda text: print(text, file=sys.stderr, flush=True))
    shortlist = make_shortlist(bitext, links, arguments.shortlist_size, COMMON)
    return list(shortlist.lines())


def check_lines(directory: Path, arguments: argparse.Namespace) -> list[str]:
    """Real source lines: those given, or those the run validated on."""
    from regard.data.text import read_lines, read_pairs

    kept = corpus_of(directory.parent) / "valid.jsonl"
    if arguments.check:
        found, lines = arguments.check, read_lines(arguments.check)
    elif kept.is_file():
        found, lines = kept, (pair.source for pair in read_pairs(str(kept), decode="replace"))
    else:
        raise ConfigError(f"{directory}: no validation pairs beside it; give source lines to check with --check FILE")
    real = list(islice((line for line in lines if line.strip()), arguments.check_lines))
    if not real:
        raise ConfigError(f"{found}: no lines to check the export with")
    return real


def corpus_of(run: Path) -> Path:
    """The prepared corpus a run has made, or the one it was given."""
    from regard.config import read_toml

    options = run / "run.toml"
    given = read_toml(options).get("data", {}).get("prepared") if options.is_file() else None
    return Path(given) if given else run / "data"


def with_export(torch: "Predictor", folder: Path, facts: dict[str, Any]) -> "Predictor":
    """The same model with the engine that was just exported."""
    from regard.engine.ctranslate2 import CTranslate2Engine
    from regard.predict import Predictor

    return Predictor(torch.task, CTranslate2Engine(folder, facts), torch.search, torch.longest, torch.about)


def compare(torch: "Predictor", fast: "Predictor", lines: Sequence[str]) -> dict[str, Any]:
    """How many outputs are the same, and how far their scores are apart."""
    rows = {}
    for method in ("greedy", "beam"):
        options: dict[str, Any] = {"method": method, "nbest": 1, "stop": "count", "minimum_length": 0, "no_repeat": 0}
        pairs = list(zip(torch.translate(lines, **options), fast.translate(lines, **options), strict=True))
        same = [(one, other) for one, other in pairs if one.ids == other.ids]
        rows[f"beam {torch.search.beam}" if method == "beam" else method] = {
            "same": len(same),
            "share": len(same) / len(pairs),
            "score_difference": max((abs(one.score - other.score) for one, other in same), default=0.0),
            "differing": [
                {"torch": one.text, "ctranslate2": other.text} for one, other in pairs if one.ids != other.ids
            ][:5],
        }
    return {"sentences": len(lines), "methods": rows}
