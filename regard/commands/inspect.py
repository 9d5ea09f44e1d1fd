"""`regard inspect`: what is in a model or run directory; every file is checked against the manifest."""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.epilog = "examples:\n  regard inspect model\n  regard inspect model --weights\n  regard inspect model --json"
    parser.add_argument("model", metavar="MODEL", help="model or run directory")
    parser.add_argument("--json", action="store_true", help="the whole configuration as JSON")
    parser.add_argument("--weights", action="store_true", help="name and shape of every weight")


def run(arguments: argparse.Namespace) -> None:
    """Print what is there."""
    from regard.directory import read_directory

    directory, config = read_directory(arguments.model)
    if arguments.json:
        print(json.dumps(config, ensure_ascii=False, indent=1))
        return
    model, text, training = config["model"], config.get("text", {}), config.get("training", {})
    vocabulary = config.get("vocabulary", {})
    print(f"{directory}: all files agree with the manifest")
    print(f"model          {model.get('kind')}, {config.get('parameters', 0):,} parameters")
    print(" " * 15 + ", ".join(f"{key} {value}" for key, value in model.items() if key != "kind"))
    joint = "one vocabulary" if text.get("joint") else "two vocabularies"
    print(f"text           {text.get('source')} → {text.get('target')}, {joint}: {vocabulary}")
    if flags := [key for key in ("lowercase", "moses", "tokenised") if text.get(key)]:
        print(" " * 15 + ", ".join(flags))
    print(f"search         {short(config.get('search', {}))}")
    for key, value in training.items():
        print(f"{key:14s} {value}")
    if arguments.weights:
        print_weights(directory / "model.safetensors")


def short(search: dict[str, object]) -> str:
    """The search options that matter most."""
    return ", ".join(f"{key} {search[key]}" for key in ("method", "beam", "alpha", "stop") if key in search)


def print_weights(path: Path) -> None:
    """Names, shapes and types, without loading the weights."""
    from safetensors import safe_open

    with safe_open(str(path), "np") as weights:
        for name in sorted(weights.keys()):
            part = weights.get_slice(name)
            print(f"  {name:60s} {part.get_dtype():5s} {list(part.get_shape())}")
