"""`regard doctor`: what this machine has, and what is missing."""

import argparse
import importlib.metadata
import os
import platform
import shutil

PACKAGES = {
    "torch": "", "numpy": "", "pydantic": "", "tokenizers": "", "sacremoses": "", "safetensors": "", "sacrebleu": "",
    "babel": "quickstart", "ctranslate2": "extra fast",
    "matplotlib": "extra plot: PNG and SVG", "tensorboard": "extra track",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments."""
    parser.epilog = "example:\n  regard doctor"


def run(arguments: argparse.Namespace) -> None:
    """Print the facts; nothing is changed."""
    import torch

    print(f"python       {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name, note in PACKAGES.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "missing"
        print(f"{name:12s} {version}{f'  ({note})' if note else ''}")
    print(f"cores        {os.cpu_count()}, torch uses {torch.get_num_threads()} threads")
    print(f"cpu          {torch.backends.cpu.get_cpu_capability()}")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    print(f"gpus         {gpus}" + ("" if gpus else "  (training and decoding run on the CPU)"))
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        print(f"memory       {memory / 2**30:.1f} GiB")
    print(f"disk         {shutil.disk_usage('.').free / 2**30:.1f} GiB free here")
