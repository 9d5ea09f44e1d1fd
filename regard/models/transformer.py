"""Transformer (Vaswani et al. 2017, "Attention Is All You Need").

Idea: no recurrence; every position looks at every other through multi-head attention, so a whole sequence is
computed at once and the path between any two positions has length one.

    encoder layer   x ← x + SelfAttention(x);   x ← x + FeedForward(x)
    decoder layer   x ← x + MaskedSelfAttention(x);   x ← x + CrossAttention(x, memory);   x ← x + FeedForward(x)

with dropout on each sub-layer's output and layer norm after each sum (post, the paper) or before each
sub-layer (pre). Differs from the paper by option only: pre-norm, GELU/SwiGLU, learned or concatenated
positions, untied embeddings, separate depths.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from regard.config import Count, Fraction, Options, Positive
from regard.data.batch import Batch
from regard.models.base import Memory, Model, check_shared
from regard.nn.attention import Cache, MultiHead, causal, hide, padding_mask
from regard.nn.blocks import Activation, FeedForward, Residual
from regard.nn.embedding import Embedding, PositionJoin, PositionKind, token_table


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, options: "Transformer.Config") -> None:
        super().__init__()
        self.self_attention = MultiHead(options.width, options.heads, options.attention_dropout)
        self.feed_forward = make_feed_forward(options)
        self.around_attention, self.around_feed_forward = make_residuals(options, 2)

    def forward(self, x: Float[Tensor, "B S D"], mask: Tensor) -> Float[Tensor, "B S D"]:
        x = self.around_attention(x, lambda y: self.self_attention(y, *self.self_attention.project(y), mask))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward."""

    def __init__(self, options: "Transformer.Config") -> None:
        super().__init__()
        self.self_attention = MultiHead(options.width, options.heads, options.attention_dropout)
        self.cross_attention = MultiHead(options.width, options.heads, options.attention_dropout)
        self.feed_forward = make_feed_forward(options)
        self.around_attention, self.around_cross, self.around_feed_forward = make_residuals(options, 3)

    def forward(
        self, x: Float[Tensor, "N T D"], keys: Tensor, values: Tensor, mask: Tensor, cache: Cache | None
    ) -> tuple[Float[Tensor, "N T D"], Cache | None]:
        kept = cache

        def look_back(y: Tensor) -> Tensor:
            nonlocal kept
            own_keys, own_values = self.self_attention.project(y)
            if kept is not None:
                kept = kept.append(own_keys, own_values)
                own_keys, own_values = kept.filled()
            steps = y.size(1)
            pattern = causal(steps, own_keys.size(2), y.device) if steps > 1 else None
            return self.self_attention(y, own_keys, own_values, None, pattern)

        x = self.around_attention(x, look_back)
        x = self.around_cross(x, lambda y: self.cross_attention(y, keys, values, mask))
        return self.around_feed_forward(x, self.feed_forward), kept


def make_feed_forward(options: "Transformer.Config") -> FeedForward:
    """The feed-forward block of a layer."""
    return FeedForward(options.width, options.feed_forward, options.activation, options.activation_dropout)


def make_residuals(options: "Transformer.Config", number: int) -> list[Residual]:
    """The residual connections around the sub-layers of a layer."""
    return [Residual(options.width, options.norm, options.dropout) for _ in range(number)]


@dataclass
class TransformerState:
    """Keys and values of the decoded positions, layer by layer."""

    caches: tuple[Cache, ...]
    position: int


class Transformer(Model):
    """Encoder and decoder of attention and feed-forward layers."""

    class Config(Options):
        width: Positive = 256  # of every vector between layers (d_model)
        heads: Positive = 4
        encoder_layers: Positive = 3
        decoder_layers: Positive = 3
        feed_forward: Positive = 1024  # inner width (d_ff)
        activation: Activation = "relu"
        norm: Literal["pre", "post"] = "pre"  # pre trains without warm-up troubles, post is the paper's
        positions: PositionKind = "sinusoidal"
        position_join: PositionJoin = "add"
        position_width: Count = 0  # with "concatenate": how much of width is for the position (0: an eighth)
        max_length: Positive = 512  # with "learned": positions in the table
        tie: Literal["none", "output", "embeddings", "all"] = "output"  # which of source, target, output share a table
        dropout: Fraction = 0.1  # on embeddings and the output of each sub-layer
        attention_dropout: Fraction = 0.0  # on the weights; above 0 the fast kernel is left
        activation_dropout: Fraction = 0.0  # inside the feed-forward

        @model_validator(mode="after")
        def _check(self) -> "Transformer.Config":
            if self.width % self.heads:
                raise ValueError(f"width {self.width} cannot be divided into {self.heads} heads")
            if self.position_join == "concatenate":
                if self.tie in ("output", "all"):
                    raise ValueError("concatenated positions make embeddings narrower: tie must be none or embeddings")
                if self.positions == "none":
                    raise ValueError("position_join = 'concatenate' needs positions")
                if self.position_width >= self.width:
                    raise ValueError(f"position_width must be below width ({self.width})")
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
        self.encoder = nn.ModuleList(EncoderLayer(options) for _ in range(options.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(options) for _ in range(options.decoder_layers))
        pre = options.norm == "pre"
        self.encoder_norm = nn.LayerNorm(options.width) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(options.width) if pre else nn.Identity()
        self.projection = None
        if options.tie in ("none", "embeddings"):
            self.projection = nn.Linear(options.width, target_vocabulary, bias=False)
            nn.init.normal_(self.projection.weight, std=options.width**-0.5)

    def _embedding(self, table: nn.Embedding) -> Embedding:
        options = self.options
        return Embedding(
            table, options.width, options.positions, options.position_join, options.max_length, options.dropout
        )

    def encode(self, batch: Batch) -> Memory:
        mask = padding_mask(batch.source_length, batch.source.size(1))
        x = hide(self.source(batch.source), mask)  # once: what is finite here stays so in all layers
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        return Memory(x, mask, tuple(layer.cross_attention.project(x) for layer in self.decoder))  # type: ignore[operator]

    def start(self, memory: Memory) -> TransformerState:
        rows, heads = len(memory.values), self.options.heads
        empty = memory.values.new_zeros(rows, heads, 0, self.options.width // heads)
        return TransformerState(tuple(Cache(empty, empty, 0) for _ in self.decoder), 0)

    def decode(
        self, tokens: Int[Tensor, "N T"], memory: Memory, state: TransformerState | None = None
    ) -> tuple[Float[Tensor, "N T D"], TransformerState | None]:
        x = self.target(tokens, state.position if state else 0)
        caches: list[Cache | None] = [*state.caches] if state else [None] * len(self.decoder)
        for number, layer in enumerate(self.decoder):
            keys, values = memory.projected[number]
            x, caches[number] = layer(x, keys, values, memory.mask, caches[number])
        after = TransformerState(tuple(caches), state.position + tokens.size(1)) if state else None  # type: ignore[arg-type]
        return self.decoder_norm(x), after

    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        return (self.target.tokens if self.projection is None else self.projection).weight, None
