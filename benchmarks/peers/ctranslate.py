"""CTranslate2 called directly on an exported model; no torch in this process, whose threads would get in its way."""

import json
from pathlib import Path

import ctranslate2

from benchmarks.made import read_lines, spell
from benchmarks.measure import Figures, Job, work


def translate(job: Job) -> Figures:
    """Translate a file from the start of the process, one worker for each thread; tokens are named by their ids."""
    translator = ctranslate2.Translator(job["directory"], device="cpu", inter_threads=job["threads"], intra_threads=1)
    config = json.loads(Path(job["directory"], "config.json").read_text(encoding="utf-8"))
    end = [] if config.get("add_source_eos") else [config["eos_token"]]
    lines = [[*map(str, ids), *end] for ids in read_lines(Path(job["input"]))]
    found = translator.translate_batch(lines, beam_size=job["beam"], max_batch_size=job["batch"])
    text = "".join(spell(map(int, result.hypotheses[0])) + "\n" for result in found)
    Path(job["result"]).write_text(text, encoding="utf-8")
    return {}


if __name__ == "__main__":
    work({"translate": translate})
