"""The torch engine: our models and our search behind `ids, options → Hypotheses`.

Several models make an ensemble: their probabilities are averaged at each step.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.config import Search, longest_output
from regard.data.batch import Batch, Hypothesis, Writing, make_batch
from regard.errors import ConfigError, ModelError
from regard.memory import use_huge_pages
from regard.models.base import Autoregressive, Model, build_model, select_rows, shift_right
from regard.models.parallel import Parallel, Refining
from regard.nn.attention import padding_mask
from regard.nn.loss import token_prices
from regard.nn.product import Product
from regard.search.beam import beam_search
from regard.search.best import BITS, NATS
from regard.search.filters import Decoder, Request
from regard.search.parallel import Filler, parallel_search, trace
from regard.search.sample import SEARCHES
from regard.view.record import Map, guess_kind, layers_of, record


class NativeEngine:
    """Runs one model or an ensemble on one device."""

    name = "torch"
    workers = 1

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = [model.eval() for model in models]
        if len(models) > 1 and any(isinstance(model, Parallel) for model in models):
            raise ConfigError("an ensemble: only models that write word by word can be joined")
        self.device = next(self.models[0].parameters()).device

    @property
    def limit(self) -> int | None:
        """Longest source or target, EOS counted, that all models can take."""
        limits = [model.limit for model in self.models if model.limit is not None]
        return min(limits) if limits else None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: Search,
        prefixes: Sequence[Sequence[int]] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """The outputs of one batch of sources (ids that end in EOS), best first."""
        limits = [longest_output(len(source), options, self.limit) for source in sources]
        request, batch = Request(limits, prefixes, seeds), make_batch(sources)
        if isinstance(self.models[0], Parallel):
            if any(prefixes or ()):
                raise ConfigError("forced beginnings: a model that writes all words at once cannot follow them")
            return parallel_search(self._filler(batch), request, options)
        with torch.inference_mode():
            state = tuple(
                self._start(model, batch, layout) for model, (layout, _) in zip(self.words, self._laid_out, strict=True)
            )
        find = beam_search if options.method == "beam" else SEARCHES[options.method]
        return find(Decoder(self._step, self._select, self.device), state, request, options)

    @property
    def words(self) -> list[Autoregressive]:
        """The models, all of which write word by word."""
        return [model for model in self.models if isinstance(model, Autoregressive)]

    def _filler(self, batch: Batch) -> Filler:
        model = self.models[0]
        assert isinstance(model, Parallel)
        layout, output = self._all_at_once
        with torch.inference_mode():
            memory = model.encode_by(layout, model.tensors(batch))
        return Filler(
            propose=lambda number, generators, mean: model.propose(memory, number, generators, mean),
            fill=lambda canvas: model.fill(canvas, memory, layout),
            output=output.forward,
            hide=model.hide if isinstance(model, Refining) else None,
            read=model.read,
            copies=model.copies,
            blank=model.blank,
        )

    @cached_property
    def _laid_out(self) -> list[tuple[Any, Product]]:
        """The layers and the output layer of each model as a search reads them, word by word."""
        return [(model.lay_out(), output_in_bits(model)) for model in self.words]

    @cached_property
    def _all_at_once(self) -> tuple[Any, Product]:
        """The layers and the output layer of the one model that fills all places, as a search reads them."""
        model = self.models[0]
        assert isinstance(model, Parallel)
        return model.lay_out(), output_in_bits(model, model.never)

    @staticmethod
    def _start(model: Autoregressive, batch: Batch, layout: Any = None) -> tuple[Any, Any]:
        memory = model.encode_by(layout, model.tensors(batch))
        return model.start(memory, layout), memory

    def _step(self, tokens: Tensor, states: Any) -> tuple[Tensor, Any]:
        logits, after = [], []
        for model, (_, output), (state, memory) in zip(self.words, self._laid_out, states, strict=True):
            hidden, state = model.decode(tokens, memory, state)
            logits.append(output.forward(hidden[:, -1]))
            after.append((state, memory))
        if len(logits) == 1:
            return logits[0], tuple(after)
        shares = torch.stack([(each.float() * NATS).log_softmax(-1) for each in logits])
        return (shares.logsumexp(0) - math.log(len(logits))) * BITS, tuple(after)

    def _select(self, states: Any, rows: Tensor, sentences: Tensor | None) -> Any:
        return tuple(
            model.select(state, memory, rows, sentences)
            for model, (state, memory) in zip(self.words, states, strict=True)
        )

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Log-probability of each target token (ids that end in EOS), by teacher forcing."""
        batch = make_batch(sources, targets)
        shares = torch.stack([self._prices(model, batch, sources) for model in self.models])
        chosen = (shares.logsumexp(0) - math.log(len(shares))).cpu().numpy()
        return [row[:length] for row, length in zip(chosen, batch.target_length, strict=True)]

    def _prices(self, model: Model, batch: Batch, sources: Sequence[Sequence[int]]) -> Float[Tensor, "B T"]:
        """Log-probabilities of all target tokens; a source that stands there several times is read once."""
        target = torch.as_tensor(batch.target, device=self.device)
        if not isinstance(model, Autoregressive):
            return model(batch).float().log_softmax(-1).gather(-1, target[:, :, None])[:, :, 0]
        places = {source: place for place, source in enumerate(dict.fromkeys(map(tuple, sources)))}
        memory = model.encode(model.tensors(make_batch(list(places))))
        if len(places) < len(sources):
            memory = select_rows(memory, torch.tensor([places[tuple(each)] for each in sources], device=self.device))
        hidden, _ = model.decode(shift_right(target), memory)
        real = padding_mask(torch.as_tensor(batch.target_length, device=self.device), target.size(1))
        prices, _ = token_prices(hidden[real].float(), *model.output_weights(), target[real][:, None])
        return prices.new_zeros(target.shape).masked_scatter_(real, prices)

    @torch.inference_mode()
    def attend(self, source: Sequence[int], target: Sequence[int], writing: Writing | None = None) -> list[Map]:
        """What every attention of the first model looks at in one pair (ids that end in EOS).

        Of an output whose words were written all at once, with its `writing`: when they were for the last time.
        """
        return layers_of(self._recorded([source], [target], writing), 0, len(source), len(target))

    @torch.inference_mode()
    def cross_attention(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> np.ndarray | None:
        """Mean weights [B,T,S] with which targets look at sources, for alignments; None without attention."""
        maps = self._recorded(sources, targets)
        cross = [np.asarray(maps[name]) for name in maps if guess_kind(name) == "cross"]
        return np.mean([weights.mean(1) for weights in cross], 0) if cross else None

    def writings(self, source: Sequence[int], options: Search) -> dict[tuple[int, ...], Writing]:
        """How the outputs of a source came about, by their ids; none of a model that writes word by word."""
        model = self.models[0]
        if not isinstance(model, Parallel):
            return {}
        request = Request([longest_output(len(source), options, self.limit)], None, [0])
        return trace(self._filler(make_batch([source])), request, options)[0]

    def close(self) -> None:
        """There is nothing to end."""

    def _recorded(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], writing: Writing | None = None
    ) -> Mapping[str, Tensor]:
        """Attention maps of one teacher-forced pass of the first model."""
        model = self.models[0]
        batch = make_batch(sources, targets)
        with record(model) as maps:
            places = None
            if isinstance(model, Parallel):
                places = model.filled(model.tensors(batch), writing).places
            else:
                model(batch)
        if places is None:
            return maps
        return {name: at_places(name, weights, places.cpu()) for name, weights in maps.items()}


@torch.no_grad()
def output_in_bits(model: Model, never: Sequence[int] = ()) -> Product:
    """The output layer of a model for a search, which counts in bits; some tokens may have no chance."""
    weight, bias = (each if each is None else each * BITS for each in model.output_weights())
    assert weight is not None
    if never:
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        bias[list(never)] = -math.inf
    return Product.of(weight, bias, anywhere=True)


def at_places(name: str, weights: Tensor, places: Tensor) -> Tensor:
    """Of a map whose queries are places of an output, only those at which words stand; of its keys too, if they are."""
    kind = guess_kind(name)
    if kind == "encoder":
        return weights
    heads, rows = weights.size(1), places[:, None, :, None]
    weights = weights.gather(2, rows.expand(-1, heads, -1, weights.size(3)))
    if kind == "places":
        weights = weights.gather(3, rows.mT.expand(-1, heads, weights.size(2), -1))
    return weights


def load_engine(directories: Sequence[Path], configs: Sequence[dict[str, Any]], device: str = "cpu") -> NativeEngine:
    """Models from checked model directories."""
    where = find_device(device)
    return make_engine([load_model(path, config).to(where) for path, config in zip(directories, configs, strict=True)])


def make_engine(models: Sequence[Model]) -> NativeEngine:
    """An engine of models that are not trained any more: weights lie so that products with few rows are fast."""
    use_huge_pages()
    for linear in (each for model in models for each in model.modules() if isinstance(each, nn.Linear)):
        linear.weight.data = linear.weight.data.t().contiguous().t()  # with 16 rows up to five times as fast
    return NativeEngine(models)


def find_device(name: str) -> torch.device:
    """A torch device by its name; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device {name}: {str(error).splitlines()[0]}") from None
    return device


def load_model(directory: Path, config: dict[str, Any]) -> Model:
    """The model described by config.json with the weights beside it; names and shapes must agree."""
    path = directory / "model.safetensors"
    try:
        found = load_file(path)
        sizes = config["vocabulary"]
        with AtMost(2 * sum(map(Tensor.numel, found.values())) + 2**20):
            model = build_model(config["model"], sizes["source"], sizes["target"])
    except (KeyError, TypeError) as error:
        raise ModelError(f"{directory / 'config.json'}: missing or wrong entry: {error}") from None
    except ConfigError as error:
        raise ModelError(f"{directory / 'config.json'}: {error}") from None
    except MemoryError:
        raise ModelError(f"{directory / 'config.json'}: implies far more weights than {path.name} holds") from None
    except Exception as error:  # safetensors raises a type of its own that has no public name
        raise ModelError(f"{path}: cannot be read: {error}") from None
    check_shapes(path, expected_shapes(model), {name: tuple(tensor.shape) for name, tensor in found.items()})
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(found[name])
    return model


class AtMost(TorchFunctionMode):
    """No more elements are set aside for weights than so many, whatever a configuration says.

    The device "meta" would need none at all, but with it torch loads its compiler, which takes as long as torch itself.
    """

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.left = elements

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.empty:
            sizes = args[0] if args and isinstance(args[0], Sequence) else args
            self.left -= math.prod(sizes)
            if self.left < 0:
                raise MemoryError
        return func(*args, **(kwargs or {}))


def expected_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight; a shared one appears once."""
    return {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}


def check_shapes(path: Path, wanted: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> None:
    """Weights must be exactly those the configuration implies."""
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise ModelError(
                f"{path}: weight '{name}' has shape {found.get(name)}, config.json implies {wanted.get(name)}"
            )
