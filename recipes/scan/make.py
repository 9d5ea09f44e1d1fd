"""Turn the SCAN files (`IN: jump twice OUT: I_JUMP I_JUMP`) into files of pairs.

python recipes/scan/make.py simple DIR        → DIR/simple.train.tsv, DIR/simple.test.tsv

`length26` is the length split with the cut-off of the later literature (Newman et al. 2020): of all commands those with
up to 26 actions are for training, the longer ones for the test.
"""

import lzma
import os
import sys
from pathlib import Path

SPLITS = ("simple", "length", "length26", "addprim_jump", "addprim_turn_left")
CUT = 26


def read(split: str, part: str) -> list[tuple[str, str]]:
    """The pairs of one SCAN file."""
    path = Path(os.environ["REGARD_DATA"]) / "scan" / f"tasks_{part}_{split}.txt.xz"
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    pairs = (line.removeprefix("IN: ").split(" OUT: ") for line in lines)
    return [(source.strip(), target.strip()) for source, target in pairs]


def divide(split: str) -> dict[str, list[tuple[str, str]]]:
    """Training and test pairs."""
    if split != "length26":
        return {part: read(split, part) for part in ("train", "test")}
    every = read("simple", "train") + read("simple", "test")  # the whole of SCAN, each command once
    short = [pair for pair in every if len(pair[1].split()) <= CUT]
    return {"train": short, "test": [pair for pair in every if len(pair[1].split()) > CUT]}


def main(split: str, directory: str) -> None:
    """Write the training and test pairs of one split."""
    if split not in SPLITS:
        sys.exit(f"unknown split '{split}'; known: {', '.join(SPLITS)}")
    if "REGARD_DATA" not in os.environ:
        sys.exit(
            "the environment variable REGARD_DATA is not set: the folder that holds scan/tasks_train_simple.txt.xz"
        )
    Path(directory).mkdir(parents=True, exist_ok=True)
    for part, pairs in divide(split).items():
        text = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (Path(directory) / f"{split}.{part}.tsv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
