"""Which peers are installed: every environment in a folder is asked for its packages."""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {  # the peer's name → its package, and the adapter that knows it
    "HF Marian": ("transformers", "benchmarks.peers.marian"),
    "eole": ("eole", "benchmarks.peers.eole"),
    "OpenNMT-py": ("opennmt-py", "benchmarks.peers.opennmt"),
    "JoeyNMT": ("joeynmt", "benchmarks.peers.joeynmt"),
    "CTranslate2": ("ctranslate2", "benchmarks.peers.ctranslate"),
}
LIST = "import importlib.metadata as m, json; print(json.dumps([(d.name, d.version) for d in m.distributions()]))"


@dataclass(frozen=True)
class Peer:
    """A peer that can be measured."""

    name: str
    python: str  # the interpreter of its environment
    module: str
    version: str  # of its package


def find_peers(folder: Path | None) -> dict[str, Peer]:
    """The peers in our own environment and in those of the folder; of several versions the newest."""
    pythons = [sys.executable]
    if folder is not None:
        pythons += sorted(str(path) for path in folder.glob("*/bin/python"))
    return choose([(python, packages(python)) for python in pythons])


def packages(python: str) -> dict[str, str]:
    """The packages an interpreter has, by their names in small letters."""
    done = subprocess.run([python, "-c", LIST], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    found = json.loads(done.stdout) if done.returncode == 0 else []
    return {name.lower().replace("_", "-"): version for name, version in found}


def choose(environments: Iterable[tuple[str, dict[str, str]]]) -> dict[str, Peer]:
    """The newest of each peer among (interpreter, packages)."""
    found: dict[str, Peer] = {}
    for python, versions in environments:
        for name, (package, module) in PACKAGES.items():
            if package not in versions:
                continue
            peer = Peer(name, python, module, versions[package])
            if name not in found or numbers(peer.version) > numbers(found[name].version):
                found[name] = peer
    return found


def numbers(version: str) -> list[int]:
    """A version as numbers that can be compared."""
    return [int(part) for part in version.split("+")[0].split(".") if part.isdecimal()]
