"""JoeyNMT: Transformer and LSTM, and its search."""

from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search as joey_search
from joeynmt.vocabulary import Vocabulary

from benchmarks.made import pad, pieces
from benchmarks.measure import Figures, Job, work
from benchmarks.peers import side
from benchmarks.shapes import Shape

PAD, BEGIN, END = 1, 2, 3
TOKENS = {"unk": "<unk>", "pad": "<pad>", "bos": "<s>", "eos": "</s>", "sep": None}
IDS = {"unk": 0, "pad": PAD, "bos": BEGIN, "eos": END, "sep": None}
SPECIALS = SimpleNamespace(
    lang_tags=[],
    **{f"{name}_token": token for name, token in TOKENS.items()},
    **{f"{name}_id": number for name, number in IDS.items()},
)


def options(shape: Shape) -> dict[str, Any]:
    """The model section of its configuration."""
    table = {"embedding_dim": shape.width, "scale": bool(shape.heads), "dropout": shape.dropout}
    part: dict[str, Any] = {"num_layers": shape.layers, "hidden_size": shape.width, "dropout": shape.dropout}
    part["embeddings"] = table
    if shape.heads:
        part |= {"type": "transformer", "num_heads": shape.heads, "ff_size": shape.feed_forward, "layer_norm": "pre"}
        encoder, decoder = dict(part), dict(part)
    else:
        part |= {"type": "recurrent", "rnn_type": "lstm"}
        # its encoder can only read in both directions: half as wide, so that what is attended to is equally wide
        encoder = {**part, "hidden_size": shape.width // 2, "bidirectional": True}
        decoder = {**part, "attention": "luong", "input_feeding": True, "init_hidden": "bridge"}
    start = {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform"}
    return {"tied_embeddings": True, "tied_softmax": True, "encoder": encoder, "decoder": decoder, **start}


def make_model(shape: Shape) -> Any:
    """A model of this shape with random weights."""
    vocabulary = Vocabulary(pieces(shape.vocabulary), SPECIALS)
    model = build_model(options(shape), vocabulary, vocabulary)
    model.loss_function = ("crossentropy", shape.smoothing)
    return model


def make_batch(sources: side.Rows, targets: side.Rows | None) -> Batch:
    """As it wants it, from the longest source to the shortest."""
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    source = torch.as_tensor(pad([sources[number] for number in order], PAD, None, END))
    target = None
    if targets is not None:
        target = torch.as_tensor(pad([targets[number] for number in order], PAD, BEGIN, END))
    return Batch(
        src=source, src_length=(source != PAD).sum(1), src_prompt_mask=None, trg=target, trg_prompt_mask=None,
        indices=torch.arange(len(source)), device=torch.device("cpu"), pad_index=PAD, eos_index=END,
        is_train=targets is not None,
    )  # fmt: skip


def build(shape: Shape) -> tuple[torch.nn.Module, side.Prepare, side.Loss]:
    """For training, with its own loss."""
    model = make_model(shape)
    return model, make_batch, lambda batch: model(return_type="loss", **vars(batch))[0]


def searcher(shape: Shape) -> side.Search:
    """Its search, outputs of one length."""
    model = make_model(shape).eval()

    def search(sources: side.Rows, beam: int, length: int) -> list[list[int]]:
        with torch.inference_mode():
            found = joey_search(
                model, make_batch(sources, None), max_output_length=length, min_output_length=length,
                beam_size=beam, beam_alpha=1.0, n_best=1, generate_unk=True,
            )[0]  # fmt: skip
        return [list(row) for row in found]

    return search


def decode(job: Job) -> Figures:
    return side.decode(job, searcher)


if __name__ == "__main__":
    work({"train": lambda job: side.train(job, build), "decode": decode})
