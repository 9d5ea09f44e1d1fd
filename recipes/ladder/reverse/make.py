"""Letters and the same letters backwards: a task on which a word must know how far it is from the end.

python recipes/ladder/reverse/make.py FOLDER
"""

import sys
from pathlib import Path

from regard.tasks.made import reverse, write_tsv


def main(folder: str) -> None:
    """Pairs of 4 to 10 letters for training, validation and test, none of them twice."""
    pairs = list(dict.fromkeys(reverse(22_000, seed=1, vocabulary=20, shortest=4, longest=10)))
    Path(folder).mkdir(parents=True, exist_ok=True)
    parts = {"train": pairs[:-2000], "valid": pairs[-2000:-1000], "test": pairs[-1000:]}
    for name, part in parts.items():
        write_tsv(Path(folder) / f"{name}.tsv", part)


if __name__ == "__main__":
    main(sys.argv[1])
