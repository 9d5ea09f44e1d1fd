"""`regard train`: from a file of pairs, or by a recipe, to a finished model."""

import argparse
import shlex
import sys
from pathlib import Path

from regard.commands.options import add_device, set_threads
from regard.config import Run, apply_overrides, load_run, validate
from regard.errors import ConfigError

EPILOGUE = """\
examples:
  regard train pairs.tsv -o model                          everything is chosen from the corpus
  regard train train.en train.de -o model                  two aligned files
  regard train recipe.toml -o model train.max_steps=2000   a recipe with an override
  regard train new.tsv -o tuned --from model               go on from an existing model

A stopped run goes on when the same command is given again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = EPILOGUE
    parser.add_argument("what", nargs="+", metavar="FILE | key=value", help="a recipe (.toml), a file of pairs, or two")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the run directory")
    parser.add_argument("--valid", nargs="+", metavar="FILE", help="validation pairs (default: a part is split off)")
    parser.add_argument("--from", dest="start", metavar="MODEL", help="go on from this model, with its tokenizers")
    parser.add_argument("--prepared", metavar="DIR", help="use this corpus, made by `regard prepare`")
    parser.add_argument(
        "--allow-change", action="append", default=[], metavar="KEY", help="this option may differ on resume"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    add_device(parser)


def run(arguments: argparse.Namespace) -> None:
    """Train."""
    set_threads(arguments)
    options, reasons = make_run(arguments)
    from regard.pipeline import train

    if not arguments.quiet:
        for line in reasons:
            print(line, file=sys.stderr)
    train(
        options,
        arguments.output,
        start_from=arguments.start,
        device=arguments.device,
        allow=arguments.allow_change,
        quiet=arguments.quiet,
        command=shlex.join(["regard", *sys.argv[1:]]),
    )


def make_run(arguments: argparse.Namespace) -> tuple[Run, list[str]]:
    """The options of the run, and why they were chosen where nobody gave them."""
    overrides = [word for word in arguments.what if "=" in word]
    files = [word for word in arguments.what if "=" not in word]
    if arguments.seed is not None:
        overrides.append(f"seed={arguments.seed}")
    if arguments.threads:
        overrides.append(f"threads={arguments.threads}")
    if arguments.prepared:
        overrides.append(f"data.prepared='{Path(arguments.prepared).resolve()}'")
    reasons: list[str] = []
    if len(files) == 1 and files[0].endswith(".toml"):
        if arguments.valid:
            overrides.append(f"data.valid={absolute(arguments.valid)!r}")
        return load_run(Path(files[0]), overrides), reasons
    if len(files) not in (1, 2):
        raise ConfigError("expected a recipe (.toml), one file of pairs, or a source and a target file")
    corpus, valid = absolute(files), absolute(arguments.valid) if arguments.valid else None
    kept = Path(arguments.output) / "run.toml"
    if arguments.start:
        from regard.choose import follow_model

        chosen, reasons = follow_model(arguments.start, corpus, valid)
    elif kept.exists():  # the choice was made when the run began
        chosen = load_run(kept)
        if chosen.data.train != corpus:
            raise ConfigError(f"{kept}: this run was started on {chosen.data.train}, not on {corpus}")
    else:
        from regard.choose import choose

        chosen, reasons = choose(corpus, valid)
    values = apply_overrides(chosen.model_dump(mode="json"), overrides)
    return validate(Run, values, "options"), reasons


def absolute(files: list[str]) -> str | tuple[str, str]:
    """One file, or a pair of files, by their full names."""
    if len(files) > 2:
        raise ConfigError(f"expected one file of pairs or two aligned files, found {len(files)}")
    names = [str(Path(name).resolve()) for name in files]
    return names[0] if len(names) == 1 else (names[0], names[1])
