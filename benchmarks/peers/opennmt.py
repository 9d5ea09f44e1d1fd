"""OpenNMT-py 3: Transformer and LSTM, and its translator."""

import importlib.util
import sys
import types

import torch

from benchmarks.made import pad
from benchmarks.measure import Figures, Job, work
from benchmarks.peers import side
from benchmarks.peers.vocabulary import BEGIN, END, PAD, make_vocabularies
from benchmarks.shapes import Shape

for name in ("spacy", "fasttext", "ahocorasick"):  # it imports them for filters of data that are not used here
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = types.ModuleType(name)

import onmt.opts  # noqa: E402
from onmt.model_builder import build_base_model  # noqa: E402
from onmt.translate import GNMTGlobalScorer  # noqa: E402
from onmt.translate.translator import Translator  # noqa: E402
from onmt.utils.parse import ArgumentParser  # noqa: E402


def options(shape: Shape) -> list[str]:
    """Its command line for this shape."""
    sizes = {"layers": shape.layers, "hidden_size": shape.width, "word_vec_size": shape.width}
    if shape.heads:
        kind = {"encoder_type": "transformer", "decoder_type": "transformer"}
        kind |= {"heads": shape.heads, "transformer_ff": shape.feed_forward, "attention_dropout": 0.0}
        flags = ["-position_encoding"]
    else:
        kind = {"encoder_type": "rnn", "decoder_type": "rnn", "rnn_type": "LSTM", "global_attention": "general"}
        flags = []  # input feeding is its default
    unread = {"data": "{none: {path_src: none}}", "save_model": "none", "src_vocab": "none"}  # required, never opened
    named = {**unread, **kind, **sizes, "dropout": shape.dropout}
    shared = ["-share_vocab", "-share_embeddings", "-share_decoder_embeddings"]
    return [word for key, value in named.items() for word in (f"-{key}", str(value))] + shared + flags


def make_model(shape: Shape) -> tuple[torch.nn.Module, dict[str, object]]:
    """A model of this shape with random weights, and its vocabulary."""
    parser = ArgumentParser()
    onmt.opts.train_opts(parser)
    given, _ = parser.parse_known_args(options(shape))
    ArgumentParser.update_model_opts(given)
    vocabularies = make_vocabularies(shape)
    model = build_base_model(given, vocabularies)
    side.refill(model)
    return model, vocabularies


def sorted_sources(sources: side.Rows) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Sources from the longest to the shortest, their lengths, and where each came from."""
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    source = torch.as_tensor(pad([sources[number] for number in order], PAD, None, END))
    return source[:, :, None], (source != PAD).sum(1), order


def build(shape: Shape) -> tuple[torch.nn.Module, side.Prepare, side.Loss]:
    """For training."""
    model, _ = make_model(shape)

    def prepare(sources: side.Rows, targets: side.Rows) -> tuple[torch.Tensor, ...]:
        source, lengths, order = sorted_sources(sources)
        rows = [targets[number] for number in order]
        return source, torch.as_tensor(pad(rows, PAD, BEGIN, END))[:, :, None], lengths, side.labels(rows, END)

    def loss(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        source, target, lengths, wanted = batch
        hidden, _ = model(source, target, lengths)
        return side.smoothed(model.generator(hidden), wanted, shape)

    return model, prepare, loss


def searcher(shape: Shape) -> side.Search:
    """Its translator, outputs of one length."""
    model, vocabularies = make_model(shape)
    model.eval()

    def search(sources: side.Rows, beam: int, length: int) -> list[list[int]]:
        translator = Translator(
            model, vocabularies, beam_size=beam, n_best=1, min_length=length, max_length=length, max_length_ratio=0,
            global_scorer=GNMTGlobalScorer(0.0, 0.0, "none", "none"), report_score=False,
        )  # fmt: skip
        source, lengths, order = sorted_sources(sources)
        batch = {"src": source, "srclen": lengths, "ind_in_bucket": list(range(len(order)))}
        with torch.inference_mode():
            return [found[0] for found in translator.translate_batch(batch, False)["predictions"]]

    return search


def decode(job: Job) -> Figures:
    return side.decode(job, searcher)


if __name__ == "__main__":
    work({"train": lambda job: side.train(job, build), "decode": decode})
