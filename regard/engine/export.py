"""A trained Transformer as a CTranslate2 model, in the folder `ctranslate2` of its model directory.

    model.bin, config.json, *_vocabulary.json    what CTranslate2 reads
    export.json                                  which model it was made from, and how
    parity.json                                  how far both engines agreed on real sentences
    MANIFEST.json                                size and sha256 of each of them

Positions are stored as a table: ours alternate sine and cosine, CTranslate2's own do not.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import Search, longest_output
from regard.data.batch import BOS, EOS, UNK
from regard.directory import MANIFEST, hash_file, write_json, write_listed
from regard.engine.ctranslate2 import FACTS, FOLDER, is_installed
from regard.engine.native import load_model
from regard.errors import ConfigError
from regard.models.transformer import DecoderLayer, EncoderLayer, Transformer
from regard.nn.embedding import Embedding
from regard.nn.relative import Shaw

POSITIONS = 1024  # of a table that could be of any length: at least so many
COMPUTED = {  # options of which CTranslate2 can compute these values only
    "position_join": ("add",),
    "positions": ("sinusoidal", "learned", "none", "shaw", "rotary"),
    "neighbourhood": (0,),
    "norm": ("pre", "post"),
    "residual": (True,),
    "self_attention": (True,),
}


def check_exportable(config: dict[str, Any]) -> None:
    """Refuse by name what CTranslate2 cannot compute."""
    if not is_installed():
        raise ConfigError("an export needs CTranslate2: pip install 'regard[fast]'")
    model, text = config["model"], config.get("text", {})
    if model.get("kind", "transformer") != "transformer":
        raise ConfigError(f"model.kind = '{model['kind']}': only a transformer can be exported to ctranslate2")
    for option, value in model.items():
        if option in COMPUTED and value not in COMPUTED[option]:
            raise ConfigError(f"model.{option} = {value!r}: cannot be exported to ctranslate2")
    if not model.get("encoder_layers", 1) or not model.get("feed_forward", 1):
        raise ConfigError(
            "model: a layer without feed-forward, or no encoder at all, cannot be exported to ctranslate2"
        )
    if text.get("target") == "words":
        raise ConfigError("text.target = 'words': unknown words are copied by attention, which ctranslate2 has not")


def write_export(
    directory: Path,
    config: dict[str, Any],
    search: Search,
    quantization: str,
    check: Callable[[Path, dict], dict],
    shortlist: Sequence[str] = (),
) -> dict[str, Any]:
    """Export a checked model directory, whole or not at all; `check(folder, facts)` gives the parity that is kept.

    With the lines of a shortlist the output layer is computed over the target tokens a source may need alone.
    """
    import ctranslate2

    check_exportable(config)
    model = load_model(directory, config)
    assert isinstance(model, Transformer)
    positions = model.limit or max(POSITIONS, longest_output(config.get("longest", 256), search, None) + 1)
    facts = {
        "model_sha256": hash_file(directory / MANIFEST),
        "quantization": quantization,
        "positions": positions,
        "limited": model.limit is not None,
        "ctranslate2": ctranslate2.__version__,
        "shortlist": bool(shortlist),
    }
    parity: dict[str, Any] = {}

    def fill(fresh: Path) -> None:
        spec = make_spec(model, positions)
        spec.validate()
        spec.optimize(quantization)
        spec.save(str(fresh))
        if shortlist:
            (fresh / "vmap.txt").write_text("".join(f"{line}\n" for line in shortlist), encoding="utf-8")
        write_json(fresh / FACTS, facts)
        parity.update(check(fresh, facts))
        write_json(fresh / "parity.json", parity)

    write_listed(directory / FOLDER, fill)
    return parity


def make_spec(model: Transformer, positions: int) -> Any:
    """The model in the words of CTranslate2."""
    from ctranslate2.specs import Activation, TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    options = model.options
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU, "swiglu": Activation.SWISH}
    same: dict[str, Any] = {
        "pre_norm": options.norm == "pre",
        "activation": activations[options.activation],
        "ffn_glu": options.activation == "swiglu",
        "relative_position": options.positions == "shaw",
        "rotary_dim": 0 if options.positions == "rotary" else None,  # 0: of the whole width of a head
    }
    spec: Any = TransformerSpec(
        TransformerEncoderSpec(options.encoder_layers, options.heads, **same),
        TransformerDecoderSpec(options.decoder_layers, options.heads, **same),
    )
    fill_embedding(spec.encoder, spec.encoder.embeddings[0], model.source, positions)
    fill_embedding(spec.decoder, spec.decoder.embeddings, model.target, positions)
    spec.decoder.projection.weight = array(model.output_weights()[0])
    if options.norm == "pre":
        fill_norm(spec.encoder.layer_norm, model.encoder_norm)
        fill_norm(spec.decoder.layer_norm, model.decoder_norm)
    for layer, ours in zip([*spec.encoder.layer, *spec.decoder.layer], [*model.encoder, *model.decoder], strict=True):
        fill_layer(layer, ours)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = str(UNK), str(BOS), str(EOS)
    spec.config.decoder_start_token = str(BOS)
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.register_source_vocabulary([str(token) for token in range(model.source.tokens.num_embeddings)])
    spec.register_target_vocabulary([str(token) for token in range(model.target.tokens.num_embeddings)])
    return spec


def fill_embedding(spec: Any, tokens: Any, ours: Embedding, positions: int) -> None:
    """Token vectors, which CTranslate2 also multiplies by √D, and the table of positions."""
    tokens.weight = array(ours.tokens.weight)
    if not hasattr(spec, "position_encodings"):  # the layers know the distances themselves
        return
    if ours.positions is None:
        table = torch.zeros(positions, ours.tokens.embedding_dim)
    else:
        table = ours.positions(0, positions)
    spec.position_encodings.encodings = array(table)


def fill_layer(spec: Any, ours: nn.Module) -> None:
    """One layer of the encoder or the decoder."""
    assert isinstance(ours, (EncoderLayer, DecoderLayer))
    look, feed = ours.self_attention, ours.feed_forward
    assert look is not None
    assert feed is not None
    fill_norm(spec.self_attention.layer_norm, ours.around_attention.norm)
    fill_linear(spec.self_attention.linear[0], look.query, look.memory)  # queries, keys and values in one product
    fill_linear(spec.self_attention.linear[1], look.out)
    if isinstance(look.relation, Shaw):
        spec.self_attention.relative_position_keys = array(look.relation.keys)
        spec.self_attention.relative_position_values = array(look.relation.values)
    if isinstance(ours, DecoderLayer):
        cross = ours.cross_attention
        fill_norm(spec.attention.layer_norm, ours.around_cross.norm)
        for place, linear in zip(spec.attention.linear, (cross.query, cross.memory, cross.out), strict=True):
            fill_linear(place, linear)
    fill_norm(spec.ffn.layer_norm, ours.around_feed_forward.norm)
    fill_linear(spec.ffn.linear_0, feed.inner)
    if feed.activation == "swiglu":  # gate and value are one product of ours
        for place, half in ((spec.ffn.linear_0, 0), (spec.ffn.linear_0_noact, 1)):
            place.weight, place.bias = (array(part.chunk(2)[half]) for part in (feed.inner.weight, feed.inner.bias))
    fill_linear(spec.ffn.linear_1, feed.outer)


def fill_norm(spec: Any, ours: object) -> None:
    """A layer norm."""
    assert isinstance(ours, nn.LayerNorm)
    spec.gamma, spec.beta = array(ours.weight), array(ours.bias)


def fill_linear(spec: Any, *ours: nn.Linear) -> None:
    """One linear layer, or several side by side."""
    spec.weight = array(torch.cat([linear.weight for linear in ours]))
    spec.bias = array(torch.cat([linear.bias for linear in ours]))


def array(tensor: Tensor) -> np.ndarray:
    """Weights as CTranslate2 takes them."""
    return tensor.detach().contiguous().numpy()
