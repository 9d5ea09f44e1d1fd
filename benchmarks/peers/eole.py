"""eole, the successor of OpenNMT-py: the Transformer's training step."""

import tempfile

import torch
from eole.config.data import Dataset
from eole.config.models import TransformerModelConfig
from eole.config.run import TrainConfig
from eole.models.model import EncoderDecoderModel

from benchmarks.made import pad
from benchmarks.measure import work
from benchmarks.peers import side
from benchmarks.peers.vocabulary import BEGIN, END, PAD, make_vocabularies
from benchmarks.shapes import Shape


def make_model(shape: Shape) -> torch.nn.Module:
    """A model of this shape with random weights."""
    model = TransformerModelConfig(
        layers=shape.layers,
        hidden_size=shape.width,
        heads=shape.heads,
        transformer_ff=shape.feed_forward,
        embeddings={"word_vec_size": shape.width, "position_encoding_type": "SinusoidalInterleaved"},
        share_embeddings=True,
        share_decoder_embeddings=True,
    )
    training = {
        "dropout": [shape.dropout],
        "attention_dropout": [0.0],
        "compute_dtype": "fp32",
        "world_size": 0,
        "gpu_ranks": [],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as empty:  # its options want files that exist
        empty.write("none\n")
        empty.flush()
        data = {"none": Dataset(path_src=empty.name, path_tgt=empty.name)}
        whole = TrainConfig(data=data, src_vocab=empty.name, share_vocab=True, model=model, training=training)
    whole.training.self_attn_backend = "pytorch"
    built = EncoderDecoderModel.build(whole.model, make_vocabularies(shape), whole.training)
    side.refill(built)
    return built


def build(shape: Shape) -> tuple[torch.nn.Module, side.Prepare, side.Loss]:
    """For training."""
    model = make_model(shape)

    def prepare(sources: side.Rows, targets: side.Rows) -> tuple[torch.Tensor, ...]:
        source = torch.as_tensor(pad(sources, PAD, None, END))
        target = torch.as_tensor(pad(targets, PAD, BEGIN, END))
        return source, target, (source != PAD).sum(1), side.labels(targets, END)

    def loss(batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        source, target, lengths, wanted = batch
        return side.smoothed(model.generator(model(source, target, lengths)[0]), wanted, shape)

    return model, prepare, loss


if __name__ == "__main__":
    work({"train": lambda job: side.train(job, build)})
