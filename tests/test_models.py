"""What every entry of the MODELS table promises, with every option that changes the mathematics.

A new model gets all of these tests by its rows in CASES (and its SIZES): options as on a command line.
"""

import dataclasses
import itertools
import typing

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.config import Search, apply_overrides
from regard.data.batch import PAD, UNK, make_batch
from regard.engine.native import NativeEngine, load_model
from regard.models.base import MODELS, Memory, build_model, model_class, select_rows, shift_right
from regard.models.ctc import CTC
from regard.models.parallel import Parallel
from regard.nn.attention import Attention, padding_mask
from regard.view.record import guess_kind, record

SIZES = {
    "rnn": "width=8 embedding=8 encoder_layers=2 decoder_layers=2 dropout=0.0",
    "bytenet": "width=8 encoder_layers=3 decoder_layers=3 dilations=2 dropout=0.0",
    "convs2s": "width=8 embedding=6 encoder_layers=2 decoder_layers=2 max_length=16 dropout=0.0",
    "transformer": "width=8 heads=2 feed_forward=12 encoder_layers=2 decoder_layers=2 max_length=16 dropout=0.0",
    "average": "width=8 heads=2 feed_forward=12 encoder_layers=2 decoder_layers=2 dropout=0.0",
    "nonautoregressive": "width=8 heads=2 feed_forward=12 encoder_layers=2 decoder_layers=2 most=7 dropout=0.0",
    "ctc": "width=8 heads=2 feed_forward=12 encoder_layers=2 decoder_layers=2 dropout=0.0",
    "maskpredict": "width=8 heads=2 feed_forward=12 encoder_layers=2 decoder_layers=2 longest=10 dropout=0.0",
}
WIDE = {  # enough to learn four examples by heart in a few dozen steps
    "rnn": "width=32 embedding=32",
    "bytenet": "width=32",
    "convs2s": "width=32 embedding=32",
    "transformer": "width=32 feed_forward=48",
    "average": "width=32 feed_forward=48",
    "nonautoregressive": "width=32 feed_forward=48",
    "ctc": "width=32 feed_forward=48",
    "maskpredict": "width=32 feed_forward=48",
}

CASES = {
    "rnn": [
        "attention=none cell=vanilla bidirectional=false tie=none",
        "attention=none cell=gru bidirectional=true tie=all decoder_layers=3",
        "attention=none cell=lstm bidirectional=true tie=output embedding=6",
        "attention=none cell=lstm bidirectional=false tie=embeddings",
        "attention=additive cell=vanilla bidirectional=true tie=all",
        "attention=additive cell=gru bidirectional=true tie=none encoder_layers=3",
        "attention=additive cell=gru bidirectional=false tie=output attention_width=5 embedding=6",
        "attention=additive cell=lstm bidirectional=true tie=embeddings decoder_layers=3",
        "attention=dot cell=vanilla bidirectional=false input_feeding=true tie=none",
        "attention=dot cell=gru bidirectional=true input_feeding=true tie=all",
        "attention=dot cell=lstm bidirectional=false input_feeding=false tie=output",
        "attention=dot cell=lstm bidirectional=true input_feeding=false tie=none embedding=6",
        "attention=general cell=vanilla bidirectional=true input_feeding=false tie=embeddings",
        "attention=general cell=gru bidirectional=false input_feeding=true tie=output",
        "attention=general cell=lstm bidirectional=true input_feeding=true tie=none decoder_layers=3",
        "attention=concat cell=vanilla bidirectional=false input_feeding=true tie=embeddings embedding=6",
        "attention=concat cell=gru bidirectional=true input_feeding=false tie=none attention_width=5",
        "attention=concat cell=lstm bidirectional=true input_feeding=true tie=all",
        "attention=general cell=lstm bidirectional=true input_feeding=true local=monotonic local_reach=1 tie=none",
        "attention=dot cell=gru bidirectional=true input_feeding=false local=monotonic local_reach=2 tie=all",
        "attention=general cell=gru bidirectional=false input_feeding=true local=predictive local_reach=2 tie=output",
        "attention=concat cell=lstm bidirectional=true input_feeding=false local=predictive local_reach=3 tie=none",
    ],
    "bytenet": [
        "encoder_kernel=3 decoder_kernel=3 tie=none",
        "encoder_kernel=4 decoder_kernel=3 tie=none dilations=1 encoder_layers=4 decoder_layers=4",
        "encoder_kernel=4 decoder_kernel=3 tie=output",
        "encoder_kernel=3 decoder_kernel=2 tie=output decoder_layers=4 dilations=3",
        "encoder_kernel=2 decoder_kernel=3 tie=embeddings",
        "encoder_kernel=3 decoder_kernel=4 tie=embeddings encoder_layers=2",
        "encoder_kernel=3 decoder_kernel=3 tie=all",
        "encoder_kernel=5 decoder_kernel=2 tie=all dilations=3",
    ],
    "convs2s": [
        "encoder_kernel=3 decoder_kernel=3 tie=none",
        "encoder_kernel=1 decoder_kernel=2 tie=all encoder_layers=3",
        "encoder_kernel=5 decoder_kernel=4 tie=output decoder_layers=3",
        "encoder_kernel=4 decoder_kernel=3 tie=embeddings embedding=8",
        "encoder_kernel=3 decoder_kernel=5 tie=none encoder_layers=3",
        "encoder_kernel=2 decoder_kernel=3 tie=all",
        "encoder_kernel=3 decoder_kernel=2 tie=output embedding=8",
        "encoder_kernel=3 decoder_kernel=3 tie=embeddings decoder_layers=3",
    ],
    "average": [
        "norm=pre tie=none decoder_layers=3",
        "norm=pre tie=all heads=4",
        "norm=pre tie=output encoder_layers=3",
        "norm=pre tie=embeddings heads=1",
        "norm=post tie=none heads=4",
        "norm=post tie=all encoder_layers=3",
        "norm=post tie=output decoder_layers=3",
        "norm=post tie=embeddings",
    ],
    "nonautoregressive": [
        "norm=pre tie=none",
        "norm=pre tie=all heads=4",
        "norm=pre tie=all decoder_layers=3 encoder_layers=3",
        "norm=post tie=none heads=1",
        "norm=post tie=all",
        "norm=post tie=none heads=4",
    ],
    "ctc": [
        "norm=pre tie=none stretch=3",
        "norm=pre tie=all stretch=6 glance=0.5 heads=4",
        "norm=pre tie=all stretch=5 decoder_layers=3 encoder_layers=3",
        "norm=post tie=none stretch=4 heads=1",
        "norm=post tie=all stretch=6 glance=0.3",
        "norm=post tie=none stretch=6 heads=4",
    ],
    "maskpredict": [
        "norm=pre tie=none decoder_layers=3",
        "norm=pre tie=all heads=4",
        "norm=pre tie=output encoder_layers=3",
        "norm=pre tie=embeddings heads=1",
        "norm=post tie=none heads=4",
        "norm=post tie=all",
        "norm=post tie=output heads=1",
        "norm=post tie=embeddings",
    ],
    "transformer": [
        "norm=pre activation=relu positions=sinusoidal position_join=add tie=none decoder_layers=3",
        "norm=pre activation=gelu positions=sinusoidal position_join=add tie=output encoder_layers=3",
        "norm=pre activation=swiglu positions=learned position_join=add tie=all",
        "norm=pre activation=relu positions=none position_join=add tie=embeddings heads=1",
        "norm=pre activation=gelu positions=learned position_join=concatenate tie=none decoder_layers=3",
        "norm=pre activation=swiglu positions=sinusoidal position_join=concatenate tie=embeddings position_width=3",
        "norm=post activation=relu positions=sinusoidal position_join=add tie=all heads=4",
        "norm=post activation=gelu positions=none position_join=add tie=output encoder_layers=3",
        "norm=post activation=swiglu positions=learned position_join=add tie=embeddings decoder_layers=3",
        "norm=post activation=relu positions=learned position_join=concatenate tie=embeddings",
        "norm=post activation=gelu positions=sinusoidal position_join=concatenate tie=none encoder_layers=3",
        "norm=post activation=swiglu positions=none position_join=add tie=all",
        "positions=shaw norm=pre tie=all relative_limit=2",
        "positions=shaw norm=post tie=none relative_limit=1 neighbourhood=4 heads=4",
        "positions=transformer_xl norm=pre tie=output share_layers=true decoder_layers=3",
        "positions=transformer_xl norm=post tie=embeddings neighbourhood=6",
        "positions=rotary norm=none tie=none share_layers=true encoder_layers=3",
        "positions=rotary norm=post tie=all neighbourhood=2 heads=4",
        "positions=alibi norm=post tie=embeddings heads=4",
        "positions=alibi norm=pre tie=output neighbourhood=4 share_layers=true",
        "positions=sinusoidal norm=none tie=none neighbourhood=2",
        "positions=learned norm=post residual=false tie=none",
        "positions=learned norm=pre residual=false tie=output",
        "positions=sinusoidal norm=pre self_attention=false tie=all",
        "positions=rotary norm=pre feed_forward=0 tie=embeddings",
        "positions=learned norm=post self_attention=false tie=none share_layers=true",
    ],
}
EVERY = [pytest.param(kind, text, id=f"{kind} {text}") for kind, texts in CASES.items() for text in texts]

# Ragged, with a source and a target that are nothing but EOS.
SOURCES = [[4, 5, 6, 7, 2], [2], [8, 4, 2], [5, 2]]
TARGETS = [[4, 6, 2], [5, 4, 8, 7, 3, 2], [2], [7, 7, 2]]
FERTILITY = np.array([[1, 0, 1, 0, 0], [5, 0, 0, 0, 0], [0] * 5, [2, 0, 0, 0, 0]])  # words of each target, EOS aside
BATCH = dataclasses.replace(make_batch(SOURCES, TARGETS), extra={"fertility": FERTILITY})


def options_of(kind: str, text: str) -> dict:
    """The `model` section of a recipe that a row of CASES stands for."""
    return {"kind": kind} | apply_overrides({}, f"{SIZES[kind]} {text}".split())


def sizes_of(section: dict) -> tuple[int, int]:
    """Two vocabularies of different size, unless they are shared."""
    return (9, 9) if section["tie"] in ("embeddings", "all") else (11, 9)


@torch.no_grad()
def quieter(model, section: dict):
    """Without norms numbers grow from layer to layer, and so do their rounding errors: smaller weights, then."""
    for weight in model.parameters() if section.get("norm") == "none" else ():
        weight *= 0.5
    return model


def pytest_generate_tests(metafunc):
    if "section" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("word_by_word") is not None
        cases = [case for case in EVERY if not (only and issubclass(model_class(case.values[0]), Parallel))]
        metafunc.parametrize("section", [pytest.param(options_of(*case.values), id=case.id) for case in cases])


@pytest.fixture
def model(section, tiny_model):
    """In eval mode; no weight is zero, no norm is the identity."""
    return quieter(tiny_model(section, 0, *sizes_of(section), scale=0.4), section)


def decode_parts(model, memory: Memory, tokens: Tensor, parts: list[int], state=None) -> Tensor:
    """Logits of tokens that are handed over in parts of the given lengths."""
    state = model.start(memory, None if torch.is_grad_enabled() else model.lay_out()) if state is None else state
    hidden = []
    for part in tokens.split(parts, 1):
        some, state = model.decode(part, memory, state)
        hidden.append(some)
    return model.output(torch.cat(hidden, 1))


def assert_near(found: Tensor, wanted: Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= tolerance  # also fails for NaN


# The table


def test_every_model_has_cases():
    assert set(CASES) == set(SIZES) == set(WIDE) == set(MODELS)


@pytest.mark.parametrize("kind", MODELS)
def test_every_value_of_every_option_is_among_the_cases(kind):
    """With several companions, so that what goes wrong only together has a chance to be seen."""
    choices = {}
    for name, field in model_class(kind).Config.model_fields.items():
        if typing.get_origin(field.annotation) is typing.Literal:
            choices[name] = typing.get_args(field.annotation)
        elif field.annotation is bool:
            choices[name] = (True, False)
    assert choices
    cases = [options_of(kind, text) for text in CASES[kind]]
    for name, values in choices.items():
        default = model_class(kind).Config.model_fields[name].default
        for value in values:
            same = [case for case in cases if case.get(name, default) == value]
            companions = {tuple(sorted((key, case[key]) for key in case if key != name)) for case in same}
            assert len(companions) >= 2, f"{name}={value} needs at least two rows in CASES['{kind}']"
    assert all(case["encoder_layers"] >= 2 and case["decoder_layers"] >= 2 for case in cases)


# Training and decoding are the same computation


@pytest.mark.word_by_word
@torch.no_grad()
def test_step_by_step_equals_all_at_once(model):
    batch = model.tensors(BATCH)
    tokens, memory = shift_right(batch.target), model.encode(batch)
    whole = model.output(model.decode(tokens, memory)[0])
    assert_near(model(BATCH), whole, 0)
    for parts in ([6], [1] * 6, [3, 3], [1, 5], [5, 1], [2, 1, 3], [4, 1, 1]):  # a forced prefix, then single words
        assert_near(decode_parts(model, memory, tokens, parts), whole)


@pytest.mark.word_by_word
@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
def test_future_changes_nothing(model, section):
    """Logits 0 … t come from the target tokens before t; those after t do see it."""
    before = model(BATCH)
    blind = section.get("residual") is False  # what was written says only where to look: little, or nothing at all
    for place in range(BATCH.target.shape[1] - 1):
        target = BATCH.target.copy()
        target[:, place] = np.where(target[:, place] == 4, 5, 4)
        after = model(dataclasses.replace(BATCH, target=target))
        assert torch.equal(after[:, : place + 1], before[:, : place + 1])
        if blind:
            assert (after - before)[:, place + 1 :].any()
        else:
            assert ((after - before)[:, place + 1 :].abs().amax((1, 2)) > 1e-6).all()


@pytest.mark.usefixtures("unchecked")
@torch.no_grad()
def test_source_matters(model):
    """Every source token and its place (where the model knows places) reach the logits."""
    before = model(BATCH)
    for place in range(4):
        source = BATCH.source.copy()
        source[0, place] = 8
        after = model(dataclasses.replace(BATCH, source=source))
        assert (after - before)[0, :3].abs().max() > 1e-6
        assert torch.equal(after[1:], before[1:])  # and no other row


# Padding


def other_padding() -> typing.Any:
    """The same batch with other ids behind the lengths."""
    generator = np.random.default_rng(0)
    real_source = np.arange(BATCH.source.shape[1]) < BATCH.source_length[:, None]
    real_target = np.arange(BATCH.target.shape[1]) < BATCH.target_length[:, None]
    return dataclasses.replace(
        BATCH,
        source=np.where(real_source, BATCH.source, generator.integers(1, 9, BATCH.source.shape)),
        target=np.where(real_target, BATCH.target, generator.integers(1, 9, BATCH.target.shape)),
    )


def fitting(model) -> list[int]:
    """The pairs that are learned from: all but, with CTC, those whose words and gaps are more than their places."""
    if not isinstance(model, CTC):
        return list(range(len(SOURCES)))
    words = [target[:-1] for target in TARGETS]
    needed = [len(each) + sum(one == other for one, other in itertools.pairwise(each)) for each in words]
    return [row for row, source in enumerate(SOURCES) if needed[row] <= model.options.stretch * len(source)]


@pytest.mark.usefixtures("unchecked")
def test_padding_changes_neither_logits_nor_loss_nor_gradients(model):
    model.train()  # dropout is 0
    real = padding_mask(torch.as_tensor(BATCH.target_length), BATCH.target.shape[1])
    results = []
    for batch in (BATCH, other_padding()):
        model.zero_grad()
        torch.manual_seed(0)  # a lesson may be made by chance
        loss, count = model.loss(batch, 0.1)
        loss.backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        results.append([model(batch)[real], loss, *gradients])
        assert count == sum(BATCH.target_length[fitting(model)])
    for before, after in zip(*results, strict=True):
        assert torch.equal(before, after)


def poison(tree, mask: Tensor) -> tuple[typing.Any, int]:
    """NaN in the padded positions of every floating tensor of a memory, and how many tensors that were."""
    if isinstance(tree, Tensor):
        if not tree.is_floating_point() or tree.dim() < 3 or tree.size(-2) != mask.size(1):
            return tree, 0
        padded = ~mask.view(len(mask), *[1] * (tree.dim() - 3), -1, 1)
        return tree.masked_fill(padded, float("nan")), int(padded.any())
    if dataclasses.is_dataclass(tree):
        fields = {field.name: poison(getattr(tree, field.name), mask) for field in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **{name: value for name, (value, _) in fields.items()}), sum(
            count for _, count in fields.values()
        )
    if isinstance(tree, tuple):
        items = [poison(item, mask) for item in tree]
        return tuple(value for value, _ in items), sum(count for _, count in items)
    return tree, 0


@torch.no_grad()
def test_nan_at_padded_places_of_the_source_changes_nothing(model):
    batch = make_batch(SOURCES, [[4, 5, 2]] * len(SOURCES))
    clean = model(batch)[..., PAD + 1 :]  # PAD's own logit may come from the same table
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    assert tables
    for table in tables:
        table.weight[PAD] = float("nan")
    assert torch.equal(model(batch)[..., PAD + 1 :], clean)


@pytest.mark.word_by_word
def test_nan_in_padded_memory_changes_no_gradient(model):
    batch = model.tensors(BATCH)
    tokens, memory = shift_right(batch.target), model.encode(batch)
    poisoned, _ = poison(memory, memory.mask)
    parameters = [*model.parameters()]
    totals = [model.decode(tokens, each)[0].square().sum() for each in (memory, poisoned)]
    wanted, found = (torch.autograd.grad(each, parameters, allow_unused=True, retain_graph=True) for each in totals)
    for parameter, mine, other in zip(parameters, found, wanted, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4, msg=f"{tuple(parameter.shape)}")


@pytest.mark.word_by_word
@torch.no_grad()
def test_nan_in_padded_memory_changes_nothing(model):
    batch = model.tensors(BATCH)
    tokens, memory = shift_right(batch.target), model.encode(batch)
    poisoned, tensors = poison(memory, memory.mask)
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    assert tensors >= 3 or not attentions  # values, projected keys and values; a fixed context has no padding
    for parts in ([6], [1] * 6):
        clean = decode_parts(model, memory, tokens, parts)
        assert clean.isfinite().all()
        assert torch.equal(decode_parts(model, poisoned, tokens, parts), clean)
    assert torch.equal(model.decode(tokens, poisoned)[0], model.decode(tokens, memory)[0])
    with record(model):
        assert torch.equal(model.decode(tokens, poisoned)[0], model.decode(tokens, memory)[0])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "options",
    [{"method": "greedy"}, {"beam": 3, "nbest": 3, "alpha": 0.6}],
    ids=lambda options: " ".join(f"{key}={value}" for key, value in options.items()),
)
def test_batch_equals_its_rows(section, tiny_model, options):
    engine = NativeEngine([quieter(tiny_model(section, 1, *sizes_of(section)), section)])
    search = Search(maximum_length=7, **options)
    together = engine.search(SOURCES, search, None, range(4))
    alone = [engine.search([source], search, None, [number])[0] for number, source in enumerate(SOURCES)]
    for some, same in zip(together, alone, strict=True):
        if section.get("residual") is not False:  # whose next word hardly depends on those before: many outputs tie
            assert [output.ids for output in some] == [output.ids for output in same]
            assert [output.finished for output in some] == [output.finished for output in same]
        for output, other in zip(some, same, strict=True):
            assert abs(output.score - other.score) <= 1e-4
            assert abs(output.log_probability - other.log_probability) <= 1e-4


@pytest.mark.word_by_word
@pytest.mark.usefixtures("unchecked")
def test_loss_is_cross_entropy_of_the_real_positions(model):
    """So the loss of a batch is also the sum over its rows."""
    logits = model(BATCH)
    rows = []
    for row, target in enumerate(TARGETS):
        rows.append(
            F.cross_entropy(logits[row, : len(target)], torch.tensor(target), reduction="sum", label_smoothing=0.1)
        )
    loss, count = model.loss(BATCH, 0.1)
    assert_near(loss, torch.stack(rows).sum(), 1e-4)
    assert count == sum(map(len, TARGETS))
    alone = [
        model.loss(make_batch([source], [target]), 0.1)[0] for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    assert_near(torch.stack(alone), torch.stack(rows), 1e-4)


# Learning


def test_every_parameter_gets_a_gradient(model):
    model.train()
    model.loss(BATCH)[0].backward()
    missing = [name for name, tensor in model.named_parameters() if tensor.grad is None or not tensor.grad.any()]
    assert missing == []
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_products_in_bfloat16_give_nearly_the_same_gradients(model):
    """As a GPU computes them; on a CPU they are tested only."""
    model.eval()
    found = []
    for half in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss, _ = model.loss(BATCH)
        loss.backward()
        found.append((loss.detach(), torch.cat([parameter.grad.flatten() for parameter in model.parameters()])))
    (loss, gradient), (half_loss, half_gradient) = found
    torch.testing.assert_close(half_loss, loss, rtol=0.02, atol=0)
    assert torch.nn.functional.cosine_similarity(half_gradient, gradient, dim=0) > 0.9


@pytest.mark.usefixtures("unchecked")
def test_it_overfits_four_examples(section):
    """A model blind to its source stays above ln 4 / 5 = 0.28 nats a token: the first words all differ."""
    torch.manual_seed(3)
    section = section | apply_overrides({}, WIDE[section["kind"]].split())
    rate, steps, enough = 0.01, 120, 0.05
    if issubclass(model_class(section["kind"]), Parallel):
        rate, steps = 0.003, 300
    if section["kind"] == "ctc":  # the sum over paths is sure of a target long before one path is
        steps, enough = 600, 0.005
    if section.get("residual") is False:  # deeper stacks learn nothing here: what residual connections are for
        section, rate = section | {"encoder_layers": 1, "decoder_layers": 1}, 0.003
    if section.get("norm") in ("none", "post"):  # a rate of 0.01 is at the edge of what is stable
        rate, steps = 0.003, 300
    model = build_model(section, 9, 9)
    model.train(not isinstance(model, Parallel))  # the whole lesson, nothing of it by chance
    sources = [[4, 5, 6, 7, 2], [5, 8, 2], [6, 6, 4, 2], [7, 2]]
    targets = [[4, 6, 5, 8, 2], [8, 7, 6, 5, 2], [5, 3, 4, 7, 2], [6, 4, 7, 8, 2]]
    batch = make_batch(sources, targets)
    batch.extra["fertility"] = np.array([[5, 0, 0, 0, 0]] * 4) - [[1, 0, 0, 0, 0]]  # all from the first word
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        loss, count = model.loss(batch)
        if loss / count < enough:
            break
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss / count < 0.05
    found = NativeEngine([model]).search(sources, Search(beam=2, maximum_length=8))
    assert [[*outputs[0].ids, 2] for outputs in found] == targets


@pytest.mark.parametrize("kind", MODELS)
def test_dropout_works_in_training_only(kind, tiny_model):
    """Each dropout of a model alone; at 0 training is as sure as evaluation."""
    names = [name for name in model_class(kind).Config.model_fields if "dropout" in name]
    assert names
    for text in CASES[kind][::5]:
        section = options_of(kind, text) | dict.fromkeys(names, 0.0)
        plain = tiny_model(section, 0, *sizes_of(section))
        still = plain(BATCH)
        assert torch.equal(plain.train()(BATCH), still)
        for name in names:
            model = tiny_model(section | {name: 0.5}, 0, *sizes_of(section))
            model.load_state_dict(plain.state_dict())  # start values may depend on the rate
            assert torch.equal(model(BATCH), still)
            model.train()
            first, second = model(BATCH), model(BATCH)
            assert not torch.allclose(first, still), name
            assert not torch.allclose(first, second), name
            model.loss(BATCH)[0].backward()
            assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.usefixtures("unchecked")
def test_saved_and_loaded_gives_equal_logits(model, section, tmp_path):
    """As a finished model is written and read; a shared weight is stored once."""
    save_file({name: tensor.detach() for name, tensor in model.named_parameters()}, tmp_path / "model.safetensors")
    source, target = sizes_of(section)
    loaded = load_model(tmp_path, {"model": section, "vocabulary": {"source": source, "target": target}})
    assert torch.equal(loaded.eval()(BATCH), model(BATCH))
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        stored = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118
    assert stored == sum({id(tensor): tensor.numel() for tensor in model.parameters()}.values())
    tables = [
        name
        for name, tensor in model.named_parameters()
        if tensor.size(0) in (source, target) and tensor[0].numel() > 1
    ]
    never_read = isinstance(model, Parallel) and model.copies and section["tie"] == "none"  # the target's
    assert len(tables) + never_read == {"none": 3, "output": 2, "embeddings": 2, "all": 1}[section["tie"]], tables


# What is looked at


@torch.no_grad()
def test_attention_rows_sum_to_one_and_are_zero_on_padding(model, section):
    with record(model) as maps:
        model(BATCH)
    source, target = (
        padding_mask(torch.as_tensor(length), ids.shape[1])
        for ids, length in ((BATCH.source, BATCH.source_length), (BATCH.target, BATCH.target_length))
    )
    if isinstance(model, Parallel):  # the end of a target has no place of its own
        batch = model.tensors(BATCH)
        target = model.teach(batch, model.encode(batch))[0].mask
    assert set(maps) == {name for name, module in model.named_modules() if isinstance(module, Attention)}
    for name in maps:
        kind, weights = guess_kind(name), maps[name]
        queries = source if kind == "encoder" else target
        keys = target if kind in ("decoder", "places") else source
        assert (weights.shape[0], *weights.shape[2:]) == (4, queries.size(1), keys.size(1)), name
        assert (weights >= 0).all()
        real = queries  # a padded query may have nothing near it
        if kind == "places":  # nor a single place, which does not look at itself
            real = real & (real.sum(1, keepdim=True) > 1)
        sums = weights.sum(-1).transpose(1, 2)[real]
        if section.get("local") == "predictive":  # Luong's Gaussian
            assert (sums <= 1 + 1e-5).all()
            assert (sums > 0).any()
        else:
            assert_near(sums, torch.ones(sums.shape))
        if kind == "decoder":
            assert not weights.triu(1).any(), name
        else:
            assert not weights.masked_select(~keys[:, None, None]).any(), name
        assert (weights > 1e-6).sum(-1).amax() > 1, name  # it does look around


@torch.no_grad()
def test_recording_changes_no_logit(model):
    """The fused kernel, where there is one, computes what the written-out form computes."""
    fused = model(BATCH)
    with record(model):
        recorded = model(BATCH)
    assert torch.equal(model(BATCH), fused)
    if isinstance(model, Parallel):  # the price of all places together, at EOS, is a sum; words are as near as ever
        torch.testing.assert_close(recorded, fused, atol=1e-5, rtol=1e-6)
        recorded, fused = recorded[..., UNK:], fused[..., UNK:]
    assert_near(recorded, fused)


# Search: what it uses instead of the layers, and rows of the state


@torch.no_grad()
def test_a_search_reads_sources_and_fills_places_as_the_layers_do(model):
    batch, layout = model.tensors(BATCH), model.lay_out()
    wanted, found = model.encode(batch), model.encode_by(layout, batch)
    places = wanted.mask.size(1)
    assert torch.equal(found.mask[:, :places], wanted.mask)
    assert not found.mask[:, places:].any()  # more places where steps look faster at them
    assert_near(found.values[found.mask], wanted.values[wanted.mask])
    assert not found.values[~found.mask].any()
    if isinstance(model, Parallel):
        canvas, _ = model.teach(batch, wanted)
        assert_near(model.fill(canvas, found, layout)[canvas.mask], model.fill(canvas, wanted)[canvas.mask])


@pytest.mark.word_by_word
@torch.no_grad()
def test_beams_share_the_memory_of_their_sentence(model):
    beams = 3
    memory = model.encode(model.tensors(BATCH))
    rows = torch.arange(4).repeat_interleave(beams)
    tokens = torch.randint(3, 9, (4 * beams, 5), generator=torch.Generator().manual_seed(0))
    repeated = select_rows(memory, rows)
    wanted = model.output(model.decode(tokens, repeated)[0])
    for parts in ([1] * 5, [3, 2]):
        state, same = model.select(model.start(memory, model.lay_out()), memory, rows, None)
        assert same is memory
        assert_near(decode_parts(model, same, tokens, parts, state), wanted)
        assert_near(decode_parts(model, repeated, tokens, parts), wanted)


@pytest.mark.word_by_word
@torch.no_grad()
def test_selected_rows_go_on_as_if_decoded_from_scratch(model):
    """Beams change places, sentence 1 leaves the batch, and two branches of one state do not disturb each other."""
    beams = 3
    memory = model.encode(model.tensors(BATCH))
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(3, 9, (4 * beams, 3), generator=generator)
    rows = torch.tensor([2, 0, 0, 7, 6, 8, 11, 11, 10])  # of sentences 0, 2 and 3
    kept = torch.tensor([0, 2, 3])
    state, _ = model.select(
        model.start(memory, model.lay_out()), memory, torch.arange(4).repeat_interleave(beams), None
    )
    for part in first.split([2, 1], 1):
        _, state = model.decode(part, memory, state)
    branches = [model.select(state, memory, rows, kept) for _ in range(2)]
    scratch = select_rows(memory, kept.repeat_interleave(beams))
    for state, remaining in branches:
        assert len(remaining.values) == 3
        more = torch.randint(3, 9, (3 * beams, 2), generator=generator)
        wanted = model.output(model.decode(torch.cat([first[rows], more], 1), scratch)[0])
        found = decode_parts(model, remaining, more, [1, 1], state)
        assert_near(found, wanted[:, 3:])
