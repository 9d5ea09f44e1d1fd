"""The CTranslate2 engine: an exported Transformer behind `ids, options → Hypotheses`, without torch.

CTranslate2 knows tokens by name; ours are called by their ids ("0", "1", …). Its beam search is ours with
`stop = "count"`. It differs in three things, which are put right here:

    it counts EOS in the length of an output       all K outputs are fetched and ranked by our score
    it may choose <pad> and <s>                    such a sentence is searched again with both forbidden
    a batch has one maximum length, and an         such a sentence is searched again by its own length,
    output that is cut off does not pay for EOS    and its outputs are priced by teacher forcing

Where it cannot do the same as torch, `unable` says why. It gives no attention of all layers, so there are no
alignments.
"""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.config import Search, length_penalty, longest_output
from regard.data.batch import BOS, PAD, Hypothesis, Writing
from regard.directory import MANIFEST, check_listed, hash_file, read_json
from regard.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from regard.view.record import Map

FOLDER = "ctranslate2"  # in the model directory
FACTS = "export.json"  # what was exported, and how
NEVER = {str(PAD), str(BOS)}  # as tokens
TOGETHER = 1024  # source tokens that share a shortlist: with more it is longer, and that costs more than small batches
Found = list[tuple[list[str], float]]  # tokens and log-probability of each output of a sentence


def is_installed() -> bool:
    """Whether CTranslate2 can be imported."""
    return find_spec("ctranslate2") is not None


def unable(options: Search, align: bool = False, prefixes: bool = False) -> str | None:
    """What of a request the engine cannot do as torch does it."""
    if options.method == "sample":
        return "method = 'sample'"
    if options.method == "beam" and options.stop == "bound":
        return "stop = 'bound'"
    if options.minimum_length:
        return f"minimum_length = {options.minimum_length}"
    if options.no_repeat:
        return f"no_repeat = {options.no_repeat}"
    if align:
        return "alignments"
    return "forced beginnings" if prefixes else None


def refuse(what: str) -> ConfigError:
    """The error for something the engine cannot do."""
    return ConfigError(f"{what}: the engine ctranslate2 cannot do this as torch does; use the engine torch")


class CTranslate2Engine:
    """Runs one exported model on the CPU; `workers` searches at a time, each with `threads` threads."""

    name = "ctranslate2"

    def __init__(self, folder: Path, facts: dict[str, Any], workers: int = 1, threads: int = 1) -> None:
        import ctranslate2

        self.workers = workers
        self.positions: int = facts["positions"]  # tokens, EOS counted, that the export has positions for
        self.limit: int | None = self.positions if facts["limited"] else None
        self.shortlist = bool(facts.get("shortlist"))
        make = partial(ctranslate2.Translator, device="cpu", inter_threads=workers, intra_threads=threads)
        try:
            with ThreadPoolExecutor(1) as pool:  # it limits the thread that makes it, torch's work there included
                self.translator = pool.submit(make, str(folder)).result()
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{folder}: cannot be read: {error}") from None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Search,
        prefixes: Sequence[Sequence[int]] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """The outputs of one batch of sources (ids that end in EOS, and are not EOS alone), best first."""
        if what := unable(options, prefixes=any(prefixes or ())):
            raise refuse(what)
        limits = [longest_output(len(source), options, self.limit) for source in sources]
        if (longest := max(map(len, sources))) > self.positions:
            raise refuse(f"an input of {longest} tokens with an export that has {self.positions} positions")
        if max(limits) >= self.positions:
            raise refuse(f"an output of {max(limits)} tokens with an export that has {self.positions} positions")
        tokens = [[str(token) for token in source] for source in sources]
        found = self._search(tokens, max(limits), options)
        again: dict[tuple[int, bool, bool], list[int]] = defaultdict(list)  # maximum length, and why → rows
        for row, outputs in enumerate(found):
            cut = any(len(output) >= limits[row] for output, _ in outputs)
            odd = any(not NEVER.isdisjoint(output) for output, _ in outputs)
            if cut or odd:
                again[limits[row], cut, odd].append(row)
        for (limit, cut, odd), rows in again.items():
            results = self._search_again([tokens[row] for row in rows], limit, options, cut, odd)
            for row, outputs in zip(rows, results, strict=True):
                found[row] = outputs
        return [rank(outputs, limit, options) for outputs, limit in zip(found, limits, strict=True)]

    def _search(
        self, sources: list[list[str]], limit: int, options: Search, patience: int = 1, **more: Any
    ) -> list[Found]:
        """The outputs CTranslate2 finds, `patience` times K at most, with their log-probabilities."""
        beam = options.beam if options.method == "beam" else 1
        alpha = options.alpha or 1e-9  # with exactly 0 it would stop earlier
        results = self.translator.translate_batch(
            sources,
            beam_size=beam,
            patience=patience if beam > 1 else 1,
            num_hypotheses=beam * patience if beam > 1 else 1,
            length_penalty=alpha,
            max_decoding_length=limit,
            min_decoding_length=0,
            max_input_length=0,  # nothing is cut
            return_scores=True,
            use_vmap=self.shortlist,
            max_batch_size=TOGETHER if self.shortlist else 0,
            batch_type="tokens",
            **more,
        )
        return [
            [
                (output, score * (len(output) + 1) ** alpha)
                for output, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _search_again(self, sources: list[list[str]], limit: int, options: Search, cut: bool, odd: bool) -> list[Found]:
        """The same for sentences that need care; each output gets the price the model gives it, EOS included.

        Where the limit is reached, fewer than K outputs have ended before and K are cut off: all are wanted.
        """
        forbidden = [[token] for token in sorted(NEVER)] if odd else None
        found = self._search(sources, limit, options, 2 if cut else 1, suppress_sequences=forbidden)
        found = [[each for each in outputs if NEVER.isdisjoint(each[0])] for outputs in found]
        pairs = [(source, output) for source, outputs in zip(sources, found, strict=True) for output, _ in outputs]
        prices = self.translator.score_batch(*map(list, zip(*pairs, strict=True)), max_input_length=0)
        sums = iter([sum(price.log_probs) for price in prices])
        return [[(output, next(sums)) for output, _ in outputs] for outputs in found]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Log-probability of each target token (ids that end in EOS), by teacher forcing."""
        if (longest := max(map(len, [*sources, *targets]))) > self.positions:
            raise refuse(f"a text of {longest} tokens with an export that has {self.positions} positions")
        tokens = [[str(token) for token in source] for source in sources]
        wanted = [[str(token) for token in target[:-1]] for target in targets]
        found = self.translator.score_batch(tokens, wanted, max_input_length=0)
        return [np.array(each.log_probs, np.float32) for each in found]

    def attend(self, source: Sequence[int], target: Sequence[int], writing: Writing | None = None) -> "list[Map]":
        """Only torch shows attention."""
        raise refuse("attention maps")

    def cross_attention(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> np.ndarray | None:
        """There is none to be had."""
        return None

    def writings(self, source: Sequence[int], options: Search) -> dict[tuple[int, ...], Writing]:
        """None: words are written one by one."""
        return {}

    def close(self) -> None:
        """There is nothing to end."""


def rank(found: Found, limit: int, options: Search) -> list[Hypothesis]:
    """The n best by our score."""
    scored = [(price / length_penalty(len(tokens), options), price, tokens) for tokens, price in found]
    best = sorted(scored, key=lambda each: -each[0])[: options.nbest]
    return [
        Hypothesis(tuple(map(int, tokens)), score, price, finished=len(tokens) < limit) for score, price, tokens in best
    ]


def load_engine(directory: Path, workers: int = 1, threads: int = 1) -> CTranslate2Engine:
    """The export in a checked model directory; it must be whole, and of the weights beside it."""
    folder = directory / FOLDER
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such export; make it with: regard export {directory} --to ctranslate2")
    if not is_installed():
        raise ConfigError("the engine ctranslate2 needs CTranslate2: pip install 'regard[fast]'")
    if missing := {"model.bin", FACTS} - check_listed(folder):
        raise ModelError(f"{folder / MANIFEST}: does not list {min(missing)}")
    facts = read_json(folder / FACTS)
    if not isinstance(facts, dict) or not {"model_sha256", "positions", "limited"} <= facts.keys():
        raise ModelError(f"{folder / FACTS}: not the facts of an export")
    if facts["model_sha256"] != hash_file(directory / MANIFEST):
        raise ModelError(f"{folder}: made from another model than the one beside it; export it again")
    return CTranslate2Engine(folder, facts, workers, threads)
