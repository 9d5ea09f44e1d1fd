"""ConvS2S (Gehring et al. 2017, "Convolutional Sequence to Sequence Learning").

Idea: no recurrence; stacked convolutions with gated linear units see a window that grows with depth, all positions
are computed at once, and every decoder layer attends to the source anew (multi-step attention).

    block            h ← (h + GLU(conv(h))) · √½
    attention in l   d_i = (W h_i + b + g_i) √½      a_i· = softmax_j(d_i · z_j)      c_i = √S Σ_j a_ij (z_j + e_j) √½
                     h_i ← (h_i + W' c_i + b') · √½

with z the encoder's outputs, e its input embeddings, g those of the decoder, S the source length; learned positions,
weight normalisation, the encoder's gradient divided by twice the number of attentions.

Differs from the paper: all layers are equally wide.
"""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import Fraction, Options, Positive, Several
from regard.data.batch import Batch
from regard.models.base import Autoregressive, Memory, check_shared
from regard.nn.attention import Dot, hide, padding_mask
from regard.nn.blocks import Dropout
from regard.nn.convolution import GatedConvolution, Normed, scale_gradient
from regard.nn.position import Learned

HALF = 0.5**0.5  # keeps the variance of a sum of two


@dataclass
class ConvolutionState:
    """The last inputs of each layer's convolution."""

    pasts: tuple[Float[Tensor, "N P D"], ...]
    position: int


class PlacedEmbedding(nn.Module):
    """E(token) + P(position), both from N(0, 0.1), and dropout."""

    def __init__(self, tokens: nn.Embedding, limit: int, dropout: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = Learned(tokens.embedding_dim, limit)
        self.dropout = Dropout(dropout)
        for table in (self.tokens.weight, self.positions.table):
            nn.init.normal_(table, std=0.1)

    def forward(self, ids: Int[Tensor, "B T"], start: int = 0) -> Float[Tensor, "B T E"]:
        """Vectors of ids that stand at the positions start, start + 1, …"""
        return self.dropout(self.tokens(ids) + self.positions(start, ids.size(1)))


class DecoderLayer(nn.Module):
    """A causal gated convolution and its attention to the source."""

    def __init__(self, options: "ConvS2S.Config") -> None:
        super().__init__()
        width, embedding = options.width, options.embedding
        self.dropout = Dropout(options.dropout)
        self.convolution = GatedConvolution(width, options.decoder_kernel, options.dropout)
        self.to_query = Normed(width, embedding)
        self.cross_attention = Dot(embedding, embedding)
        self.from_context = Normed(embedding, width)

    def forward(
        self, x: Float[Tensor, "N T D"], embedded: Float[Tensor, "N T E"], memory: Memory, past: Tensor | None
    ) -> tuple[Float[Tensor, "N T D"], Tensor]:
        y, past = self.convolution.behind(self.dropout(x), past)
        keys, values = memory.projected[0]
        context = self.cross_attention((self.to_query(y) + embedded) * HALF, keys, values, memory.mask)
        root = memory.mask.sum(1).to(y.dtype).sqrt().repeat_interleave(len(x) // len(keys))
        y = (y + self.from_context(context * root[:, None, None])) * HALF
        return (x + y) * HALF, past


class ConvS2S(Autoregressive):
    """Encoder and decoder of gated convolutions, with attention in every decoder layer."""

    class Config(Options):
        width: Positive = 256  # of every layer
        embedding: Positive = 256
        encoder_layers: Positive = 4
        decoder_layers: Positive = 3
        encoder_kernel: Positive = 3  # positions a convolution sees
        decoder_kernel: Several = 3  # of 1, a position would see nothing of those before it
        max_length: Positive = 512  # positions in the learned tables
        tie: Literal["none", "output", "embeddings", "all"] = "none"  # which of source, target, output share a table
        dropout: Fraction = 0.2  # on embeddings, the input of each convolution and the output

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        shared = check_shared(options.tie, source_vocabulary, target_vocabulary)
        self.options = options
        self.limit = options.max_length
        width, embedding, dropout = options.width, options.embedding, options.dropout
        source = nn.Embedding(source_vocabulary, embedding)
        target = source if shared else nn.Embedding(target_vocabulary, embedding)
        self.source = PlacedEmbedding(source, options.max_length, dropout)
        self.target = PlacedEmbedding(target, options.max_length, dropout)
        self.dropout = Dropout(dropout)
        self.encoder_in = Normed(embedding, width, dropout)
        self.encoder = nn.ModuleList(
            GatedConvolution(width, options.encoder_kernel, dropout) for _ in range(options.encoder_layers)
        )
        self.encoder_out = Normed(width, embedding)
        self.decoder_in = Normed(embedding, width, dropout)
        self.decoder = nn.ModuleList(DecoderLayer(options) for _ in range(options.decoder_layers))
        self.decoder_out = Normed(width, embedding)
        self.projection = None
        if options.tie in ("none", "embeddings"):
            self.projection = Normed(embedding, target_vocabulary, dropout)

    def encode(self, batch: Batch) -> Memory:
        mask = padding_mask(batch.source_length, batch.source.size(1))
        embedded = hide(self.source(batch.source), mask)
        x = self.encoder_in(embedded)
        for layer in self.encoder:
            x = (x + layer.around(self.dropout(hide(x, mask)))) * HALF  # type: ignore[operator]
        keys = scale_gradient(self.encoder_out(x), 0.5 / len(self.decoder))
        values = (keys + embedded) * HALF
        return Memory(values, mask, ((keys, values),))

    def start(self, memory: Memory, layout: Any = None) -> ConvolutionState:
        size = self.options.decoder_kernel - 1, self.options.width
        return ConvolutionState(tuple(memory.values.new_zeros(len(memory.values), *size) for _ in self.decoder), 0)

    def decode(
        self, tokens: Int[Tensor, "N T"], memory: Memory, state: ConvolutionState | None = None
    ) -> tuple[Float[Tensor, "N T E"], ConvolutionState]:
        position, pasts = (state.position, state.pasts) if state else (0, (None,) * len(self.decoder))
        embedded = self.target(tokens, position)
        x, after = self.decoder_in(embedded), []
        for layer, past in zip(self.decoder, pasts, strict=True):
            x, past = layer(x, embedded, memory, past)
            after.append(past)
        return self.dropout(self.decoder_out(x)), ConvolutionState(tuple(after), position + tokens.size(1))

    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        if self.projection is None:
            return self.target.tokens.weight, None
        return self.projection.linear.weight, self.projection.linear.bias
