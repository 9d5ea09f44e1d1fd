"""The weights a run begins with: fresh by its seed, those of a model or some of its layers, or what another lends."""

from collections.abc import Iterable

import torch
from torch import Tensor

from regard.config import Run
from regard.directory import read_directory
from regard.engine.native import check_shapes, load_model
from regard.errors import ConfigError
from regard.models.base import Model, build_model
from regard.tasks.translation import Translation

ENCODER = ("source.", "encoder.", "encoder_norm.")  # how the parameters of encoders begin that can be lent
DECODER = ("decoder.", "decoder_norm.")


def make_model(run: Run, task: Translation) -> Model:
    """A fresh model by the seed, or the weights of an existing one."""
    sizes = task.source.tokenizer.size, task.target.tokenizer.size
    torch.manual_seed(run.seed)
    model = build_model(run.model, *sizes)
    if run.start is not None:
        directory, config = read_directory(run.start)
        found = some_layers(load_model(directory, config).state_dict(), model.state_dict())
        shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        check_shapes(directory / "model.safetensors", wanted, shapes)
        model.load_state_dict(found)
    if run.start_encoder is not None:
        directory, config = read_directory(run.start_encoder)
        lender, what = load_model(directory, config), f"start_encoder = '{run.start_encoder}'"
        lend_encoder(model, lender, what)
        if run.start_decoder:
            lend_decoder(model, lender, what)
    return model


def some_layers(weights: dict[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """Weights of a deeper model under the names of a shallower one: layers from its first to its last, evenly spread.

    Shleifer and Rush 2020, "Pre-trained Summarization Distillation": shrink and fine-tune. A single layer is the first.
    """
    ours = count_layers(names)
    kept = {stack: spread(number, ours.get(stack, 0)) for stack, number in count_layers(weights).items()}
    found = {}
    for name, tensor in weights.items():
        stack, number, rest = split_name(name)
        if number is None:
            found[name] = tensor
        elif number in kept[stack]:
            found[f"{stack}.{kept[stack].index(number)}.{rest}"] = tensor
    return found


def spread(number: int, wanted: int) -> list[int]:
    """At most so many of the numbers 0 … number − 1, from the first to the last."""
    wanted = min(number, wanted)
    return [round(place * (number - 1) / max(1, wanted - 1)) for place in range(wanted)]


def count_layers(names: Iterable[str]) -> dict[str, int]:
    """How many layers each stack of a model has, by the names of its weights."""
    found: dict[str, int] = {}
    for stack, number, _ in map(split_name, names):
        if number is not None:
            found[stack] = max(found.get(stack, 0), number + 1)
    return found


def split_name(name: str) -> tuple[str, int | None, str]:
    """The stack, the layer and the rest of a weight's name; no layer where it is in none."""
    stack, _, rest = name.partition(".")
    number, _, rest = rest.partition(".")
    return (stack, int(number), rest) if number.isdigit() else (name, None, "")


def lend_encoder(model: Model, other: Model, what: str) -> None:
    """Set the source table and the encoder to those of another model."""
    ours, theirs = beginning_with(ENCODER, model), beginning_with(ENCODER, other)
    if not ours:
        raise ConfigError(f"{what}: this model has no encoder like that of a Transformer")
    lend(ours, theirs, sorted(ours.keys() | theirs.keys()), what)


def lend_decoder(model: Model, other: Model, what: str) -> None:
    """Set all parts of the decoder that another model's has too; looking back becomes looking at all places."""
    ours, theirs = (
        {name.replace("self_attention", "place_attention"): each for name, each in beginning_with(DECODER, of).items()}
        for of in (model, other)
    )
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        raise ConfigError(f"{what}: its decoder has no part in common with that of this model")
    lend(ours, theirs, common, what)


def beginning_with(names: tuple[str, ...], model: Model) -> dict[str, Tensor]:
    """The parameters whose names begin so."""
    return {name: each for name, each in model.named_parameters() if name.startswith(names)}


@torch.no_grad()
def lend(ours: dict[str, Tensor], theirs: dict[str, Tensor], names: Iterable[str], what: str) -> None:
    """Set the named parameters to those of another model, which must be of the same shape."""
    for name in names:
        shapes = [list(of[name].shape) if name in of else "nothing" for of in (theirs, ours)]
        if shapes[0] != shapes[1]:
            raise ConfigError(f"{what}: {name} is {shapes[0]} there, this model has {shapes[1]}")
        ours[name].copy_(theirs[name])
