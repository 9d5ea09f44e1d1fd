"""CTranslate2 called directly on an exported model; no torch in this process, whose threads would get in its way."""

from pathlib import Path

import ctranslate2

from benchmarks.measure import Figures, Job, work


def translate(job: Job) -> Figures:
    """Translate a file from the start of the process, one worker for each thread."""
    translator = ctranslate2.Translator(
        job["directory"], device="cpu", inter_threads=job["threads"], intra_threads=1, compute_type=job["compute"]
    )
    with Path(job["input"]).open(encoding="utf-8") as stream:
        lines = [line.split() for line in stream]
    found = translator.translate_batch(
        lines,
        beam_size=job["beam"],
        min_decoding_length=job["length"],
        max_decoding_length=job["length"],
        max_batch_size=job["batch"],
    )
    text = "".join(" ".join(result.hypotheses[0]) + "\n" for result in found)
    Path(job["result"]).write_text(text, encoding="utf-8")
    return {}


if __name__ == "__main__":
    work({"translate": translate})
