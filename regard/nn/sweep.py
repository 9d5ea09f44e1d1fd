"""A stack of layers over all positions at once, as a search needs it: the same sums without Python between operations.

The encoder of a Transformer is such a stack, and the decoders are that write all words at once. For a single sentence
Python takes longer than the arithmetic. Where rows are of different lengths, products are made of real places alone.
The contract tests hold a model's searches equal to its layers.

A stack is a row of parts, each with a residual connection and a layer norm around it:

    self      all positions look at all (others: but not at themselves)
    places    positional attention: positions look at positions, and find the vectors that stand there
    memory    all positions look at a memory
    forward   the feed-forward block
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention, MultiHead
from regard.nn.blocks import FeedForward, Residual, activate
from regard.nn.product import FEW, LARGE, ROWS, pack_weight
from regard.nn.self_attention import PositionalAttention, SelfAttention
from regard.nn.single import Single, trace_row
from regard.nn.step import norm, scripted, up
from regard.nn.threads import enough_threads

MANY = 2**13  # scores from which filling places up to a multiple of 16 costs less than it saves
SMALL = 2**21  # scores up to which plain products are faster than torch's kernel, with several threads up to four times
NARROW = 16  # places below which torch's softmax is slow; with one thread its attention kernel is faster there
KEPT = 64  # places up to which it is kept what positions look at
# keys and values of each layer [B,H,S,d], and mask (None: all can be seen)
Look = tuple[Sequence[tuple[Tensor, Tensor]], Bool[Tensor, "B S"] | None]


@dataclass(frozen=True)
class Stack:
    """Layers made ready for a sweep, for as long as no weight changes."""

    parts: list[str]  # what each part is, through all layers
    weights: list[list[list[Tensor]]]  # of each part: those of its products, then those of its layer norm
    attentions: list[Attention]
    heads: int
    pre: bool  # layer norm before a part, not after it
    activation: str
    epsilon: float  # of the layer norms
    positions: Callable[[int, int], Tensor] | None = None  # the first, how many → [T,D], for positional attention
    kept: dict[int, tuple[Tensor, list[Tensor]]] = field(default_factory=dict)  # what so many positions need, by `keep`

    @classmethod
    def of(
        cls,
        layers: Sequence[nn.Module],
        names: Sequence[tuple[str, str]],
        positions: Callable[[int, int], Tensor] | None = None,
    ) -> "Stack | None":
        """From layers with the named parts and residual connections; None where one is of a kind not known here."""
        found = [(getattr(layer, part), getattr(layer, around)) for layer in layers for part, around in names]
        pairs = [(part, around) for part, around in found if part is not None]  # None: a part that is left out
        if not pairs or any(kind_of(part) is None or not is_usual(around) for part, around in pairs):
            return None
        attentions = [part for part, _ in pairs if isinstance(part, Attention)]
        activations = [part.activation for part, _ in pairs if isinstance(part, FeedForward)]
        norms = [around.norm for _, around in pairs]
        return cls(
            [kind_of(part) or "" for part, _ in pairs],
            [[*weights_of(part), [around.norm.weight, around.norm.bias]] for part, around in pairs],
            attentions,
            attentions[0].heads if attentions else 1,
            pairs[0][1].pre,
            activations[0] if activations else "relu",
            norms[0].eps,
            positions if any(isinstance(part, PositionalAttention) for part, _ in pairs) else None,
        )

    @cached_property
    def size(self) -> int:
        """Weights of a layer."""
        every = sum(product[0].numel() for part in self.weights for product in part[:-1])
        return every // self.parts.count(self.parts[0])

    @property
    def watched(self) -> bool:
        """Whether somebody wants to see where the layers look: a sweep shows it to nobody."""
        return any(each.tap is not None for each in self.attentions)

    @cached_property
    def single(self) -> Single:
        """All parts for a single short row."""
        return trace_row(self.parts, self.weights, self.heads, self.pre, self.activation, self.epsilon)

    @cached_property
    def short(self) -> int:
        """Positions below which a single row is done best by the operations alone: no product is one for oneDNN."""
        widest = max((each for part in self.weights for each in part[:-1]), key=lambda product: product[0].numel())
        plain = -(-LARGE // widest[0].numel()) if widest[1].is_mkldnn else KEPT + 1
        return min(plain, KEPT + 1, math.isqrt((MANY - 1) // self.heads) + 1)

    def keep(self, length: int) -> tuple[Tensor, list[Tensor]]:
        """For a single row of this length: what hides each position from itself, and where positions look [H,T,T]."""
        if length not in self.kept:
            glances = []
            if self.positions is not None:
                places = self.positions(0, length)
                for part, (product, *_) in zip(self.parts, self.weights, strict=True):
                    if part == "places":
                        query, key = split(affine(product, places), 1, length, 2 * self.heads)[0].chunk(2)
                        glances.append(torch.bmm(query, key.mT).softmax(-1))
            self.kept[length] = apart(length, self.weights[0][0][0]).expand(self.heads, -1, -1), glances
        return self.kept[length]

    def forward(
        self, x: Float[Tensor, "N T D"], mask: Bool[Tensor, "N T"] | None, memory: Look | None = None
    ) -> Float[Tensor, "N T D"]:
        """What the layers make of all positions (of no mask all are there).

        `memory` may have fewer rows, each for equally many of x.
        """
        (rows, length), heads = x.shape[:2], self.heads
        pairs, seen = memory or ((), None)
        if more := up(length) - length if rows * heads * length**2 >= MANY else 0:
            mask = x.new_ones(rows, length, dtype=torch.bool) if mask is None else mask
            x, mask = F.pad(x, (0, 0, 0, more)), F.pad(mask, (0, more))
        bias, hidden = bias_of(mask, heads), bias_of(seen, heads)
        if rows == 1 and bias is None and hidden is None and 1 < length < self.short:
            others, glances = self.keep(length)
            keys, values = ([each[0] for each in both] for both in (zip(*pairs, strict=True) if pairs else ((), ())))
            with enough_threads(length * self.size):
                return self.single(x[0], others, glances, keys, values)[None]
        real = None if mask is None or bias is None else real_places(mask)
        alone = mask.sum(1) == 1 if mask is not None else x.new_ones(rows, dtype=torch.bool) if length == 1 else None
        others = None
        if "others" in self.parts:
            others = apart(x.size(1), x).expand(rows * heads, -1, -1)
            others = others if bias is None else others + bias
        places, glances = x, list[Tensor]()
        if self.positions is not None and rows == 1 and bias is None and length <= KEPT:
            glances = self.keep(length)[1]
        elif self.positions is not None:
            places = self.positions(0, x.size(1))
        with enough_threads(rows * x.size(1) * self.size):
            y = scripted(all_parts)(
                pack(x.flatten(0, 1), real), rows, x.size(1), real, self.parts, self.weights, bias,
                others, alone, places, glances, [keys for keys, _ in pairs],
                [values for _, values in pairs], hidden, heads, self.pre, self.activation, self.epsilon,
                NARROW if torch.get_num_threads() == 1 else 0,
            )  # fmt: skip
        return spread(y, real, rows * x.size(1)).view(x.shape)[:, :length]


@dataclass(frozen=True)
class Projection:
    """What several attentions make of one memory, in one product."""

    product: list[Tensor]
    heads: int

    @classmethod
    @torch.no_grad()
    def of(cls, attentions: Sequence[MultiHead]) -> "Projection":
        """Of attentions with equally many heads."""
        joined = join(*((each.memory.weight, each.memory.bias) for each in attentions))
        return cls(each_way(*joined), attentions[0].heads)

    def project(self, memory: Float[Tensor, "B S M"], mask: Bool[Tensor, "B S"]) -> tuple[tuple[Tensor, Tensor], ...]:
        """Keys and values [B,H,S,d] of each attention."""
        real = real_places(mask) if len(mask) > 1 else None
        both = spread(affine(self.product, pack(memory.flatten(0, 1), real)), real, mask.numel())
        both = both.view(*mask.shape, -1, 2, self.heads, memory.size(2) // self.heads)  # [B,S,Y,2,H,d]
        keys, values = both.permute(3, 2, 0, 4, 1, 5).unbind(0)
        return tuple(zip(keys.unbind(0), values.unbind(0), strict=True))


def kind_of(part: nn.Module) -> str | None:
    """What a part is called here; None for what is not known."""
    if isinstance(part, FeedForward):
        return "forward"
    if isinstance(part, PositionalAttention):
        return "places"
    if isinstance(part, SelfAttention):
        plain = part.relation is None and not part.radius and not part.causal
        return ("self" if part.itself else "others") if plain else None
    return "memory" if type(part) is MultiHead else None


def is_usual(around: nn.Module) -> bool:
    """Whether a part has a residual connection and a layer norm."""
    return isinstance(around, Residual) and around.residual and isinstance(around.norm, nn.LayerNorm)


@torch.no_grad()
def weights_of(part: Any) -> list[list[Tensor]]:
    """What each product of a part needs."""
    if isinstance(part, FeedForward):
        products = [(each.weight, each.bias) for each in (part.inner, part.outer)]
    else:
        (keys, values), (key_bias, value_bias) = part.memory.weight.chunk(2), part.memory.bias.chunk(2)
        scale = (len(part.query.weight) // part.heads) ** -0.5  # of scores
        asked = [(part.query.weight * scale, part.query.bias * scale)]
        if isinstance(part, SelfAttention):
            asked = [join(asked[0], (keys, key_bias), (values, value_bias))]
        elif isinstance(part, PositionalAttention):
            asked = [join(asked[0], (keys, key_bias)), (values, value_bias)]
        products = [*asked, (part.out.weight, part.out.bias)]
    return [each_way(weight, bias) for weight, bias in products]


def each_way(weight: Tensor, bias: Tensor) -> list[Tensor]:
    """A weight as [in, out], the same packed, and its bias."""
    return [weight.t().contiguous(), pack_weight(weight), bias.clone()]


def join(*products: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Several products of the same vectors as one."""
    weights, biases = zip(*products, strict=True)
    return torch.cat(weights), torch.cat(biases)


def bias_of(mask: Bool[Tensor, "B S"] | None, heads: int) -> Float[Tensor, "BH 1 S"] | None:
    """What is added to scores: 0 or, behind the mask, −∞; None where everything can be seen."""
    if mask is None or bool(mask.all()):
        return None
    bias = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, float("-inf"))
    return bias.repeat_interleave(heads, 0)[:, None]


def apart(length: int, like: Tensor) -> Float[Tensor, "1 T T"]:
    """What is added to scores so that no position looks at itself."""
    return torch.diag(like.new_full((length,), float("-inf")))[None]


def real_places(mask: Bool[Tensor, "N T"]) -> Int[Tensor, " R"] | None:
    """Where something stands among all places of all rows; None where leaving the others out does not pay."""
    real = mask.flatten().nonzero()[:, 0]
    return real if 8 * len(real) <= 7 * mask.numel() else None


# What follows is run as TorchScript.


def all_parts(
    x: Tensor,  # [N·T,D], or [R,D] of the real places alone
    rows: int,
    length: int,
    real: Tensor | None,  # [R]
    parts: list[str],
    weights: list[list[list[Tensor]]],
    bias: Tensor | None,  # [N·H,1,T]
    others: Tensor | None,  # the same, and what hides each position from itself, [N·H,T,T]
    alone: Tensor | None,  # [N] where a row has but one position
    places: Tensor,  # [T,D]
    glances: list[Tensor],  # [H,T,T], or none
    keys: list[Tensor],  # [B,H,S,d]
    values: list[Tensor],
    hidden: Tensor | None,  # [B·H,1,S]
    heads: int,
    pre: bool,
    activation: str,
    epsilon: float,
    narrow: int,
) -> Tensor:
    """All positions through all parts."""
    looks, glanced = 0, 0
    for number, part in enumerate(parts):
        own = weights[number]
        weight, shift = own[-1]
        y = norm(x, weight, shift, epsilon) if pre else x
        if part == "forward":
            relu = activation == "relu"  # which oneDNN does together with the product
            y = affine(own[0], y, relu)
            y = y if relu else activate(y, activation)
        elif part == "places":
            value = split(spread(affine(own[1], y), real, rows * length), rows, length, heads)
            if len(glances) > 0:
                y = joined(torch.bmm(glances[glanced], value[0])[None])
                glanced += 1
            else:
                query, key = split(affine(own[0], places), 1, length, 2 * heads).chunk(2, 1)
                y = pack(mix(query, key, value, bias, narrow), real)
        elif part == "memory":
            key, value = keys[looks], values[looks]
            looks += 1
            query = spread(affine(own[0], y), real, rows * length)
            query = split(query, key.size(0), query.size(0) // key.size(0), heads)
            y = pack(mix(query, key, value, hidden, narrow), real)
        else:
            all_three = spread(affine(own[0], y), real, rows * length)
            query, key, value = split(all_three, rows, length, 3 * heads).chunk(3, 1)
            if part == "others":
                y = mix(query, key, value, others, 0)  # with such a mask torch's kernel is slower
                if alone is not None:  # it has no others to look at
                    y = y.view(rows, length, -1).masked_fill(alone[:, None, None], 0.0).view(y.shape)
            else:
                y = mix(query, key, value, bias, narrow)
            y = pack(y, real)
        y = affine(own[-2], y).add_(x)
        x = y if pre else norm(y, weight, shift, epsilon)
    return x


def affine(
    product: list[Tensor], x: Tensor, relu: bool = False, large: int = LARGE, few: int = FEW, many: int = ROWS
) -> Tensor:
    """Rows of x [N,K] times a weight [K,V], given with its packed form and its bias → [N,V]."""
    weight, packed, bias = product
    rows = x.size(0)
    if packed.is_mkldnn and rows >= few and x.numel() * weight.size(1) >= large:
        more = -rows % (many if rows >= many else few)
        x = F.pad(x, [0, 0, 0, more]) if more > 0 else x
        return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "relu" if relu else "none", [], "")[:rows]
    y = torch.addmm(bias, x, weight, beta=bias.dim())  # 1: TorchScript makes two operations where it knows that
    return y.relu_() if relu else y


def pack(x: Tensor, real: Tensor | None) -> Tensor:
    """Of vectors at all places those at the real ones."""
    return x if real is None else x.index_select(0, real)


def spread(x: Tensor, real: Tensor | None, places: int) -> Tensor:
    """Vectors at real places → at all, zero elsewhere."""
    return x if real is None else x.new_zeros([places, x.size(1)]).index_copy_(0, real, x)


def split(x: Tensor, rows: int, length: int, heads: int) -> Tensor:
    """Vectors [N·T,D] → [N,H,T,d]."""
    return x.view(rows, length, heads, -1).transpose(1, 2)


def joined(heads: Tensor) -> Tensor:
    """Vectors [N,H,T,d] → [N·T,D]."""
    return heads.transpose(1, 2).reshape(-1, heads.size(1) * heads.size(3))


def mix(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, narrow: int, small: int = SMALL) -> Tensor:
    """What queries [N,H,T,d], which are scaled, find in a memory [N,H,S,d] → [N·T,D]; one row's are those of all."""
    rows, heads, places, size = values.shape
    length = query.size(2)
    if rows * heads * length * places > small or places < narrow:
        query, keys = query.expand(rows, -1, -1, -1), keys.expand(rows, -1, -1, -1)
        seen = None if bias is None else bias.view(rows, heads, -1, places)
        context = F.scaled_dot_product_attention(query, keys, values, seen, scale=1.0)
    else:
        turned = keys.transpose(2, 3).flatten(0, 1)
        if query.size(0) < rows:
            scores = torch.bmm(query.flatten(0, 1), turned).repeat(rows, 1, 1)
            scores = scores if bias is None else scores.add_(bias)
        elif bias is None:
            scores = torch.bmm(query.flatten(0, 1), turned)
        else:
            scores = torch.baddbmm(bias, query.flatten(0, 1), turned, beta=bias.size(1))  # 1, see `affine`
        context = torch.bmm(scores.softmax(-1), values.flatten(0, 1)).view(rows, heads, length, size)
    return joined(context)
