"""Turn the SCAN files (`IN: jump twice OUT: I_JUMP I_JUMP`) into files of pairs.

python recipes/scan/make.py simple DIR        → DIR/simple.train.tsv, DIR/simple.test.tsv
"""

import lzma
import os
import sys
from pathlib import Path

SPLITS = {"simple", "length", "addprim_jump", "addprim_turn_left"}


def main(split: str, directory: str) -> None:
    """Write the training and test pairs of one split."""
    if split not in SPLITS:
        sys.exit(f"unknown split '{split}'; known: {', '.join(sorted(SPLITS))}")
    folder = Path(os.environ["REGARD_DATA"]) / "scan"
    Path(directory).mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        lines = lzma.decompress((folder / f"tasks_{part}_{split}.txt.xz").read_bytes()).decode().splitlines()
        pairs = [line.removeprefix("IN: ").split(" OUT: ") for line in lines]
        text = "".join(f"{source.strip()}\t{target.strip()}\n" for source, target in pairs)
        (Path(directory) / f"{split}.{part}.tsv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
