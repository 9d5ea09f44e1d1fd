"""The most memory a model needs to decode, measured in a process of its own that does nothing else.

The figure is that of the whole process: Python, torch, the weights, and the search at its batch. What was held
before the model was loaded is told beside it. On a GPU, the most memory torch has held there is told too.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

import regard.errors
from regard.config import Search
from regard.data.worker import how_it_ended, ignore_signals, start_helper
from regard.errors import RegardError
from regard.study.row import Row


def measure_memory(row: Row, texts: Sequence[str], search: Search, device: str, threads: int) -> dict[str, int | None]:
    """Bytes held at most while the texts are decoded, and bytes held before the model was loaded."""
    process = start_helper("regard.study.memory", json.dumps([device, threads]), PIPE, threads)
    try:
        job = {
            "directory": str(row.directory.resolve()),
            "how": {"engine": row.engine, "rescore": row.rescore},
            "texts": list(texts),
            "search": search.model_dump(mode="json"),
        }
        answer, _ = process.communicate(json.dumps(job).encode())
    finally:
        process.kill()
        process.wait()
    if not answer.endswith(b"\n"):
        raise RegardError(f"{row.name}: the process that measures memory {how_it_ended(process)}")
    found = json.loads(answer)
    if "error" in found:
        raise getattr(regard.errors, found["kind"])(found["error"])
    return found


def peak() -> int:
    """Bytes this process has held at most."""
    # what getrusage tells begins, on Linux, with the memory of the process that started this one
    if (status := Path("/proc/self/status")).is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def work(device: str, threads: int) -> dict[str, Any]:
    """The process itself: load the model, decode, tell."""
    import torch

    from regard.predict import load

    job = json.load(sys.stdin)
    torch.set_num_threads(threads)
    before = peak()
    predictor = load(job["directory"], device=device, threads=threads, **job["how"])
    predictor.nbest(job["texts"], **job["search"])
    on_device = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return {"peak_bytes": peak(), "before_loading_bytes": before, "device_peak_bytes": on_device}


def main() -> None:
    """A mistake of the user is told to the one who asked."""
    ignore_signals()
    try:
        answer = work(*json.loads(sys.argv[1]))
    except RegardError as error:
        answer = {"kind": type(error).__name__, "error": str(error)}
    except (MemoryError, RuntimeError) as error:
        answer = {"kind": "RegardError", "error": str(error).splitlines()[0] if str(error) else "not enough memory"}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
