"""Training the rows of a comparison that are not trained yet, one after the other, as `regard train` does."""

import sys
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from regard.config import Run, Search, change_search
from regard.directory import find_directory, has_begun
from regard.errors import DataError, Interrupted, ModelError, RegardError, Stopped
from regard.study.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

Failures = dict[str, RegardError]  # row → why it has no figures


def check_rows(rows: Sequence[Row]) -> None:
    """Tell a wrong option or a missing file before hours of training, and not after them."""
    from regard.pipeline import check_options, settle

    made = {row.directory.resolve() for row in rows}
    for row in rows:
        if row.is_variant:
            change_search(Search(), row.search, f"--also '{row.name}'")
        if row.engine == "ctranslate2" and row.is_trained:
            row.load("cpu")
        if row.run is None:
            continue
        try:
            run = check_options(row.run)
            if not row.is_trained:
                check_files(run, made)
        except RegardError as error:
            raise type(error)(f"{row.name}: {error}") from None
        if has_begun(row.directory):
            settle(run, row.directory, (), "give another -o, or let `regard train -o` go on with it and --allow-change")


def check_files(run: Run, made: set[Path]) -> None:
    """Whether the pairs and the models a training begins with are there, or are made by another row."""
    data = run.data
    for corpus in (data.train, data.valid, data.test) if data.prepared is None else (data.test,):
        for file in [corpus] if isinstance(corpus, str) else corpus or ():
            if not Path(file).exists():
                raise DataError(f"{file}: no such file")
    teachers = run.distill.teacher if run.distill else ()
    aligner = None if data.aligner and Path(data.aligner).is_file() else data.aligner  # a file of links is there
    for model in (run.start, run.start_encoder, aligner, run.reverse and run.reverse.teacher, *teachers):
        if model and not made & {Path(model).resolve(), Path(model).resolve().parent}:
            find_directory(model)


def train_rows(
    rows: Sequence[Row], *, device: str = "auto", quiet: bool = False, command: str = "", only_trained: bool = False
) -> Failures:
    """Train what is not trained; a row that fails is noted and the next one comes.

    A wish to stop (SIGTERM, Ctrl-C) is no failure: the state is saved, and the same call goes on with it.
    """
    waiting = [row for row in rows if not row.is_trained]
    if only_trained and waiting:
        raise ModelError(f"not trained yet: {', '.join(row.name for row in waiting)} (leave --no-train out to train)")
    failures: Failures = {}
    for row in waiting:
        if not quiet:
            number = rows.index(row) + 1
            print(f"\n{row.name} ({number} of {len(rows)}): training in {row.directory}", file=sys.stderr)
        with noted(failures, row.name):
            train_row(row, device, quiet, command)
    return failures


def train_row(row: Row, device: str, quiet: bool, command: str) -> None:
    """Train one row; a number of threads it asks for is its own."""
    import torch

    from regard.pipeline import train

    assert row.run is not None
    threads = torch.get_num_threads()
    try:
        train(row.run, row.directory, device=device, quiet=quiet, command=command)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def noted(failures: Failures, name: str) -> "Iterator[None]":
    """What fails inside is told and noted under the name, so that the other rows are not lost."""
    try:
        yield
    except (Stopped, Interrupted):
        raise
    except RegardError as error:
        failures[name] = error
    except (OSError, MemoryError) as error:
        failures[name] = RegardError(str(error) or type(error).__name__)
    if name in failures:
        with suppress(OSError):
            print(f"{name}: failed: {failures[name]}", file=sys.stderr)
