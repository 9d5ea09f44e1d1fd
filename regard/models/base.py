"""What a model promises. Training and search see nothing else of it.

    encode(batch) → Memory                    everything that depends on the source, computed once
    output(hidden) → logits
    loss(batch) → summed loss, tokens

word by word (Autoregressive)

    start(memory) → State                     the decoder before its first word
    decode(tokens, memory, state) → hidden, state     any T tokens after any state; T1 then T2 equals T1+T2

all words at once (Parallel)

    propose(memory, …) → Canvas               places to be filled, as many as the model thinks the output has
    fill(canvas, memory) → hidden             of every place
    read(tokens) → tokens                     what the filled places say

A State is a tree of tensors, each batch first; a plain integer in it is the same for all rows. In search the
State has K rows for each row of the Memory. `decode` may write into the state it is given and returns the
one to go on with. `state=None` means from the beginning with nothing to keep, as in training.
"""

import dataclasses
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Options, validate
from regard.data.batch import BOS, Batch
from regard.errors import ConfigError
from regard.nn.attention import hide, padding_mask
from regard.nn.loss import token_loss

# name in a recipe → "module:class", imported on use
MODELS = {
    "rnn": "regard.models.rnn:RNN",
    "bytenet": "regard.models.bytenet:ByteNet",
    "convs2s": "regard.models.convs2s:ConvS2S",
    "transformer": "regard.models.transformer:Transformer",
    "average": "regard.models.average:AverageAttention",
    "nonautoregressive": "regard.models.nonautoregressive:NonAutoregressive",
    "ctc": "regard.models.ctc:CTC",
    "maskpredict": "regard.models.maskpredict:MaskPredict",
}

State = Any


@dataclasses.dataclass(frozen=True)
class Memory:
    """What can be attended to; nothing of it is behind the mask."""

    values: Float[Tensor, "B S M"]
    mask: Bool[Tensor, "B S"]
    projected: tuple[tuple[Tensor, Tensor], ...] = ()  # keys and values of each attention that reads the memory
    summary: Tensor | None = None  # [B,…] one vector for the whole source, where a model has it
    tokens: Tensor | None = None  # [B,S] the source's ids, where a model copies them
    hidden: dataclasses.InitVar[bool] = False  # whether who makes it knows that nothing is behind the mask

    def __post_init__(self, hidden: bool) -> None:
        if hidden:
            return
        if not torch.is_grad_enabled() and self.mask.device.type == "cpu" and bool(self.mask.all()):
            return  # nothing is behind the mask; elsewhere one would wait for the answer
        seen = tuple((self._hide(keys), self._hide(values)) for keys, values in self.projected)
        object.__setattr__(self, "values", hide(self.values, self.mask))
        object.__setattr__(self, "projected", seen)

    def select(self, rows: Tensor) -> "Memory":
        """The named sentences, behind whose mask there is nothing either."""
        fields = {field.name: select_rows(getattr(self, field.name), rows) for field in dataclasses.fields(self)}
        return Memory(**fields, hidden=True)

    def _hide(self, vectors: Tensor) -> Tensor:
        """Vectors that are only looked at through the mask: it is enough that they are finite."""
        if torch.is_grad_enabled() and vectors.device.type == "cpu" and bool(vectors.detach().sum().isfinite()):
            return vectors
        return hide(vectors, self.mask)


def shift_right(target: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Decoder input: BOS, then the target without its last token."""
    return torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], 1)


def check_shared(tie: str, source_vocabulary: int, target_vocabulary: int) -> bool:
    """Whether source and target share one embedding table; they must then share a vocabulary."""
    shared = tie in ("embeddings", "all")
    if shared and source_vocabulary != target_vocabulary:
        raise ValueError(
            f"tie = '{tie}' needs one vocabulary for both sides (text.joint = true), "
            f"found {source_vocabulary} and {target_vocabulary} pieces"
        )
    return shared


def select_rows(tree: Any, rows: Tensor) -> Any:
    """The named rows of every tensor in a tree; what knows better has a `select` of its own."""
    if isinstance(tree, Tensor):
        turned = tree.dim() > 2 and tree.stride(-1) != 1  # keys laid out for search stay so
        return tree.mT.index_select(0, rows).mT if turned else tree.index_select(0, rows)
    if hasattr(tree, "select"):
        return tree.select(rows)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {field.name: select_rows(getattr(tree, field.name), rows) for field in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **fields)
    if isinstance(tree, (tuple, list)):
        return type(tree)(select_rows(item, rows) for item in tree)
    if isinstance(tree, dict):
        return {name: select_rows(item, rows) for name, item in tree.items()}
    return tree


class Model(nn.Module, ABC):
    """Base of all encoder–decoder models."""

    Config: ClassVar[type[Options]]  # a model's own options: the `model` section of a recipe
    limit: int | None = None  # longest source or target the model can take, EOS counted
    in_parts: bool = False  # whether it trains faster with a part of the batch in every thread of a CPU
    needs: ClassVar[tuple[str, ...]] = ()  # columns of the corpus it learns from, beside source and target

    @abstractmethod
    def encode(self, batch: Batch) -> Memory: ...

    def lay_out(self) -> Any:
        """What a search can use instead of the layers, for as long as no weight changes."""
        return None

    def encode_by(self, layout: Any, batch: Batch) -> Memory:
        """The same as `encode`, by what `lay_out` has made."""
        return self.encode(batch)

    @abstractmethod
    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        """Weight [V,D] and bias [V] of the output layer."""

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B T V"]:
        """Logits of all target positions, the target known (for tests, scores and views)."""

    @abstractmethod
    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """Summed loss of the target, and the number of its tokens."""

    def output(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Logits over the target vocabulary."""
        return nn.functional.linear(hidden, *self.output_weights())

    def token_loss(
        self,
        hidden: Float[Tensor, "B T D"],
        target: Int[Tensor, "B T"],
        asked: Bool[Tensor, "B T"],
        smoothing: float,
    ) -> Tensor:
        """Summed cross-entropy of the target positions that are asked for; no other reaches the output layer."""
        places = asked.flatten().nonzero().squeeze(1)
        rows = hidden.flatten(0, 1).index_select(0, places).float()
        labels = target.flatten().index_select(0, places)
        return token_loss(rows, *self.output_weights(), labels, smoothing)

    def tensors(self, batch: Batch) -> Batch:
        """The model's door: numpy arrays become tensors on its device."""
        device = next(self.parameters()).device
        return batch.map(lambda array: torch.as_tensor(array, device=device))


class Autoregressive(Model):
    """Word after word: the loss and the reordering of states are the same for all."""

    @abstractmethod
    def start(self, memory: Memory, layout: Any = None) -> State: ...

    @abstractmethod
    def decode(
        self, tokens: Int[Tensor, "N T"], memory: Memory, state: State = None
    ) -> tuple[Float[Tensor, "N T D"], State]: ...

    def forward(self, batch: Batch) -> Float[Tensor, "B T V"]:
        batch = self.tensors(batch)
        return self.output(self.decode(shift_right(batch.target), self.encode(batch))[0])

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        count = int(batch.target_length.sum())  # from numpy, before anything is on a device
        batch = self.tensors(batch)
        hidden, _ = self.decode(shift_right(batch.target), self.encode(batch))
        real = padding_mask(batch.target_length, batch.target.size(1))
        return self.token_loss(hidden, batch.target, real, smoothing), count

    def select(self, state: State, memory: Memory, rows: Tensor, sentences: Tensor | None) -> tuple[State, Memory]:
        """The named rows of the state and, if the number of sentences changes, of the memory."""
        return select_rows(state, rows), memory if sentences is None else select_rows(memory, sentences)


def model_class(kind: str) -> type[Model]:
    """The class behind a name of the MODELS table."""
    if kind not in MODELS:
        raise ConfigError(f"model.kind: unknown model '{kind}'; known: {', '.join(MODELS)}")
    module, _, name = MODELS[kind].partition(":")
    return getattr(import_module(module), name)


def model_options(section: dict[str, Any], where: str = "model") -> tuple[type[Model], Any]:
    """The `model` section of a recipe → the class and its checked options."""
    values = dict(section)
    kind = values.pop("kind", "transformer")
    found = model_class(kind)
    return found, validate(found.Config, values, where)


def build_model(section: dict[str, Any], source_vocabulary: int, target_vocabulary: int) -> Model:
    """A model with fresh weights from the `model` section of a recipe."""
    found, options = model_options(section)
    try:
        return found(options, source_vocabulary, target_vocabulary)  # type: ignore[call-arg]
    except ValueError as error:
        raise ConfigError(f"model: {error}") from None
