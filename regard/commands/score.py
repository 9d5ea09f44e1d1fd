"""`regard score`: the log-probability a model gives to given pairs, a line for each."""

import argparse
import json
import math
import sys
from itertools import islice

from regard.commands.options import add_device, set_threads

EPILOGUE = """\
examples:
  regard score model test.tsv
  regard score model test.en test.de --jsonl
  paste source.txt target.txt | regard score model

Prints the mean log-probability per token (EOS counted) and the sum, a TAB between; the perplexity of all goes
to stderr.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument("model", metavar="MODEL", help="model or run directory")
    parser.add_argument(
        "pairs", nargs="*", metavar="FILE", help="a file of pairs or two aligned ones (none: TSV on stdin)"
    )
    parser.add_argument(
        "-m", "--more", action="append", default=[], metavar="MODEL", help="further models: an ensemble"
    )
    parser.add_argument("--jsonl", action="store_true", help="JSON with the tokens")
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Score all pairs, in blocks."""
    set_threads(arguments)
    from regard.data.text import read_pairs, write_line
    from regard.metrics import perplexity
    from regard.predict import load
    from regard.recipe import locate_corpus

    corpus = locate_corpus(arguments.pairs) or "-"
    predictor = load(arguments.model, *arguments.more, device=arguments.device)
    pairs = read_pairs(corpus, "auto" if arguments.pairs else "tsv")
    total, tokens, done = 0.0, 0, 0
    while block := list(islice(pairs, 1000)):
        sources, targets = zip(*block, strict=True)
        found, done = predictor.score(sources, targets, first=done), done + len(block)
        for hypothesis in found:
            total, tokens = total + hypothesis.log_probability, tokens + len(hypothesis.ids) + 1
            known = math.isfinite(hypothesis.log_probability)  # else the model cannot write this
            record = {
                "score": hypothesis.score if known else None,
                "log_probability": hypothesis.log_probability if known else None,
                "tokens": hypothesis.tokens,
            }
            plain = f"{hypothesis.score:.6f}\t{hypothesis.log_probability:.6f}"
            write_line(sys.stdout.buffer, json.dumps(record, ensure_ascii=False) if arguments.jsonl else plain)
    if tokens:
        print(perplexity(total, tokens), file=sys.stderr)
