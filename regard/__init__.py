"""regard: sequence-to-sequence models you can train, compare and watch.

    import regard

    model = regard.train("pairs.tsv", "model")          # or regard.load("model")
    for output in model.translate(["a man sleeps ."]):
        print(output.text, output.score)
    model.attend("a man sleeps .")                      # shows itself in a notebook

Importing this imports no torch: each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.predict import load
    from regard.recipe import train
    from regard.view.record import record

__version__ = "0.1.0"
__all__ = ["__version__", "load", "record", "train"]

_HOMES = {"load": "regard.predict", "record": "regard.view.record", "train": "regard.recipe"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
