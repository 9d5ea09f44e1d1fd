"""How well the rows do: outputs and scores as `regard evaluate --save` keeps them; the difference from the first."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.config import Search, Text, change_search
from regard.data.text import read_lines
from regard.directory import read_directory, read_json
from regard.errors import RegardError
from regard.evaluation import (
    Texts,
    default_metrics,
    evaluate,
    length_rows,
    save,
    source_length,
    tokenised_references,
)
from regard.metrics import paired_bootstrap
from regard.predict import read_section
from regard.study.row import HeldOut, Row


@dataclass(frozen=True)
class Quality:
    """What a row said on the test pairs, and how good that is."""

    result: dict[str, Any]  # as in its result.json
    texts: Texts


@dataclass(frozen=True)
class Judge:
    """How all rows are scored."""

    held_out: HeldOut
    metrics: Sequence[str]  # the first one is the main one
    samples: int  # of the bootstrap; 0: no intervals
    search: Mapping[str, Any]  # what differs from a model's own search
    device: str
    command: str

    def score(self, row: Row, directory: Path) -> Quality:
        """Decode and score, or take what an earlier call has left in the directory for the same model and question."""
        where, config = read_directory(row.directory)
        path = directory / "result.json"
        question = {
            **row.identity(),
            "data_sha256": self.held_out.data_sha256,
            "metrics": list(self.metrics),
            "samples": self.samples,
            "search": row_search(row, self.search).model_dump(mode="json"),
        }
        if not self._is_kept(directory, question):
            self._evaluate(row, directory, question)
        # both the first time and later the outputs are those of the files, line by line
        references = [pair.target for pair in self.held_out.pairs]
        texts: Texts = {"": (list(read_lines(directory / "hypotheses.txt")), references)}
        if "tokenised_bleu" in self.metrics:
            text = read_section(Text, where, config, "text")
            lines = list(read_lines(directory / "hypotheses.tokenised.txt"))
            texts["tokenised_bleu"] = (lines, tokenised_references(text, references))
        return Quality(read_json(path), texts)

    def _is_kept(self, directory: Path, question: dict[str, Any]) -> bool:
        """Whether an earlier call has left whole files that answer the question."""
        names = ["hypotheses.txt"] + ["hypotheses.tokenised.txt"] * ("tokenised_bleu" in self.metrics)
        try:
            if read_json(directory / "result.json").get("question") != question:
                return False
            lines = [sum(1 for _ in read_lines(directory / name)) for name in names]
        except (RegardError, OSError, AttributeError):  # missing, damaged, or something else
            return False
        return set(lines) == {len(self.held_out.pairs)}

    def _evaluate(self, row: Row, directory: Path, question: dict[str, Any]) -> None:
        from regard.origin import origin

        start = time.monotonic()
        predictor = row.load(self.device)
        search = row_search(row, self.search)
        result, texts = evaluate(predictor, self.held_out.pairs, search, self.metrics, self.samples)
        about = origin(self.command, search.seed, time.monotonic() - start, self.held_out.data_sha256)
        about["model"] = {key: predictor.about.get(key) for key in ("name", "model", "parameters", "training")}
        (directory / "result.json").unlink(missing_ok=True)  # or a kill leaves old scores beside new outputs
        save(directory, texts, {**about, **result, "question": question})

    def lengths(self, tokenizer: str) -> list[int]:
        """The length of each source: words, or characters where the tokenizer takes those."""
        return [source_length(pair.source, tokenizer) for pair in self.held_out.pairs]

    def by_length(self, quality: Quality, tokenizer: str) -> list[dict[str, Any]]:
        """The main score for each range of source lengths, the same ranges for all rows."""
        main = self.metrics[0]
        return length_rows(main, self.lengths(tokenizer), *quality.texts.get(main, quality.texts[""]))

    def against(self, first: Quality, other: Quality) -> dict[str, Any]:
        """Paired bootstrap of a row against the first; a metric whose references differ has none."""
        found: dict[str, Any] = {}
        for name in self.metrics if self.samples else ():
            ours, references = first.texts.get(name, first.texts[""])
            theirs, same = other.texts.get(name, other.texts[""])
            if references == same:
                found[name] = asdict(paired_bootstrap(name, ours, theirs, references, self.samples))
        return found


def row_search(row: Row, given: Mapping[str, Any]) -> Search:
    """The search of a row: the model's own, with what was given, and one output for each input."""
    directory, config = read_directory(row.directory)
    own = read_section(Search, directory, config, "search")
    fast = {"stop": "count"} if row.engine == "ctranslate2" else {}
    return change_search(own, {**given, **row.search, **fast, "nbest": 1})


def choose_metrics(text: Text) -> list[str]:
    """What a comparison scores by where nobody says: as `evaluate` does, but nothing twice."""
    return [name for name in default_metrics(text) if name != "word_error"]  # 1 − exact match
