"""How good an alignment is: precision, recall and alignment error rate against people, F1 against another one.

Och & Ney 2003, with sure links S, possible links P ⊇ S and the links A to be judged:

    precision = |A ∩ P| / |A|    recall = |A ∩ S| / |S|    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

A link that people hold for possible is neither missed when it is not there nor wrong when it is. Where every link
is sure the error rate is 1 - F1. All are sums over the lines of a corpus, as the metrics of text are.
"""

from collections.abc import Sequence

import numpy as np

from regard.align.links import Gold, Links
from regard.errors import DataError
from regard.metrics import Counts, Score


def count_links(found: Sequence[Links], gold: Sequence[Gold]) -> Counts:
    """|A|, |S|, |A ∩ S| and |A ∩ P| of every line, and the error rate of their sums."""
    if len(found) != len(gold):
        raise DataError(f"{len(found)} alignments but {len(gold)} in the gold file: the lines do not correspond")
    if not found:
        raise DataError("nothing to score: no alignments")
    rows = [
        (len(links), len(right.sure), len(links & right.sure), len(links & right.possible))
        for links, right in zip(found, gold, strict=True)
    ]
    return Counts(np.array(rows, dtype=np.float64), finish)


def finish(sums: list[float]) -> Score:
    """The error rate of summed counts; where there is nothing to find, and nothing is found, all is right."""
    links, sure, both_sure, both_possible = map(int, sums)
    precision = both_possible / links if links else 1.0
    recall = both_sure / sure if sure else 1.0
    error = 1 - (both_sure + both_possible) / (links + sure) if links + sure else 0.0
    details = {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "links": links,
        "sure": sure,
    }
    return Score("alignment_error", error, "alignment error rate", "", details, False, True)


def alignment_error(found: Sequence[Links], gold: Sequence[Gold]) -> Score:
    """The alignment error rate of a corpus; precision, recall and F1 are among its details."""
    return count_links(found, gold).score()
