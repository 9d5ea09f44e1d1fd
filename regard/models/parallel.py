"""What the models share that write all words at once: places to be filled, a decoder that sees all of them, the loss.

A proposal says how many places an output has and what stands at them before they are filled. The decoder looks in both
directions, so nothing of the output is known but the places:

    layer   x ← x + SelfAttention(x);  x ← x + PositionalAttention(x);  x ← x + CrossAttention(x, memory);
            x ← x + FeedForward(x)

A target has one place for each word. Its end is no word of its own: with the number of places it is certain.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batch import EOS, PAD, Batch, Writing
from regard.models.base import Memory, Model, check_shared
from regard.models.transformer import (
    ENCODER,
    EncoderLayer,
    Layout,
    Transformer,
    make_feed_forward,
    make_norm,
    make_projection,
    make_residual,
    through_encoder,
)
from regard.nn.attention import MultiHead, hide, padding_mask
from regard.nn.embedding import Embedding, token_table
from regard.nn.position import Sinusoidal
from regard.nn.self_attention import PositionalAttention, SelfAttention
from regard.nn.sweep import Projection, Stack

PARTS = (
    ("place_attention", "around_attention"),
    ("place_positions", "around_positions"),
    ("cross_attention", "around_cross"),
    ("feed_forward", "around_feed_forward"),
)


@dataclass(frozen=True)
class Canvas:
    """Places to be filled, of K candidates for each sentence, one after the other."""

    tokens: Int[Tensor, "N T"]  # what stands at the places before they are filled; PAD beyond the last
    length: Int[Tensor, "N"]  # places of each candidate
    price: Float[Tensor, "N"]  # log-probability of the proposal
    fertility: Int[Tensor, "N S"] | None = None  # of each source token, where the model has it
    asked: Bool[Tensor, "N T"] | None = None  # places a lesson is about (None: all)

    @cached_property
    def mask(self) -> Bool[Tensor, "N T"]:
        """True at the places."""
        return padding_mask(self.length, self.tokens.size(1))


@dataclass(frozen=True)
class Filled:
    """The places of a known target."""

    hidden: Float[Tensor, "B T D"]
    places: Int[Tensor, "B L"] | None  # at which the words stand; None: one by one
    price: Float[Tensor, "B"]  # log-probability of all that is not a word: proposal, blanks, repetitions


class ParallelLayer(nn.Module):
    """A decoder layer that sees all places."""

    def __init__(self, options: Transformer.Config, itself: bool, positional: bool) -> None:
        super().__init__()
        width, heads, dropout = options.width, options.heads, options.attention_dropout
        self.place_attention = SelfAttention(width, heads, dropout, itself=itself)
        self.place_positions = PositionalAttention(width, heads, dropout) if positional else None
        self.cross_attention = MultiHead(width, heads, dropout)
        self.feed_forward = make_feed_forward(options)
        self.around_attention = make_residual(options, self.place_attention)
        self.around_positions = make_residual(options, self.place_positions)
        self.around_cross = make_residual(options, self.cross_attention)
        self.around_feed_forward = make_residual(options, self.feed_forward)

    def forward(
        self, x: Float[Tensor, "N T D"], mask: Tensor, positions: Tensor, keys: Tensor, values: Tensor, seen: Tensor
    ) -> Float[Tensor, "N T D"]:
        def look_at_places(y: Tensor) -> Tensor:
            assert self.place_positions is not None
            return self.place_positions(y, positions, mask)

        x = self.around_attention(x, lambda y: self.place_attention(y, mask)[0])
        x = self.around_positions(x, look_at_places)
        x = self.around_cross(x, lambda y: self.cross_attention(y, keys, values, seen))
        return self.around_feed_forward(x, self.feed_forward)


class Parallel(Model):
    """An encoder as the Transformer's, and a decoder that fills all places at once.

    A descendant says what it proposes, what it is taught, and what filled places say.
    """

    in_parts = True
    blank: int | None = None  # the token that fills a place with nothing, where there is one
    never: tuple[int, ...] = ()  # tokens that fill no place
    copies: bool = True  # whether places hold source words before they are filled, not target words

    def __init__(
        self, whole: Transformer.Config, sizes: tuple[int, int], itself: bool = True, positional: bool = False
    ) -> None:
        super().__init__()
        shared = check_shared(whole.tie, *sizes)
        source = token_table(sizes[0], whole.width)
        self.source = Embedding(source, whole.width, "sinusoidal", dropout=whole.dropout)
        target = source if shared or self.copies else token_table(sizes[1], whole.width)
        self.canvas = Embedding(target, whole.width, "sinusoidal", dropout=whole.dropout)
        self.positions = Sinusoidal(whole.width)
        self.encoder = nn.ModuleList(EncoderLayer(whole) for _ in range(whole.encoder_layers))
        self.decoder = nn.ModuleList(ParallelLayer(whole, itself, positional) for _ in range(whole.decoder_layers))
        self.encoder_norm, self.decoder_norm = make_norm(whole), make_norm(whole)
        self.projection = make_projection(whole, sizes[1])

    @abstractmethod
    def propose(
        self, memory: Memory, number: int, generators: Sequence[Any] | None = None, mean: bool = False
    ) -> Canvas:
        """So many candidates for each sentence: the likeliest first, the others drawn where it is not said how.

        Where there are fertilities, the first one may have their `mean`.
        """

    @abstractmethod
    def teach(self, batch: Batch, memory: Memory) -> tuple[Canvas, Tensor]:
        """Places for the words of the targets as they are known, and the loss of having to propose them."""

    def lesson(self, batch: Batch, memory: Memory) -> tuple[Canvas, Tensor]:
        """What an update is made from; it may differ from what is known by chance."""
        return self.teach(batch, memory)

    def read(self, tokens: Sequence[int]) -> list[int]:
        """What filled places say."""
        return list(tokens)

    def told(self, batch: Batch, canvas: Canvas, hidden: Float[Tensor, "N T D"]) -> Filled:
        """Where the words of a target stand, and the price of all but them."""
        return Filled(hidden, None, canvas.price)

    @torch.no_grad()
    def lay_out(self) -> Layout:
        return Layout(
            Stack.of([*self.encoder], ENCODER),
            Stack.of([*self.decoder], PARTS, self.positions),
            Projection.of(self.looking),
        )

    def encode(self, batch: Batch) -> Memory:
        return self.encode_by(None, batch)

    def encode_by(self, layout: Layout | None, batch: Batch) -> Memory:
        mask = padding_mask(batch.source_length, batch.source.size(1))
        behind = None if layout is not None and len(mask) == 1 else mask  # in a search one row has nothing behind it
        x = hide(self.source(batch.source), behind)
        x = hide(self.encoder_norm(through_encoder(self.encoder, layout, x, mask)), behind)
        if layout is None:
            return Memory(x, mask, tuple(attention.project(x) for attention in self.looking), tokens=batch.source)
        return Memory(x, mask, layout.memory.project(x, mask), tokens=batch.source, hidden=True)

    @property
    def looking(self) -> list[MultiHead]:
        """The attentions to the memory."""
        layers: Any = self.decoder
        return [layer.cross_attention for layer in layers]

    def fill(self, canvas: Canvas, memory: Memory, layout: Layout | None = None) -> Float[Tensor, "N T D"]:
        """Hidden vectors of all places."""
        stack = layout and layout.decoder
        if stack is not None and not stack.watched:
            behind, seen = (None, None) if len(canvas.tokens) == 1 else (canvas.mask, memory.mask)
            x = hide(self.canvas(canvas.tokens), behind)
            return self.decoder_norm(stack.forward(x, behind, (memory.projected, seen)))
        mask = canvas.mask
        x = hide(self.canvas(canvas.tokens), mask)
        positions = self.positions(0, canvas.tokens.size(1))
        for layer, (keys, values) in zip(self.decoder, memory.projected, strict=True):
            x = layer(x, mask, positions, keys, values, memory.mask)
        return self.decoder_norm(x)

    def filled(self, batch: Batch, writing: Writing | None = None) -> Filled:
        """The places of known targets; of one target with its `writing`, as they were filled for the last time."""
        memory = self.encode(batch)
        canvas = self.teach(batch, memory)[0] if writing is None else self.unfilled(writing)
        return self.told(batch, canvas, self.fill(canvas, memory))

    def unfilled(self, writing: Writing) -> Canvas:
        """The places of an output before they were filled for the last time."""
        weight = self.source.tokens.weight
        tokens = torch.tensor([writing.start], device=weight.device)
        return Canvas(tokens, tokens.new_tensor([tokens.size(1)]), weight.new_zeros(1))

    def forward(self, batch: Batch) -> Float[Tensor, "B T V"]:
        """The end of a target, which has no place of its own, has the probability of all that is not a word."""
        batch = self.tensors(batch)
        filled = self.filled(batch)
        hidden = filled.hidden
        if filled.places is not None:
            hidden = hidden.gather(1, filled.places[:, :, None].expand(-1, -1, hidden.size(2)))
        words = self.output(hidden)
        lowest = torch.finfo(words.dtype).min
        logits = words.new_full((*batch.target.shape, words.size(-1)), lowest)
        price = filled.price.to(words)[:, None]
        logits[:, :, EOS] = price
        logits[:, :, PAD] = (1 - price.exp()).log().clamp_min(lowest)  # the rest goes to what nobody writes
        shown = min(words.size(1), logits.size(1))
        real = padding_mask(batch.target_length - 1, shown)[:, :, None]
        logits[:, :shown] = torch.where(real, words[:, :shown], logits[:, :shown])
        return logits

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        count = int(batch.target_length.sum())
        batch = self.tensors(batch)
        memory = self.encode(batch)
        canvas, proposal = self.lesson(batch, memory)
        hidden = self.fill(canvas, memory)[:, : batch.target.size(1)]
        asked = padding_mask(batch.target_length - 1, hidden.size(1))
        if canvas.asked is not None:
            asked = asked & canvas.asked[:, : hidden.size(1)]
        return self.token_loss(hidden, batch.target[:, : hidden.size(1)], asked, smoothing) + proposal, count

    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        return (self.canvas.tokens if self.projection is None else self.projection).weight, None


def copied(source: Int[Tensor, "N S"], fertility: Int[Tensor, "N S"]) -> tuple[Int[Tensor, "N T"], Int[Tensor, "N"]]:
    """Every source token as often as its fertility says, and how many that makes: at least one, the first token."""
    total = fertility.sum(1)
    if not bool(total.all()):
        fertility = fertility.index_put((total == 0, total.new_zeros(1)), total.new_ones(1))
        total = total.clamp_min(1)
    tokens = source.flatten().repeat_interleave(fertility.flatten())
    if len(source) == 1:
        return tokens[None], total
    mask = padding_mask(total, int(total.amax()))
    return tokens.new_full(mask.shape, PAD).masked_scatter_(mask, tokens), total


class Refining(Parallel):
    """One whose filled places may be looked at again, some of them hidden."""

    @abstractmethod
    def hide(self, canvas: Canvas, tokens: Int[Tensor, "N T"], hidden: Bool[Tensor, "N T"]) -> Canvas:
        """The canvas filled with tokens, but for the hidden places."""

    def unfilled(self, writing: Writing) -> Canvas:
        canvas = super().unfilled(writing)
        if len(writing.passes) == 1:
            return canvas
        tokens, hidden = (
            canvas.tokens.new_tensor([each]) for each in (writing.passes[-2].tokens, writing.passes[-1].fresh)
        )
        return self.hide(canvas, tokens, hidden.bool())
