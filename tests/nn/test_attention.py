import math

import pytest
import torch
import torch.nn.functional as F

from regard.data.batch import make_batch
from regard.models.base import shift_right
from regard.models.transformer import DecoderLayer, EncoderLayer, Transformer
from regard.nn.attention import (
    SCORES,
    Additive,
    Attention,
    Concat,
    Dot,
    General,
    MultiHead,
    hide,
    masked_softmax,
    padding_mask,
)
from regard.nn.self_attention import band

QUERIES, KEYS, WIDTH, MEMORY = 3, 5, 6, 4
LENGTHS = torch.tensor([5, 1, 3])


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def causal(queries: int, keys: int) -> torch.Tensor:
    """The last query stands at the last key."""
    return band(queries, keys, keys - queries, keys, 0)


# Scores against the papers' formulas, written as loops


def additive(module, s, h):
    """Bahdanau: v · tanh(W s + U h + b)."""
    return module.score.weight[0] @ torch.tanh(module.query.weight @ s + module.memory.weight @ h + module.memory.bias)


def concat(module, s, h):
    """Luong: v · tanh(W [s; h] + b), with W cut in two."""
    both = torch.cat([module.query.weight, module.memory.weight], 1)
    return module.score.weight[0] @ torch.tanh(both @ torch.cat([s, h]) + module.memory.bias)


def dot(module, s, h):
    return sum(s[i] * h[i] for i in range(len(s)))


def general(module, s, h):
    return s @ (module.memory.weight @ h)


FORMULAS = [(Additive, additive, MEMORY), (Concat, concat, MEMORY), (Dot, dot, WIDTH), (General, general, MEMORY)]


@pytest.mark.parametrize(("kind", "formula", "width"), FORMULAS, ids=[kind.__name__ for kind, _, _ in FORMULAS])
@torch.no_grad()
def test_scores_weights_and_context_are_those_of_the_paper(kind, formula, width):
    torch.manual_seed(0)
    attention = kind(WIDTH, width, 7)
    queries, memory = randn(3, QUERIES, WIDTH), randn(3, KEYS, width, seed=1)
    mask = padding_mask(LENGTHS, KEYS)
    seen = []
    attention.tap = seen.append
    found = attention(queries, attention.keys(memory), memory, mask)
    assert seen[0].shape == (3, 1, QUERIES, KEYS)
    for row, length in enumerate(LENGTHS.tolist()):
        for step in range(QUERIES):
            powers = [math.exp(formula(attention, queries[row, step], memory[row, s])) for s in range(length)]
            weights = [power / sum(powers) for power in powers]
            context = sum(weight * memory[row, s] for s, weight in enumerate(weights))
            torch.testing.assert_close(found[row, step], context, atol=1e-5, rtol=0)
            wanted = torch.tensor(weights + [0.0] * (KEYS - length))
            torch.testing.assert_close(seen[0][row, 0, step], wanted, atol=1e-5, rtol=0)


def test_every_kind_of_score_is_tested():
    assert set(SCORES.values()) == {kind for kind, _, _ in FORMULAS}


def test_dot_refuses_different_widths():
    with pytest.raises(ValueError, match="found 6 and 4"):
        Dot(6, 4)


def test_the_base_class_has_no_score():
    with pytest.raises(NotImplementedError):
        Attention()(randn(1, 1, 2), randn(1, 1, 2), randn(1, 1, 2))


# Masks


def test_padding_mask_is_true_at_real_positions():
    assert padding_mask(torch.tensor([2, 0, 3]), 3).tolist() == [[True, True, False], [False] * 3, [True] * 3]


def test_masked_softmax_is_exact_zero_outside_and_for_empty_rows():
    scores = randn(2, 3, 4).requires_grad_()
    allowed = torch.tensor([[True, True, False, False], [False] * 4, [False, False, False, True]])
    weights = masked_softmax(scores, allowed)
    torch.testing.assert_close(weights[:, 0, :2], scores[:, 0, :2].softmax(-1))
    assert not weights.masked_select(~allowed).any()
    assert (weights[:, 2, 3] == 1).all()
    (weights * randn(2, 3, 4, seed=1)).sum().backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[:, 1].any()
    assert scores.grad[:, 0, :2].all()
    assert torch.equal(masked_softmax(scores, None), scores.softmax(-1))


def make(kind, heads=2, dropout=0.0):
    """An attention of any kind as a function (query [3,T,8], memory [3,5,8], mask, pattern) → context."""
    torch.manual_seed(1)
    if kind == "multi-head":
        attention = MultiHead(8, heads, dropout)
        return attention, lambda query, memory, mask, *pattern: attention(
            query, *attention.project(memory), mask, *pattern
        )
    attention = SCORES[kind](8, 8, 8)
    return attention, lambda query, memory, mask: attention(query, attention.keys(memory), memory, mask)


KINDS = [*SCORES, "multi-head"]


@pytest.mark.parametrize("tapped", [False, True], ids=["fused", "tapped"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_with_nothing_to_look_at_gives_zeros_and_no_gradient(kind, tapped):
    attention, look = make(kind)
    attention.tap = (lambda weights: None) if tapped else None
    query, memory = randn(3, 2, 8).requires_grad_(), randn(3, KEYS, 8, seed=1).requires_grad_()
    mask = padding_mask(torch.tensor([5, 0, 2]), KEYS)
    context = look(query, memory, mask)
    nothing = attention.out.bias.expand(2, 8) if kind == "multi-head" else torch.zeros(2, 8)
    assert torch.equal(context[1], nothing)
    context.square().sum().backward()
    for tensor in (query.grad, memory.grad, *(parameter.grad for parameter in attention.parameters())):
        assert tensor.isfinite().all()
    assert not query.grad[1].any()
    assert not memory.grad[1].any()
    assert query.grad[0].any()
    assert not memory.grad[2, 2:].any()
    assert memory.grad[2, :2].any()


@pytest.mark.parametrize("tapped", [False, True], ids=["fused", "tapped"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_what_is_behind_the_mask_has_no_weight(kind, tapped):
    attention, look = make(kind)
    attention.tap = (lambda weights: None) if tapped else None
    query, memory = randn(3, 2, 8), randn(3, KEYS, 8, seed=1)
    mask = padding_mask(LENGTHS, KEYS)
    clean = look(query, memory, mask)
    assert torch.equal(look(query, memory.masked_fill(~mask[:, :, None], 1e6), mask), clean)
    for value in (float("nan"), float("inf")):
        assert torch.equal(look(query, hide(memory.masked_fill(~mask[:, :, None], value), mask), mask), clean)
    assert not torch.allclose(look(query, memory, None), clean)


def test_hide_zeroes_what_is_masked_with_and_without_heads():
    mask = padding_mask(LENGTHS, KEYS)
    for values in (torch.ones(3, KEYS, 2), torch.ones(3, 4, KEYS, 2)):
        assert torch.equal(hide(values, mask).amin(-1).sum(-1).flatten()[0], torch.tensor(5.0))
        assert hide(values, mask).sum() == values.numel() / (3 * KEYS) * LENGTHS.sum()
        assert hide(values, None) is values


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_beams_of_a_sentence_look_at_one_memory(kind):
    attention, look = make(kind)
    query, memory = randn(3 * 4, 2, 8), randn(3, KEYS, 8, seed=1)
    mask = padding_mask(LENGTHS, KEYS)
    repeated = look(query, memory.repeat_interleave(4, 0), mask.repeat_interleave(4, 0))
    torch.testing.assert_close(look(query, memory, mask), repeated, atol=1e-6, rtol=0)
    attention.tap = lambda weights: None
    with pytest.raises(RuntimeError, match="inside a search"):
        look(query, memory, mask)


# Multi-head against torch


def theirs(attention: MultiHead, query, memory, mask, pattern=None):
    """The same attention by torch.nn.functional: output [B,T,D] and weights [B,H,T,S]."""
    keys, values = attention.memory.weight.chunk(2)
    key_bias, value_bias = attention.memory.bias.chunk(2)
    output, weights = F.multi_head_attention_forward(
        query.transpose(0, 1),
        memory.transpose(0, 1),
        memory.transpose(0, 1),
        embed_dim_to_check=query.size(-1),
        num_heads=attention.heads,
        in_proj_weight=None,
        in_proj_bias=torch.cat([attention.query.bias, key_bias, value_bias]),
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=attention.out.weight,
        out_proj_bias=attention.out.bias,
        training=False,
        key_padding_mask=None if mask is None else ~mask,
        need_weights=True,
        attn_mask=None if pattern is None else ~pattern,
        use_separate_proj_weight=True,
        q_proj_weight=attention.query.weight,
        k_proj_weight=keys,
        v_proj_weight=values,
        average_attn_weights=False,
    )
    return output.transpose(0, 1), weights


def loud(module: torch.nn.Module, seed: int = 5) -> torch.nn.Module:
    """Random values for every parameter: fresh biases are zero and fresh norms are the identity."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(
                torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.5) + (parameter.dim() == 1) * 0.5
            )
    return module.eval()


@pytest.mark.parametrize("tapped", [False, True], ids=["fused", "tapped"])
@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("masks", ["none", "padding", "causal", "both", "window"])
@torch.no_grad()
def test_multi_head_equals_torch(heads, masks, tapped):
    memory_width = 6 if masks == "padding" else 8  # keys and values from a memory of another width, too
    attention = loud(MultiHead(8, heads, memory=memory_width))
    query, memory = randn(3, 5, 8), randn(3, KEYS, memory_width, seed=1)
    mask = padding_mask(LENGTHS, KEYS) if masks in ("padding", "both") else None
    near = band(5, KEYS, KEYS - 5, 1, 1)
    pattern = {"causal": causal(5, KEYS), "both": causal(5, KEYS), "window": near}.get(masks)
    wanted, wanted_weights = theirs(attention, query, memory, mask, pattern)
    seen = []
    attention.tap = seen.append if tapped else None
    found = attention(query, *attention.project(memory), mask, pattern)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
    if tapped:
        torch.testing.assert_close(seen[0], wanted_weights, atol=1e-5, rtol=0)


def test_fused_and_tapped_have_the_same_gradients():
    query, memory, mask = randn(3, 5, 8), randn(3, KEYS, 8, seed=1), padding_mask(LENGTHS, KEYS)
    gradients = []
    for tap in (None, lambda weights: None):
        attention = loud(MultiHead(8, 2))
        attention.tap = tap
        inputs = [query.clone().requires_grad_(), memory.clone().requires_grad_()]
        attention(inputs[0], *attention.project(inputs[1]), mask, causal(5, KEYS)).square().sum().backward()
        gradients.append([tensor.grad for tensor in (*inputs, *attention.parameters())])
    for fused, tapped in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, tapped, atol=1e-4, rtol=1e-4)


def test_width_must_be_divisible_by_heads():
    with pytest.raises(ValueError, match="8 cannot be divided into 3 heads"):
        MultiHead(8, 3)


@pytest.mark.parametrize("tapped", [False, True], ids=["fused", "tapped"])
def test_attention_dropout_keeps_the_mean(tapped):
    attention, look = make("multi-head", dropout=0.5)
    attention.tap = (lambda weights: None) if tapped else None
    query, memory = randn(1, 1, 8).expand(4000, 1, 8), randn(1, KEYS, 8, seed=1).expand(4000, KEYS, 8)
    with torch.no_grad():
        still = look(query[:1], memory[:1], None) if not attention.eval().training else None
        attention.train()
        noisy = look(query, memory, None)
    assert noisy.std(0).max() > 0.05
    torch.testing.assert_close(noisy.mean(0, keepdim=True), still, atol=0.05, rtol=0)


@torch.no_grad()
def test_self_attention_sees_a_set():
    """Without positions a permutation of the inputs permutes the outputs."""
    _, look = make("multi-head")
    x, order = randn(2, 6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    out = look(x, x, None)
    torch.testing.assert_close(look(x[:, order], x[:, order], None), out[:, order], atol=1e-6, rtol=0)
    assert not torch.allclose(out[:, order], out, atol=1e-3)
    causally = look(x, x, None, causal(6, 6))  # a causal pattern already breaks it
    assert not torch.allclose(look(x[:, order], x[:, order], None, causal(6, 6)), causally[:, order], atol=1e-3)


# Layers and the whole model against torch.nn


def copy_attention(ours: MultiHead, other: torch.nn.MultiheadAttention) -> None:
    other.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.memory.weight]))
    other.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.memory.bias]))
    other.out_proj.load_state_dict(ours.out.state_dict())


def copy_layer(ours, other) -> None:
    """Our layer's weights into torch's."""
    copy_attention(ours.self_attention, other.self_attn)
    norms = [ours.around_attention.norm]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross_attention, other.multihead_attn)
        norms.append(ours.around_cross.norm)
    norms.append(ours.around_feed_forward.norm)
    for number, norm in enumerate(norms, 1):
        getattr(other, f"norm{number}").load_state_dict(norm.state_dict())
    other.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    other.linear2.load_state_dict(ours.feed_forward.outer.state_dict())


CONFIG = {"width": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 2, "decoder_layers": 3, "dropout": 0.0}
TORCH = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0, "batch_first": True}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_encoder_layer_equals_torch(norm, activation):
    ours = loud(EncoderLayer(Transformer.Config(**CONFIG, norm=norm, activation=activation)))
    other = torch.nn.TransformerEncoderLayer(**TORCH, activation=activation, norm_first=norm == "pre").eval()
    copy_layer(ours, other)
    x, mask = randn(3, KEYS, 8), padding_mask(LENGTHS, KEYS)
    with torch.enable_grad():  # keeps torch off its own fused path, which needs no gradient
        wanted = other(x, src_key_padding_mask=~mask)
    torch.testing.assert_close(ours(x, mask)[mask], wanted[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_decoder_layer_equals_torch(norm, activation):
    ours = loud(DecoderLayer(Transformer.Config(**CONFIG, norm=norm, activation=activation)))
    other = torch.nn.TransformerDecoderLayer(**TORCH, activation=activation, norm_first=norm == "pre").eval()
    copy_layer(ours, other)
    x, memory, mask = randn(3, 4, 8), randn(3, KEYS, 8, seed=1), padding_mask(LENGTHS, KEYS)
    found, cache = ours(x, *ours.cross_attention.project(memory), mask, None)
    wanted = other(x, memory, tgt_mask=~causal(4, 4), memory_key_padding_mask=~mask)
    assert cache is None
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_whole_model_equals_torch(norm):
    ours = loud(Transformer(Transformer.Config(**CONFIG, norm=norm), 9, 9))
    other = torch.nn.Transformer(**TORCH, num_encoder_layers=2, num_decoder_layers=3, norm_first=norm == "pre").eval()
    for stack, layers, last in (
        (ours.encoder, other.encoder, ours.encoder_norm),
        (ours.decoder, other.decoder, ours.decoder_norm),
    ):
        for layer, same in zip(stack, layers.layers, strict=True):
            copy_layer(layer, same)
        if norm == "pre":
            layers.norm.load_state_dict(last.state_dict())
        else:
            layers.norm = None  # the paper's form has no norm after the last layer's own
    batch = ours.tensors(make_batch([[4, 5, 6, 2], [2], [7, 8, 2]], [[5, 2], [6, 7, 8, 4, 2], [2]]))
    padded = ~padding_mask(batch.source_length, 4)
    with torch.enable_grad():
        hidden = other(
            ours.source(batch.source),
            ours.target(shift_right(batch.target)),
            tgt_mask=~causal(5, 5),
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
            tgt_is_causal=False,
        )
    wanted = hidden @ ours.target.tokens.weight.t()
    torch.testing.assert_close(ours(batch), wanted, atol=1e-5, rtol=1e-5)
