"""How good the aligner is where the truth is known, and how far attention agrees with it; `result.json` is the record.

    python -m recipes.align.measure MODEL FILE FILE      (a model or run directory; two aligned files of its languages)

1. Made pairs whose alignment is known: the error rate of each kind of aligner, over several seeds.
2. The files, in the tokens of the model: fertilities (histogram: docs/pictures/fertility.png).
3. Their first pairs: what the model looks at most against the links of the aligner.
"""

import argparse
import json
import statistics
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from regard.align.agreement import alignment_error
from regard.align.aligner import AlignerOptions, align_bitext
from regard.align.attention import attention_links
from regard.align.bitext import Bitext
from regard.align.fertility import Histogram, make_fertilities
from regard.align.links import Gold
from regard.commands.align import draw, words
from regard.data.text import Pair, read_pairs
from regard.evaluation import hash_lines
from regard.origin import origin
from regard.predict import load
from regard.tasks.bilingual import aligned_pairs

FOLDER = Path(__file__).parent
SEEDS, MADE, LOOKED_AT = (1, 2, 3, 4), 10_000, 2_000


def made_errors(kind: str) -> list[float]:
    """Alignment error rates on made pairs, one for each seed."""
    rates = []
    for seed in SEEDS:
        pairs = aligned_pairs(MADE, seed)
        bitext = Bitext.read(words([Pair(pair.source, pair.target) for pair in pairs], False), 1000)
        gold = [Gold(frozenset(pair.links), frozenset(pair.links)) for pair in pairs]
        rates.append(alignment_error(list(align_bitext(bitext, AlignerOptions(kind=kind))), gold).value)
        print(f"{kind}, seed {seed}: alignment error {rates[-1]:.4f}", file=sys.stderr, flush=True)
    return rates


def measure(model: str, files: list[str]) -> dict[str, Any]:
    """All figures."""
    record: dict[str, Any] = {"made": {"pairs": MADE, "seeds": SEEDS, "error": {}}}
    for kind in ("ibm1", "ibm2", "hmm"):
        rates = made_errors(kind)
        record["made"]["error"][kind] = {"rates": rates, "mean": statistics.mean(rates)}
    predictor = load(model)
    pairs = list(read_pairs(files))
    bitext = Bitext.read(predictor.task.rows(pairs), 1000)
    links = align_bitext(bitext, AlignerOptions(), lambda text: print(text, file=sys.stderr, flush=True))
    histogram = Histogram.of(make_fertilities(links, bitext))
    draw(str(FOLDER.parents[1] / "docs" / "pictures" / "fertility.png"), histogram)
    counts = histogram.counts.tolist()
    record["fertility"] = {"mean": histogram.mean, "share_of_zeros": histogram.zeros, "counts": counts}
    few = Bitext.read(predictor.task.rows(pairs[:LOOKED_AT]), 1000)
    looked = list(attention_links(predictor.engine.cross_attention, few))
    sure = [Gold(frozenset(each), frozenset(each)) for each in islice(links, len(few))]
    agreement = alignment_error(looked, sure)
    record["attention"] = {"pairs": len(few), **agreement.details}
    record["data_sha256"] = hash_lines(*zip(*pairs, strict=True))
    return record


def main(arguments: list[str]) -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(prog="python -m recipes.align.measure", description="Measure the aligner.")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("files", nargs=2, metavar="FILE")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    record = measure(options.model, options.files)
    names = [Path(name).name for name in (options.model, *options.files)]
    about = origin(
        f"python -m recipes.align.measure {' '.join(names)}", 1, time.monotonic() - began, record["data_sha256"]
    )
    text = json.dumps({**about, **record}, indent=1, ensure_ascii=False)
    (FOLDER / "result.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
