"""The training loop and its parts; called as `regard.train(…)` it trains (see `regard.recipe.train`)."""

import sys
from types import ModuleType
from typing import Any


class _Training(ModuleType):
    """A folder one can call: once it is imported, `regard.train` means it and no longer a function."""

    def __call__(self, *values: Any, **named: Any) -> Any:
        from regard.recipe import train

        return train(*values, **named)


sys.modules[__name__].__class__ = _Training
