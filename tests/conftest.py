"""One thread, shapes that are checked, the stored data, and tiny models whose outputs are sharp."""

import os
from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

torch.set_num_threads(1)  # before anything of regard runs; the tests share the machine with others

# Every shape written in a signature of these rooms becomes a check for the whole test run.
install_import_hook(["regard.nn", "regard.models", "regard.search", "regard.engine"], "beartype.beartype")


@pytest.fixture(scope="session")
def data() -> Path:
    """The stored data sets: $REGARD_DATA, or ../shared/data beside the repository."""
    path = Path(os.environ.get("REGARD_DATA") or Path(__file__).parents[1] / ".." / "shared" / "data").resolve()
    if not path.is_dir():
        pytest.skip(f"no data at {path}: set REGARD_DATA")
    return path


@pytest.fixture(scope="session")
def tiny_model():
    """A function that builds a small model with random weights, larger than fresh ones, so that its
    distributions are peaked and differ from one seed to the next."""
    from regard.models.base import Model, build_model

    def build(section: dict, seed: int, source: int = 7, target: int = 5, scale: float = 1.0) -> Model:
        torch.manual_seed(seed)
        model = build_model(section, source, target)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * scale * (0.3 if parameter.dim() == 1 else 0.5))
        return model.eval()

    return build
