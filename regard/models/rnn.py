"""Recurrent encoder–decoder, with a fixed context vector or with attention.

    none      Cho et al. 2014: the encoder's last state c feeds every step.     s_t = f(s_{t−1}, [y_{t−1}; c])
    additive  Bahdanau et al. 2014: a context for each step, found with the state before it.
                  c_t = Σ_j a_tj h_j,  a_t· from (s_{t−1}, h)      s_t = f(s_{t−1}, [y_{t−1}; c_t])
                  s_0 = tanh(W · first backward state)
              both read out by  maxout(U s_t + V y_{t−1} + C c_t)
    dot, general, concat   Luong et al. 2015: the context is found with the new state.
                  s_t = f(s_{t−1}, [y_{t−1}; ŝ_{t−1}])      ŝ_t = tanh(W_c [c_t; s_t])
              where ŝ_{t−1} enters only with input feeding. With `local` only a part of the source is looked at.

Differs from the papers: the GRU has torch's reset gate; Luong's decoder starts from tanh(W · last encoder
states), since the encoder may read in both directions; dropout on embeddings, between layers and on the output.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor

from regard.config import Count, Fraction, Options, Positive
from regard.data.batch import Batch
from regard.models.base import Autoregressive, Memory, check_shared
from regard.nn.attention import SCORES, padding_mask
from regard.nn.blocks import Dropout
from regard.nn.embedding import token_table
from regard.nn.local import Local, LocalKind
from regard.nn.product import Linear
from regard.nn.recurrent import CellKind, Recurrent, RecurrentEncoder, RecurrentState

Look = Callable[[Tensor], Tensor]  # queries [N,T,D] → contexts [N,T,M]


@dataclass
class RecurrentDecoderState:
    """Before the next word."""

    hidden: RecurrentState  # each [N,layers,D]
    feed: Float[Tensor, "N D"] | None  # ŝ of the last step, with input feeding
    position: int = 0  # steps taken


class RNN(Autoregressive):
    """Encoder and decoder of vanilla, GRU or LSTM layers."""

    class Config(Options):
        cell: CellKind = "gru"
        width: Positive = 256  # of a state
        embedding: Positive = 256
        encoder_layers: Positive = 1
        decoder_layers: Positive = 1
        bidirectional: bool = True  # the encoder reads in both directions
        attention: Literal["none", "additive", "dot", "general", "concat"] = "additive"
        attention_width: Count = 0  # inner width of additive and concat scores (0: width)
        input_feeding: bool = True  # Luong: the last ŝ enters the next step
        local: LocalKind = "none"  # Luong: look only around step t (monotonic, local-m) or a predicted place (local-p)
        local_reach: Positive = 10  # so many positions to each side (D)
        tie: Literal["none", "output", "embeddings", "all"] = "none"  # which of source, target, output share a table
        dropout: Fraction = 0.2

        @model_validator(mode="after")
        def _check(self) -> "RNN.Config":
            luong = self.attention in ("dot", "general", "concat")
            if self.tie in ("output", "all") and luong and self.embedding != self.width:
                raise ValueError(f"tie = '{self.tie}' needs embedding = width, found {self.embedding} and {self.width}")
            if self.local != "none" and not luong:
                raise ValueError(f"local = '{self.local}' needs attention = dot, general or concat")
            return self

    def __init__(self, options: Config, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        shared = check_shared(options.tie, source_vocabulary, target_vocabulary)
        self.options = options
        width, embedding, dropout = options.width, options.embedding, options.dropout
        self.source = token_table(source_vocabulary, embedding)
        self.target = self.source if shared else token_table(target_vocabulary, embedding)
        self.scale = embedding**0.5
        self.dropout = Dropout(dropout)
        self.encoder = RecurrentEncoder(
            options.cell, embedding, width, options.encoder_layers, options.bidirectional, dropout
        )
        memory = width * self.encoder.directions
        self.luong = options.attention in ("dot", "general", "concat")
        self.in_parts = options.attention in ("additive", "concat")  # whose sums over all pairs outgrow the cache
        self.feeding = self.luong and options.input_feeding
        summary = width if options.attention == "additive" else memory
        parts = 2 if options.cell == "lstm" else 1
        self.bridge = Linear(summary, parts * options.decoder_layers * width)
        inputs = embedding + (0 if self.luong else memory) + (width if self.feeding else 0)
        self.decoder = Recurrent(options.cell, inputs, width, options.decoder_layers, dropout)
        if options.attention == "dot" and memory != width:
            self.narrow = Linear(memory, width, bias=False)
            memory = width
        else:
            self.narrow = None
        self.attention = None
        if options.attention != "none":
            self.attention = SCORES[options.attention](width, memory, options.attention_width or width)
        self.local = None if options.local == "none" else Local(options.local, width, options.local_reach)
        if self.luong:
            self.combine = Linear(memory + width, width, bias=False)
        else:
            self.readout = Linear(width + embedding + memory, 2 * embedding)
        self.projection = None
        if options.tie in ("none", "embeddings"):
            self.projection = Linear(width if self.luong else embedding, target_vocabulary)

    def encode(self, batch: Batch) -> Memory:
        embedded = self.dropout(self.source(batch.source) * self.scale)
        annotations, last = self.encoder(embedded, batch.source_length)
        mask = padding_mask(batch.source_length, batch.source.size(1))
        if self.attention is None:
            context = last.flatten(1)
            return Memory(context[:, None], mask[:, :1], summary=context)
        if self.narrow is not None:
            annotations = self.narrow(annotations)
        summary = last[:, -1] if self.options.attention == "additive" else last.flatten(1)
        return Memory(annotations, mask, ((self.attention.keys(annotations), annotations),), summary)

    def start(self, memory: Memory, layout: Any = None) -> RecurrentDecoderState:
        options = self.options
        states = torch.tanh(self.bridge(memory.summary)).unflatten(-1, (-1, options.decoder_layers, options.width))
        feed = memory.values.new_zeros(len(memory.values), options.width) if self.feeding else None
        return RecurrentDecoderState(states.unbind(1), feed)

    def decode(
        self, tokens: Int[Tensor, "N T"], memory: Memory, state: RecurrentDecoderState | None = None
    ) -> tuple[Float[Tensor, "N T D"], RecurrentDecoderState]:
        state = state or self.start(memory)
        embedded = self.dropout(self.target(tokens) * self.scale)
        if self.luong:
            hidden, state = (self._fed if self.feeding else self._unfed)(embedded, memory, state)
        else:
            run = self._fixed if self.attention is None else self._additive
            states, contexts, state = run(embedded, memory, state)
            read = self.readout(torch.cat([states, embedded, contexts], -1))
            hidden = read.unflatten(-1, (-1, 2)).amax(-1)  # maxout
        return self.dropout(hidden), state

    def _fixed(
        self, embedded: Tensor, memory: Memory, state: RecurrentDecoderState
    ) -> tuple[Tensor, Tensor, RecurrentDecoderState]:
        """Cho: the inputs of all steps are known, so they run in one call."""
        beams = len(embedded) // len(memory.values)
        contexts = memory.values.repeat_interleave(beams, 0).expand(-1, embedded.size(1), -1)
        states, last = self.decoder(torch.cat([embedded, contexts], -1), state.hidden)
        return states, contexts, RecurrentDecoderState(last, None)

    def _additive(
        self, embedded: Tensor, memory: Memory, state: RecurrentDecoderState
    ) -> tuple[Tensor, Tensor, RecurrentDecoderState]:
        """Bahdanau: look with the state before the step, then step."""
        walk, look = self.decoder.walk(embedded, state.hidden), self._reader(memory, state)
        top, states, contexts = state.hidden[0][:, -1], [], []
        for step in range(embedded.size(1)):
            contexts.append(look(top[:, None])[:, 0])
            top = walk.step(step, contexts[-1])
            states.append(top)
        return torch.stack(states, 1), torch.stack(contexts, 1), RecurrentDecoderState(walk.state, None)

    def _unfed(
        self, embedded: Tensor, memory: Memory, state: RecurrentDecoderState
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """Luong without input feeding: all steps in one call, then all contexts."""
        states, last = self.decoder(embedded, state.hidden)
        position = state.position + embedded.size(1)
        return self._combine(states, self._reader(memory, state)), RecurrentDecoderState(last, None, position)

    def _fed(
        self, embedded: Tensor, memory: Memory, state: RecurrentDecoderState
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """Luong with input feeding: step, look with the new state, and hand ŝ on to the next step."""
        walk, look = self.decoder.walk(embedded, state.hidden), self._reader(memory, state)
        feed, outputs = state.feed, []
        for step in range(embedded.size(1)):
            feed = self._combine(walk.step(step, feed)[:, None], look)[:, 0]  # type: ignore[arg-type]
            outputs.append(feed)
        return torch.stack(outputs, 1), RecurrentDecoderState(walk.state, feed, state.position + embedded.size(1))

    def _reader(self, memory: Memory, state: RecurrentDecoderState) -> Look:
        assert self.attention is not None
        if self.local is None:
            return self.attention.over(*memory.projected[0], memory.mask)
        return self.local.over(self.attention, *memory.projected[0], memory.mask, state.position)

    def _combine(self, states: Float[Tensor, "N T D"], look: Look) -> Float[Tensor, "N T D"]:
        """ŝ = tanh(W_c [c; s])."""
        return torch.tanh(self.combine(torch.cat([look(states), states], -1)))

    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        if self.projection is None:
            return self.target.weight, None
        return self.projection.weight, self.projection.bias
