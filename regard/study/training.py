"""Training the rows of a comparison that are not trained yet, one after the other, as `regard train` does."""

import sys
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from regard.directory import has_begun
from regard.errors import ConfigError, Interrupted, ModelError, RegardError, Stopped
from regard.study.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

Failures = dict[str, RegardError]  # row → why it has no figures


def check_rows(rows: Sequence[Row]) -> None:
    """Tell a wrong option before hours of training, and not after them."""
    from regard.pipeline import check_options, settle

    for row in rows:
        if row.run is None:
            continue
        try:
            run = check_options(row.run)
        except ConfigError as error:
            raise ConfigError(f"{row.name}: {error}") from None
        if has_begun(row.directory):
            settle(run, row.directory, ())


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
