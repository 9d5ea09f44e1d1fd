"""Hugging Face transformers: a Marian model, its `generate`, and a program that translates a file with it."""

from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel, logging

from benchmarks.made import pad, read_lines, spell
from benchmarks.measure import Figures, Job, work
from benchmarks.peers import side
from benchmarks.shapes import SHAPES, Shape

PAD, BEGIN, END = 0, 1, 2


def make_model(shape: Shape) -> MarianMTModel:
    """A model of this shape with random weights."""
    sides = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in (
            ("layers", shape.layers),
            ("attention_heads", shape.heads),
            ("ffn_dim", shape.feed_forward),
        )
    }
    return MarianMTModel(
        MarianConfig(
            vocab_size=shape.vocabulary,
            d_model=shape.width,
            max_position_embeddings=1024,
            dropout=shape.dropout,
            attention_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BEGIN,
            eos_token_id=END,
            decoder_start_token_id=BEGIN,
            forced_eos_token_id=None,
            **sides,
        )
    )


def build(shape: Shape) -> tuple[torch.nn.Module, side.Prepare, side.Loss]:
    """For training."""
    model = make_model(shape)

    def prepare(sources: side.Rows, targets: side.Rows) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        source = torch.as_tensor(pad(sources, PAD, None, END))
        mask = (source != PAD).long()
        before = torch.as_tensor(pad(targets, PAD, BEGIN, None))
        return {"input_ids": source, "attention_mask": mask, "decoder_input_ids": before}, side.labels(targets, END)

    def loss(batch: tuple[dict[str, torch.Tensor], torch.Tensor]) -> torch.Tensor:
        inputs, wanted = batch
        return side.smoothed(model(**inputs, use_cache=False).logits, wanted, shape)

    return model, prepare, loss


def searcher(model: MarianMTModel) -> side.Search:
    """`generate` with a cache, outputs of one length."""

    def search(sources: side.Rows, beam: int, length: int) -> list[list[int]]:
        source = torch.as_tensor(pad(sources, PAD, None, END))
        with torch.inference_mode():
            found = model.generate(
                source, attention_mask=(source != PAD).long(), num_beams=beam, do_sample=False, use_cache=True,
                min_new_tokens=length, max_new_tokens=length,
            )  # fmt: skip
        return found[:, 1:].tolist()  # without the begin

    return search


def save(job: Job) -> Figures:
    """A saved model, for the program below."""
    torch.manual_seed(job["seed"])
    make_model(SHAPES[job["shape"]]).save_pretrained(job["directory"])
    return {}


def translate(job: Job) -> Figures:
    """Translate a file from the start of the process: sorted by length, `batch` lines together."""
    side.start(job)
    search = searcher(MarianMTModel.from_pretrained(job["directory"]).eval())
    lines = read_lines(Path(job["input"]))
    order = sorted(range(len(lines)), key=lambda number: -len(lines[number]))
    outputs: list[str] = [""] * len(lines)
    for first in range(0, len(order), job["batch"]):
        numbers = order[first : first + job["batch"]]
        found = search([lines[number] for number in numbers], job["beam"], job["length"])
        for number, ids in zip(numbers, found, strict=True):
            outputs[number] = spell(ids)
    Path(job["result"]).write_text("\n".join(outputs) + "\n", encoding="utf-8")
    return {}


def decode(job: Job) -> Figures:
    return side.decode(job, lambda shape: searcher(make_model(shape).eval()))


if __name__ == "__main__":
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    work({"train": lambda job: side.train(job, build), "decode": decode, "save": save, "translate": translate})
