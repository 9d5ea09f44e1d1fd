"""Transformer (Vaswani et al. 2017, "Attention Is All You Need").

Idea: no recurrence; every position looks at every other through multi-head attention, so a whole sequence is
computed at once and the path between any two positions has length one.

    encoder layer   x ← x + SelfAttention(x);   x ← x + FeedForward(x)
    decoder layer   x ← x + MaskedSelfAttention(x);   x ← x + CrossAttention(x, memory);   x ← x + FeedForward(x)

with dropout on each sub-layer's output and layer norm after each sum (post, the paper) or before each
sub-layer (pre). Differs from the paper by option only: pre-norm, GELU/SwiGLU, learned, concatenated or relative
positions, self-attention restricted to a neighbourhood (section 4), shared layers, untied embeddings, separate depths.
Self-attention, feed-forward, residuals and norms can be left out, to see what each is worth.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from regard.config import Count, Fraction, Options, Positive
from regard.data.batch import Batch
from regard.models.base import Autoregressive, Memory, check_shared, select_rows
from regard.nn.attention import MultiHead, hide, padding_mask
from regard.nn.blocks import Activation, FeedForward, Norm, Residual, Skip
from regard.nn.embedding import Embedding, PositionJoin, token_table
from regard.nn.product import Linear
from regard.nn.relative import RelationKind, make_relation
from regard.nn.self_attention import Cache, SelfAttention
from regard.nn.step import Layers, Past, Sight, Stepper, up
from regard.nn.sweep import Projection, Stack

ENCODER = (("self_attention", "around_attention"), ("feed_forward", "around_feed_forward"))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, options: "Transformer.Config") -> None:
        super().__init__()
        self.self_attention = make_self_attention(options, causal=False)
        self.feed_forward = make_feed_forward(options)
        self.around_attention = make_residual(options, self.self_attention)
        self.around_feed_forward = make_residual(options, self.feed_forward)

    def forward(self, x: Float[Tensor, "B S D"], mask: Tensor) -> Float[Tensor, "B S D"]:
        def look_around(y: Tensor) -> Tensor:
            assert self.self_attention is not None
            return self.self_attention(y, mask)[0]

        x = self.around_attention(x, look_around)
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward."""

    def __init__(self, options: "Transformer.Config") -> None:
        super().__init__()
        self.self_attention = make_self_attention(options, causal=True)
        self.cross_attention = MultiHead(options.width, options.heads, options.attention_dropout)
        self.feed_forward = make_feed_forward(options)
        self.around_attention = make_residual(options, self.self_attention)
        self.around_cross = make_residual(options, self.cross_attention)
        self.around_feed_forward = make_residual(options, self.feed_forward)

    def forward(
        self, x: Float[Tensor, "N T D"], keys: Tensor, values: Tensor, mask: Tensor, cache: Cache | None
    ) -> tuple[Float[Tensor, "N T D"], Cache | None]:
        def look_back(y: Tensor) -> Tensor:
            nonlocal cache
            assert self.self_attention is not None
            y, cache = self.self_attention(y, None, cache)
            return y

        x = self.around_attention(x, look_back)
        x = self.around_cross(x, lambda y: self.cross_attention(y, keys, values, mask))
        return self.around_feed_forward(x, self.feed_forward), cache


def make_self_attention(options: "Transformer.Config", causal: bool) -> SelfAttention | None:
    """The self-attention of a layer, if there is one."""
    if not options.self_attention:
        return None
    relation = make_relation(options.positions, options.width, options.heads, options.relative_limit)
    return SelfAttention(
        options.width,
        options.heads,
        options.attention_dropout,
        causal=causal,
        radius=options.neighbourhood // 2,
        relation=relation,
    )


def make_feed_forward(options: "Transformer.Config") -> FeedForward | None:
    """The feed-forward block of a layer, if there is one."""
    if not options.feed_forward:
        return None
    return FeedForward(options.width, options.feed_forward, options.activation, options.activation_dropout)


def make_residual(options: "Transformer.Config", sublayer: nn.Module | None) -> Residual | Skip:
    """The residual connection around a sub-layer; where there is none, nothing happens."""
    return Residual(options.width, options.norm, options.dropout, options.residual) if sublayer else Skip()


def make_layers(kind: type[nn.Module], number: int, options: "Transformer.Config") -> nn.ModuleList:
    """A stack of layers, all with the weights of the first if they are shared (Dehghani 2019)."""
    layers = nn.ModuleList(kind(options) for _ in range(number))
    for layer in layers[1:] if options.share_layers else ():
        for name, weight in layers[0].named_parameters():
            module, _, last = name.rpartition(".")
            setattr(layer.get_submodule(module), last, weight)
    return layers


def make_norm(options: "Transformer.Config") -> nn.Module:
    """The layer norm behind a stack of pre-norm layers; post-norm layers need none."""
    return nn.LayerNorm(options.width) if options.norm == "pre" else nn.Identity()


def make_projection(options: "Transformer.Config", vocabulary: int) -> nn.Linear | None:
    """The output layer, where it has a table of its own."""
    if options.tie not in ("none", "embeddings"):
        return None
    projection = Linear(options.width, vocabulary, bias=False)
    nn.init.normal_(projection.weight, std=options.width**-0.5)
    return projection


class Sizes(Options):
    """The options that variants of the Transformer share."""

    width: Positive = 256  # of every vector between layers
    heads: Positive = 4
    encoder_layers: Positive = 3
    decoder_layers: Positive = 3
    feed_forward: Positive = 1024  # inner width
    norm: Literal["pre", "post"] = "pre"
    dropout: Fraction = 0.1  # on embeddings and the output of each sub-layer

    @model_validator(mode="after")
    def _check_heads(self) -> "Sizes":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided into {self.heads} heads")
        return self


@dataclass(frozen=True)
class Layout:
    """The layers as a search reads them; None where they have parts that are not known there."""

    encoder: Stack | None
    decoder: Any
    memory: Projection


def through_encoder(layers: nn.ModuleList, layout: Layout | None, x: Tensor, mask: Tensor) -> Tensor:
    """All layers of an encoder."""
    stack = layout and layout.encoder
    if stack is not None and not stack.watched:
        return stack.forward(x, None if len(mask) == 1 else mask)  # in a search one row has nothing behind it
    for layer in layers:
        x = layer(x, mask)
    return x


@dataclass
class TransformerState:
    """What each layer remembers of the decoded positions: here their keys and values."""

    caches: tuple[Any, ...]
    position: int


class Transformer(Autoregressive):
    """Encoder and decoder of attention and feed-forward layers."""

    decoder_layer: type[nn.Module] = DecoderLayer
    in_parts = True

    class Config(Options):
        width: Positive = 256  # of every vector between layers (d_model)
        heads: Positive = 4
        encoder_layers: Count = 3  # 0: the decoder looks at the embeddings themselves
        decoder_layers: Positive = 3
        share_layers: bool = False  # one layer's weights at every depth, as in the Universal Transformer
        self_attention: bool = True  # without it the layers only look from target to source
        neighbourhood: Count = 0  # self-attention reaches r/2 positions to each side, at linear cost (0: all)
        feed_forward: Count = 1024  # inner width (d_ff); 0: no feed-forward
        activation: Activation = "relu"
        residual: bool = True
        norm: Norm = "pre"  # pre trains without warm-up troubles, post is the paper's
        # added to the embeddings (sinusoidal, learned), or known to self-attention only (the last four)
        positions: Literal["sinusoidal", "learned", "none", "shaw", "transformer_xl", "rotary", "alibi"] = "sinusoidal"
        relative_limit: Positive = 16  # with "shaw": farther apart counts as this far
        position_join: PositionJoin = "add"
        position_width: Count = 0  # with "concatenate": how much of width is for the position (0: an eighth)
        max_length: Positive = 512  # with "learned": positions in the table
        tie: Literal["none", "output", "embeddings", "all"] = "output"  # which of source, target, output share a table
        dropout: Fraction = 0.1  # on embeddings and the output of each sub-layer
        embedding_dropout: Fraction | None = None  # on embeddings, where it is not that of the sub-layers
        attention_dropout: Fraction = 0.0  # on the weights; above 0 the fast kernel is left
        activation_dropout: Fraction = 0.0  # inside the feed-forward

        @model_validator(mode="after")
        def _check(self) -> "Transformer.Config":
            if self.width % self.heads:
                raise ValueError(f"width {self.width} cannot be divided into {self.heads} heads")
            if self.position_join == "concatenate":
                if self.tie in ("output", "all"):
                    raise ValueError("concatenated positions make embeddings narrower: tie must be none or embeddings")
                if self.positions not in ("sinusoidal", "learned"):
                    raise ValueError("position_join = 'concatenate' needs positions = 'sinusoidal' or 'learned'")
                if self.position_width >= self.width:
                    raise ValueError(f"position_width must be below width ({self.width})")
            if self.positions == "rotary" and self.width // self.heads % 2:
                raise ValueError(
                    f"rotary positions turn pairs: the width of a head ({self.width // self.heads}) is odd"
                )
            if self.neighbourhood % 2:
                raise ValueError(f"neighbourhood reaches r/2 to each side: {self.neighbourhood} is odd")
            if not self.self_attention:
                if self.neighbourhood or self.positions in get_args(RelationKind):
                    raise ValueError("neighbourhood and relative positions need self_attention = true")
                if self.encoder_layers and not self.feed_forward:
                    raise ValueError("an encoder layer needs self_attention or feed_forward, or encoder_layers = 0")
            return self

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        shared = check_shared(options.tie, source_vocabulary, target_vocabulary)
        self.options = options
        self.limit = options.max_length if options.positions == "learned" else None
        width = options.width
        if options.position_join == "concatenate":
            width -= options.position_width or max(2, options.width // 8)
        source = token_table(source_vocabulary, width)
        target = source if shared else token_table(target_vocabulary, width)
        self.source = self._embedding(source)
        self.target = self._embedding(target)
        self.encoder = make_layers(EncoderLayer, options.encoder_layers, options)
        self.decoder = make_layers(self.decoder_layer, options.decoder_layers, options)
        self.encoder_norm, self.decoder_norm = make_norm(options), make_norm(options)
        self.projection = make_projection(options, target_vocabulary)

    def _embedding(self, table: nn.Embedding) -> Embedding:
        options = self.options
        absolute = options.positions if options.positions in ("sinusoidal", "learned") else "none"
        dropout = options.dropout if options.embedding_dropout is None else options.embedding_dropout
        return Embedding(table, options.width, absolute, options.position_join, options.max_length, dropout)

    def encode(self, batch: Batch) -> Memory:
        return self.encode_by(None, batch)

    def encode_by(self, layout: "Layout | None", batch: Batch) -> Memory:
        mask = padding_mask(batch.source_length, batch.source.size(1))
        x = hide(self.source(batch.source), mask)  # once: what is finite here stays so in all layers
        x = self.encoder_norm(through_encoder(self.encoder, layout, x, mask))
        if layout is None:
            return Memory(x, mask, tuple(attention.project(x) for attention in self.looking))
        x = hide(x, mask)
        if layout.decoder is not None:  # its steps look at so many places
            more = up(mask.size(1)) - mask.size(1)
            x, mask = F.pad(x, (0, 0, 0, more)), F.pad(mask, (0, more))
        return Memory(x, mask, layout.memory.project(x, mask), hidden=True)

    @property
    def looking(self) -> list[MultiHead]:
        """The attentions to the memory that have weights of their own."""
        layers: Any = self.decoder[:1] if self.options.share_layers else self.decoder
        return [layer.cross_attention for layer in layers]

    def lay_out(self) -> "Layout":
        return Layout(
            Stack.of([*self.encoder], ENCODER),
            Layers.of([*self.decoder], self.decoder_norm),
            Projection.of(self.looking),
        )

    def start(self, memory: Memory, layout: "Layout | None" = None) -> "TransformerState | Stepper":
        rows, heads, width = len(memory.values), self.options.heads, self.options.width
        steps = layout and layout.decoder
        if steps is None or steps.watched:
            empty = Cache.empty(rows, heads, width // heads, memory.values)
            return TransformerState(tuple(empty for _ in self.decoder), 0)
        past = Past.empty(len(self.decoder), rows, heads, width // heads, memory.values)
        return Stepper(steps, past, Sight.of(memory.projected, memory.mask))

    def decode(
        self, tokens: Int[Tensor, "N T"], memory: Memory, state: "TransformerState | Stepper | None" = None
    ) -> tuple[Float[Tensor, "N T D"], "TransformerState | Stepper | None"]:
        if isinstance(state, Stepper):
            outputs = []
            for number in range(tokens.size(1)):
                y, state = state.forward(tokens[:, number], self.target.entry(state.position))
                outputs.append(y[:, None])
            return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1), state
        x = self.target(tokens, state.position if state else 0)
        caches: list[Any] = [*state.caches] if state else [None] * len(self.decoder)
        for number, layer in enumerate(self.decoder):
            keys, values = memory.projected[number % len(memory.projected)]
            x, caches[number] = layer(x, keys, values, memory.mask, caches[number])
        after = TransformerState(tuple(caches), state.position + tokens.size(1)) if state else None
        return self.decoder_norm(x), after

    def select(
        self, state: "TransformerState | Stepper", memory: Memory, rows: Tensor, sentences: Tensor | None
    ) -> "tuple[TransformerState | Stepper, Memory]":
        if not isinstance(state, Stepper):
            return super().select(state, memory, rows, sentences)
        past = state.past.select(rows, sentences)
        if sentences is None:
            return replace(state, past=past), memory
        memory = select_rows(memory, sentences)
        return replace(state, past=past, sight=Sight.of(memory.projected, memory.mask)), memory

    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        return (self.target.tokens if self.projection is None else self.projection).weight, None
