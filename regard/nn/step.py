"""A decoder for one more position, as a search needs it: the same sums in as few and fast operations as torch has.

What a step of a small model costs is not its arithmetic but the number of operations, and whether torch has a fast way
for their shapes. Here queries, keys and values are one product, vectors have no dimension for the position, each
product is made in the way that suits its size (`way_of`), attention looks at a multiple of 16 places (for fewer, torch
leaves its fast kernels), and no Python runs between operations.

The beams of a sentence share its places, and each sees those of its own line: a beam that goes on from another one
takes over what that one sees, and no key is copied. The contract tests hold a model's steps equal to its pass over all
positions.
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention, MultiHead
from regard.nn.blocks import FeedForward, Residual, activate
from regard.nn.product import Product, is_by_rows
from regard.nn.self_attention import SelfAttention
from regard.nn.threads import enough_threads

PARTS = (
    "self_attention", "cross_attention", "feed_forward", "around_attention", "around_cross", "around_feed_forward",
)  # fmt: skip
PRODUCTS = ("into", "out", "ask", "tell", "inner", "outer")  # of a layer, as `products_of` makes them
WIDE = 3 * 2**18  # rows × weights from which a call of oneDNN costs less than it saves
REPLACED = (*(f"times_{name}" for name in PRODUCTS), "activate")  # functions for which there are several ways
GRAIN = 16  # places: as many numbers as a register of the widest vector units has

Times = Callable[[Tensor, Tensor, Tensor], Tensor]  # weight, bias, x [N,D] → [N,V]
Entry = tuple[Tensor, Tensor, float]  # vectors of tokens, of the position, which is added or put beside; their factor
Ways = tuple[Callable[..., Tensor], ...]  # what is done in the places of REPLACED


@dataclass(frozen=True)
class Past:
    """Keys and values of all layers: at each position one place for each of the K beams of a sentence."""

    pairs: Float[Tensor, "Y 2 B H C d"]
    seen: Float[Tensor, "B K C"]  # what is added to scores: 0 where a beam sees a place, −∞ elsewhere
    length: int = 0  # places that are filled

    @classmethod
    def empty(cls, layers: int, rows: int, heads: int, size: int, like: Tensor) -> "Past":
        """A past of nothing, of one beam for each sentence."""
        return cls(like.new_zeros(layers, 2, rows, heads, 0, size), like.new_zeros(rows, 1, 0))

    def open(self) -> "Past":
        """The past with one more position, which is yet to be written."""
        beams = self.seen.size(1)
        if self.length + beams > self.seen.size(2):
            return self.widened().open()
        return Past(self.pairs, self.seen, self.length + beams)

    def widened(self) -> "Past":
        """The past with more room, without the places that no beam sees any more if they are a quarter or more."""
        used = self.seen[..., : self.length].isfinite().any(1)
        needed = int(used.sum(1).max()) if self.length else 0
        pairs, seen = self.pairs[..., : self.length, :], self.seen[..., : self.length]
        if 4 * needed <= 3 * self.length:
            order = used.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices[:, :needed]  # [B, needed]
            pairs = pairs.gather(4, order[:, None, :, None].expand(*pairs.shape[:4], needed, pairs.size(5)))
            seen = seen.gather(2, order[:, None].expand(*seen.shape[:2], needed))
        length = seen.size(2)
        room = up(max(GRAIN * seen.size(1), 2 * length))
        wider = pairs.new_empty(*pairs.shape[:4], room, pairs.size(5))
        wider[..., :length, :] = pairs
        wider[..., length:, :] = 0
        return Past(wider, F.pad(seen, (0, room - length), value=float("-inf")), length)

    def select(self, rows: Tensor, sentences: Tensor | None) -> "Past":
        """What the named beams see; the named sentences with their places, or all as they are."""
        seen = self.seen.flatten(0, 1).index_select(0, rows)
        pairs = self.pairs if sentences is None else self.pairs.index_select(2, sentences)
        number = pairs.size(2)
        return Past(pairs, seen.view(number, len(rows) // number, seen.size(1)), self.length)


class Sight(NamedTuple):
    """The memory as the layers look at it; there are as many keys and values as layers that differ."""

    keys: list[Float[Tensor, "BH d S"]]
    values: list[Float[Tensor, "BH S d"]]
    bias: Float[Tensor, "BH 1 S"]  # what is added to scores: 0 or, where there is nothing to see, −∞

    @classmethod
    def of(cls, projected: Sequence[tuple[Tensor, Tensor]], mask: Bool[Tensor, "B S"]) -> "Sight":
        """From keys and values [B,H,S,d] of each layer."""
        more = up(mask.size(1)) - mask.size(1)
        if more:
            projected = [(F.pad(keys, (0, 0, 0, more)), F.pad(values, (0, 0, 0, more))) for keys, values in projected]
        keys = [each.mT.flatten(0, 1) for each, _ in projected]
        values = [each.flatten(0, 1) for _, each in projected]
        heads = projected[0][1].size(1)
        bias = values[0].new_full((len(mask), mask.size(1) + more), float("-inf"))
        bias[:, : mask.size(1)].masked_fill_(mask, 0)
        return cls(keys, values, bias.repeat_interleave(heads, 0)[:, None])


@dataclass(frozen=True)
class Layers:
    """The layers of a decoder, made ready for single steps."""

    products: list[list[Product]]  # of each layer
    norms: list[list[Tensor]]  # weights and biases of the layer norms of each layer
    attentions: list[Attention]
    pre: bool  # layer norm before a part, not after it
    activation: str
    epsilon: float  # of the layer norms
    last: list[Tensor]  # weight and bias of a layer norm behind all layers, if there is one
    chosen: "dict[int, tuple[Ways, list[list[Tensor]]]]" = field(default_factory=dict)  # by the number of rows

    @classmethod
    def of(cls, layers: Sequence[nn.Module], last: nn.Module | None = None) -> "Layers | None":
        """Layers with the usual parts; None if they have parts that are not known here."""
        products, scales, attentions, kinds = [], [], [], set()
        for layer in layers:
            own, cross, forward, *around = (getattr(layer, name, None) for name in PARTS)
            if type(cross) is not MultiHead or not isinstance(forward, FeedForward):
                return None
            if not isinstance(own, SelfAttention) or own.relation is not None or own.radius:
                return None
            residuals = [each for each in around if isinstance(each, Residual) and each.residual]
            norms = [each.norm for each in residuals if isinstance(each.norm, nn.LayerNorm)]
            if len(norms) != len(around):
                return None
            products.append(products_of(own, cross, forward))
            scales.append([each for norm in norms for each in (norm.weight, norm.bias)])
            attentions += [own, cross]
            kinds.add((residuals[0].pre, forward.activation, norms[0].eps))
        (pre, activation, epsilon), *others = kinds
        behind: list[Tensor] = [*last.parameters()] if last else []
        return None if others else cls(products, scales, attentions, pre, activation, epsilon, behind)

    @cached_property
    def size(self) -> int:
        """Weights of a layer."""
        return sum(each.size for each in self.products[0])

    def ready(self, rows: int) -> "tuple[Ways, list[list[Tensor]]]":
        """How so many rows are multiplied, and the weights and biases of each layer as that reads them."""
        if rows not in self.chosen:
            ways = tuple(way_of(each, rows) for each in self.products[0])
            weights = [
                [*(part for way, each in zip(ways, own, strict=True) for part in form_of(each, way, rows)), *norms]
                for own, norms in zip(self.products, self.norms, strict=True)
            ]
            self.chosen[rows] = self._joined(ways), weights
        return self.chosen[rows]

    def _joined(self, ways: tuple[Times, ...]) -> Ways:
        """The ways of the products and of what is between the last two; oneDNN does a ReLU together with a product."""
        *others, inner, outer = ways
        if inner is packed_rows and self.activation == "relu":
            return (*others, packed_relu, outer, as_it_is)
        return (*ways, activate)

    @property
    def watched(self) -> bool:
        """Whether somebody wants to see where the layers look: steps show it to nobody."""
        return any(each.tap is not None for each in self.attentions)


@dataclass(frozen=True)
class Stepper:
    """A decoder on its way: its layers, what they have written and what they look at."""

    layers: Layers
    past: Past
    sight: Sight
    position: int = 0

    def forward(self, tokens: Int[Tensor, " N"], entry: Entry) -> tuple[Float[Tensor, "N D"], "Stepper"]:
        """What the layers make of the next tokens, and the stepper to go on with."""
        past, layers = self.past.open(), self.layers
        places = past.pairs, past.seen, past.length, up(past.length)
        ways, weights = layers.ready(len(tokens))
        how = layers.pre, layers.activation, layers.epsilon
        with enough_threads(len(tokens) * layers.size):
            x = scripted(all_layers, ways)(tokens, *entry, layers.last, weights, *places, *self.sight, *how)
        return x, replace(self, past=past, position=self.position + 1)


def products_of(own: SelfAttention, cross: MultiHead, forward: FeedForward) -> list[Product]:
    """Queries, keys and values in one; what comes out; the same for the memory; the two of the feed-forward."""
    heads = own.heads
    both = (by_heads(own.query.weight, own.memory.weight, heads), by_heads(own.query.bias, own.memory.bias, heads))
    others = ((each.weight, each.bias) for each in (own.out, cross.query, cross.out, forward.inner, forward.outer))
    return [Product.of(weight, bias) for weight, bias in (both, *others)]


def by_heads(query: Tensor, memory: Tensor, heads: int) -> Tensor:
    """Weights that make queries, keys and values, those of a head together."""
    return torch.stack([part.unflatten(0, (heads, -1)) for part in (query, *memory.chunk(2))], 1).flatten(0, 2)


def up(number: int) -> int:
    """The next multiple of GRAIN."""
    return -(-number // GRAIN) * GRAIN


# What follows is also run without Python, as TorchScript: between small operations Python takes as long as they do.


def all_layers(
    tokens: Tensor,  # [N]
    table: Tensor,  # [V,D], or narrower
    place: Tensor,  # [D], or what is missing
    factor: float,
    last: list[Tensor],
    weights: list[list[Tensor]],
    pairs: Tensor,  # [Y,2,B,H,C,d]
    seen: Tensor,  # [B,K,C]
    length: int,  # places with the new ones
    total: int,  # places that are looked at
    keys: list[Tensor],  # [B·H,d,S]
    values: list[Tensor],  # [B·H,S,d]
    hidden: Tensor,  # [B·H,1,S]
    pre: bool,
    activation: str,
    epsilon: float,
) -> Tensor:
    """The next position through all layers; keys and values of its own are written at the last places."""
    sentences, heads, size = pairs.size(2), pairs.size(3), pairs.size(5)
    x = torch.embedding(table, tokens)
    if table.size(1) == heads * size:
        x = torch.add(place, x, alpha=factor)
    else:
        x = torch.cat([x * factor, place.expand(x.size(0), -1)], 1)
    beams = seen.size(1)
    seen[:, :, length - beams : length].diagonal(0, 1, 2).zero_()  # each beam sees its own new place
    bias = seen[:, None, :, :total].expand(sentences, heads, beams, total).reshape(-1, beams, total)
    # of each layer, by few operations: the places to be written, and the keys and values that are looked at
    rooms = pairs.narrow(4, length - beams, beams).unbind(0)
    past = pairs.flatten(2, 3).narrow(3, 0, total)  # [Y,2,B·H,C,d]
    own_keys, own_values = past.select(1, 0).transpose(2, 3).unbind(0), past.select(1, 1).unbind(0)
    for number, own in enumerate(weights):
        (
            into, into_bias, out, out_bias, ask, ask_bias, tell, tell_bias, inner, inner_bias, outer, outer_bias,
            weight, shift, weight_2, shift_2, weight_3, shift_3,
        ) = own  # fmt: skip
        known = number % len(keys)
        # self-attention
        y = norm(x, weight, shift, epsilon) if pre else x
        both = times_into(into, into_bias, y).view(sentences, beams, heads, 3, size)
        rooms[number].copy_(both.narrow(3, 1, 2).permute(3, 0, 2, 1, 4))
        y = times_out(out, out_bias, look(both.select(3, 0), own_keys[number], own_values[number], bias)).add_(x)
        x = y if pre else norm(y, weight, shift, epsilon)
        # attention to the memory
        y = norm(x, weight_2, shift_2, epsilon) if pre else x
        query = times_ask(ask, ask_bias, y).view(sentences, beams, heads, size)
        y = times_tell(tell, tell_bias, look(query, keys[known], values[known], hidden)).add_(x)
        x = y if pre else norm(y, weight_2, shift_2, epsilon)
        # feed-forward
        y = norm(x, weight_3, shift_3, epsilon) if pre else x
        y = times_outer(outer, outer_bias, activate(times_inner(inner, inner_bias, y), activation)).add_(x)
        x = y if pre else norm(y, weight_3, shift_3, epsilon)
    return norm(x, last[0], last[1], epsilon) if len(last) > 0 else x


def few_rows(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """With weights that are not in the cache, torch does it this way up to three times as fast as the next.

    TorchScript makes two operations of a sum and a product where it knows that the factor of the sum is one.
    """
    return torch.addmm(bias, weight, x.t(), beta=bias.size(1)).t()


def many_rows(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """Vectors stay rows, which costs less in all that comes after."""
    return F.linear(x, weight, bias)


def packed_rows(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """With a weight that is packed by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def packed_relu(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """The same, and what is below zero is set to zero."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu", [], "")


def as_it_is(inner: Tensor, activation: str) -> Tensor:
    """What the product has done already."""
    return inner


def way_of(product: Product, rows: int) -> Times:
    """How so many rows are multiplied."""
    if product.packed.is_mkldnn:
        return packed_rows if rows * product.size >= WIDE else many_rows
    return many_rows if rows == 1 or is_by_rows(rows) else few_rows


def form_of(product: Product, way: Times, rows: int) -> tuple[Tensor, Tensor]:
    """Weight and bias as that way reads them."""
    assert product.bias is not None
    weight = product.form(rows, way is packed_rows)
    return weight, product.bias[:, None] if way is few_rows else product.bias


def times(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    """Weight [V,D] times the rows of x [N,D], with the bias → [N,V], in the way whose form they have.

    Without Python, `scripted` puts that way itself in this place: a choice costs there as much as a small product.
    """
    if weight.is_mkldnn:
        return packed_rows(weight, bias, x)
    return (few_rows if bias.dim() == 2 else many_rows)(weight, bias, x)


times_into = times_out = times_ask = times_tell = times_inner = times_outer = times


def look(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Attention of the beams of a sentence [B,K,H,d] together, each head as a sentence of its own → [N,D]."""
    sentences, beams, heads, size = query.shape
    turned = query.transpose(1, 2).reshape(sentences * heads, beams, size)
    weights = torch.baddbmm(bias, turned, keys, alpha=size**-0.5).softmax(-1)
    context = torch.bmm(weights, values).view(sentences, heads, beams, size)
    return context.transpose(1, 2).reshape(sentences * beams, heads * size)


def norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Layer norm."""
    return torch.layer_norm(x, weight.shape, weight, bias, epsilon)


@cache
def scripted(function: Callable[..., Tensor], ways: Ways = ()) -> Callable[..., Tensor]:
    """The function without Python between its operations, some of which are done in the given ways."""
    function, given = inspect.unwrap(function), dict(zip(REPLACED, ways, strict=False))

    def resolve(name: str) -> Any:  # what its file knows, also where a type checker is wrapped around it
        found = given.get(name) or function.__globals__.get(name)
        return inspect.unwrap(found) if inspect.isfunction(found) else found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # nothing else does this without a compiler
        return torch.jit.script(copied(function), _rcb=resolve)


def copied(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function as another object: torch compiles each object once."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__annotations__, copy.__module__ = function.__annotations__, function.__module__
    return copy
