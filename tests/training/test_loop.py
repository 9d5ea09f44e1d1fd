"""The loop: stopping, best, candidates, what is logged, what is refused, divergence."""

import math
import time

import pytest
import torch
from toy_run import BATCHES, Loader, Objective, lines, trainer

from regard.config import Train, validate
from regard.errors import ConfigError, DataError, Diverged
from regard.training.loop import Goal, Validation

PLAIN = {"ema": 0.0, "average": 0, "accumulate": 1, "patience": 0}
WARM_UP_CALLS = 3


def script(values, name="score"):
    """An `evaluate` that gives these values in turn."""
    left = iter(values)
    seen = []

    def look(model, stop):
        seen.append({key: value.clone() for key, value in model.state_dict().items()})
        value = next(left)
        return Validation(value if name == "loss" else 1.0, 2.0, {} if name == "loss" else {name: value})

    return look, seen


def weights_equal(found, expected):
    return all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


@pytest.mark.parametrize(
    ("higher", "values", "best"),
    [(True, [0.1, 0.5, 0.5, 0.2, 0.9], 2), (False, [0.5, 0.4, 0.4, 0.6, 0.1], 2), (True, [math.nan, 0.3, math.nan], 2)],
)
def test_early_stopping_and_best(tmp_path, higher, values, best):
    look, seen = script(values)
    run = trainer(
        tmp_path, look=look, goal=Goal("score", higher), **{**PLAIN, "patience": 2, "validate_every": 1, "warmup": 0}
    )
    if math.isnan(values[0]):
        run.options = run.options.model_copy(update={"max_steps": 3})
    result = run.run()
    stop = 4 if not math.isnan(values[0]) else 3
    assert (result.steps, result.best_step, result.candidate) == (stop, best, "best")
    assert result.reason == ("patience" if stop == 4 else "max_steps")
    assert weights_equal(result.weights, seen[best - 1])
    assert weights_equal(result.weights, run.model.state_dict())
    assert [line["best"] for line in lines(tmp_path) if line["kind"] == "validation"] == [
        number == 0 or number == best - 1 if not math.isnan(values[0]) else number == 1 for number in range(stop)
    ]


def test_patience_begins_after_the_warm_up(tmp_path):
    look, _ = script([0.0] * 9)
    options = {**PLAIN, "patience": 2, "validate_every": 1, "warmup": 4, "max_steps": 9}
    result = trainer(tmp_path, look=look, goal=Goal("score", True), **options).run()
    assert (result.steps, result.reason) == (6, "patience")


def test_of_equally_good_weights_the_more_certain_ones_are_kept(tmp_path):
    """But that is no progress: patience counts on."""
    seen = []

    def look(model, stop):
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return Validation([2.0, 1.0, 1.5, 0.5][len(seen) - 1], 2.0, {"score": 1.0})

    options = {**PLAIN, "patience": 3, "validate_every": 1, "warmup": 0}
    result = trainer(tmp_path, look=look, goal=Goal("score", True), **options).run()
    assert (result.steps, result.best_step, result.reason) == (4, 4, "patience")
    assert weights_equal(result.weights, seen[3])


def test_keep_last_takes_the_last(tmp_path):
    look, seen = script([0.9, 0.1])
    result = trainer(tmp_path, look=look, keep="last", max_steps=6, **PLAIN).run()
    assert result.candidate == "last"
    assert weights_equal(result.weights, seen[-1])
    assert result.validations["last"].metrics == {"score": 0.1}


def test_average_is_the_mean_of_the_last_validations(tmp_path):
    look, seen = script([0.1, 0.2, 0.3, 0.4, 0.5])
    options = {**PLAIN, "average": 3, "keep": "average", "max_steps": 8, "validate_every": 2}
    result = trainer(tmp_path, look=look, **options).run()
    for name, tensor in result.weights.items():
        mean = sum(weights[name].double() for weights in seen[1:4]) / 3
        assert torch.equal(tensor, mean.to(tensor.dtype)), name
    assert weights_equal(result.weights, seen[4])
    assert result.validations["average"].metrics == {"score": 0.5}


def test_moving_average_is_what_is_looked_at_and_kept(tmp_path):
    trail = []

    class Watched(Objective):
        def loss(self, batch):
            trail.append({name: item.detach().clone() for name, item in self.model.named_parameters()})
            return super().loss(batch)

    look, seen = script([0.1, 0.2])
    options = {**PLAIN, "ema": 0.6, "keep": "ema", "max_steps": 20, "validate_every": 10}
    run = trainer(tmp_path, Watched(), look, **options)
    raw = {}
    original = run.validator.candidates

    def candidates(*arguments):
        raw.update({name: item.detach().clone() for name, item in run.model.named_parameters()})
        return original(*arguments)

    run.validator.candidates = candidates
    result = run.run()
    trail = [*trail[WARM_UP_CALLS:], raw]  # weights before each update, and after the last
    expected = {name: tensor.double() for name, tensor in trail[0].items()}
    for step, weights in enumerate(trail[1:], start=1):
        decay = min(0.6, (1 + step) / (10 + step))
        expected = {name: decay * value + (1 - decay) * weights[name] for name, value in expected.items()}
    for name, value in expected.items():
        assert torch.allclose(result.weights[name].double(), value, atol=1e-6), name
        assert not torch.allclose(result.weights[name], raw[name], atol=1e-4), name
    assert weights_equal(result.weights, seen[-1])


@pytest.mark.parametrize(("values", "chosen"), [([0.5, 0.2, 0.9], "average"), ([0.5, 0.2, 0.4], "best")])
def test_auto_keeps_what_validates_best(tmp_path, values, chosen):
    look, seen = script(values)
    result = trainer(tmp_path, look=look, **{**PLAIN, "average": 2, "max_steps": 6}).run()
    assert result.candidate == chosen
    assert set(result.validations) == {"best", "average"}
    assert weights_equal(result.weights, seen[2 if chosen == "average" else 0])
    assert lines(tmp_path)[-1]["candidate"] == chosen


def test_auto_with_a_moving_average_looks_at_it_at_the_end_too(tmp_path):
    look, seen = script([0.5, 0.2])
    result = trainer(tmp_path, look=look, **{**PLAIN, "ema": 0.9, "max_steps": 6}).run()
    assert {name: item.metrics["score"] for name, item in result.validations.items()} == {"best": 0.5, "ema": 0.2}
    assert weights_equal(result.weights, seen[0])


def test_a_tie_goes_to_the_lower_loss():
    def at(loss, score):
        return Validation(loss, 1.0, {"score": score})

    goal = Goal("score", higher=True)
    assert goal.choose({"best": at(2.0, 1.0), "average": at(1.0, 1.0)}) == "average"
    assert goal.choose({"best": at(1.0, 1.0), "average": at(1.0, 1.0)}) == "best"
    assert goal.choose({"best": at(1.0, math.nan), "average": at(1.0, 0.1)}) == "average"


def test_limits_of_epochs_and_minutes(tmp_path):
    look, _ = script([0.1] * 9)
    result = trainer(tmp_path / "a", look=look, **{**PLAIN, "max_steps": 0, "max_epochs": 2, "accumulate": 3}).run()
    assert (result.reason, result.steps, result.epochs) == ("max_epochs", 4, 2)
    slow = {number: lambda loss: time.sleep(0.1) for number in range(4, 40)}
    options = {**PLAIN, "max_steps": 0, "max_minutes": 0.5 / 60, "validate_every": 100}
    result = trainer(tmp_path / "b", Objective(slow), script([0.1])[0], **options).run()
    assert result.reason == "max_minutes"
    assert 1 <= result.steps <= 5
    again = trainer(tmp_path / "b", Objective(), script([0.1])[0], **options).run()
    assert again.steps == result.steps, "the minutes of all sittings count"


def test_plateau_cuts_the_rate(tmp_path):
    look, _ = script([0.5, 0.4, 0.3, 0.2, 0.6, 0.1])
    options = {**PLAIN, "schedule": "plateau", "plateau_patience": 2, "plateau_factor": 0.5, "warmup": 0}
    trainer(tmp_path, look=look, **{**options, "validate_every": 1, "log_every": 1, "max_steps": 6, "rate": 0.01}).run()
    rates = [line["rate"] for line in lines(tmp_path) if line["kind"] == "train"]
    assert rates == [0.01, 0.01, 0.01, 0.005, 0.005, 0.005]


def test_accumulated_update_equals_the_mean_over_all_its_tokens(tmp_path):
    """One plain step by hand: gradient of (sum of losses / number of tokens), clipped, Adam."""
    options = {**PLAIN, "accumulate": 3, "max_steps": 2, "clip": 0.1, "schedule": "constant", "warmup": 0}
    objective, reference = Objective(), Objective()
    for item in (objective, reference):
        item.model.dropout.p = 0.0
    trainer(tmp_path, objective, script([0.1])[0], keep="last", **options).run()
    adam = torch.optim.Adam(reference.model.parameters(), lr=0.04, betas=(0.9, 0.98), eps=1e-9)
    for numbers in [(0, 1, 2), (3, 4)]:  # no update spans two epochs
        adam.zero_grad()
        losses, tokens = zip(*(reference.loss(Loader().batch(0, number)) for number in numbers), strict=True)
        (sum(losses) / sum(tokens)).backward()
        assert torch.nn.utils.clip_grad_norm_(reference.model.parameters(), 0.1) > 0.1
        adam.step()
    for name, tensor in reference.model.named_parameters():
        assert torch.allclose(tensor, objective.model.get_parameter(name), atol=1e-5), name


def test_log_lines(tmp_path):
    trainer(tmp_path, max_steps=4, **{**PLAIN, "log_every": 2}).run()
    raw = (tmp_path / "metrics.jsonl").read_text()
    assert '"tokens_per_second"' in raw
    train = [line for line in lines(tmp_path) if line["kind"] == "train"]
    assert [line["step"] for line in train] == [2, 4]
    assert set(train[0]) == {"kind", "step", "epoch", "loss", "rate", "gradient_norm", "tokens"}
    sizes = [Loader().batch(0, number).target.size for number in range(4)]
    assert [line["tokens"] for line in train] == [sum(sizes[:2]), sum(sizes[2:])]
    assert 1.5 < train[0]["loss"] < 4
    assert [line["kind"] for line in lines(tmp_path)] == ["train", "validation", "train", "validation", "end"]
    assert lines(tmp_path)[1]["samples"] == [{"source": "a", "reference": "b", "output": "c"}]


def bad_loss(loss):
    return loss * math.nan


def bad_gradient(loss):
    loss.register_hook(lambda gradient: gradient * math.inf)


@pytest.mark.parametrize("damage", [bad_loss, bad_gradient])
def test_a_bad_update_is_skipped_and_told(tmp_path, damage, capsys):
    objective = Objective({WARM_UP_CALLS + 2: damage})
    before = {}
    objective.at[WARM_UP_CALLS + 2] = lambda loss: (before.update(copy(objective.model)), damage(loss))[1]
    objective.at[WARM_UP_CALLS + 3] = lambda loss: before.update(equal=same(objective.model, before))
    result = trainer(tmp_path, objective, max_steps=6, **PLAIN).run()
    assert before["equal"], "the weights changed in a skipped update"
    assert (result.skipped, result.steps) == (1, 6)
    (line,) = [line for line in lines(tmp_path) if line["kind"] == "skipped"]
    assert line["step"] == 2
    assert line["examples"] == Loader().batch(0, 1).index.tolist()
    assert "update 2 is skipped" in capsys.readouterr().err
    assert all(math.isfinite(line["loss"]) for line in lines(tmp_path) if line["kind"] == "train")


def copy(model):
    return {name: item.detach().clone() for name, item in model.named_parameters()}


def same(model, before):
    return all(torch.equal(before[name], item) for name, item in model.named_parameters())


def test_too_many_bad_updates_in_a_row_end_training_unsaved(tmp_path):
    objective = Objective({WARM_UP_CALLS + number: bad_loss for number in range(5, 9)})
    run = trainer(tmp_path, objective, bad_steps=3, checkpoint_minutes=1e-9, **PLAIN)
    with pytest.raises(Diverged, match="4 updates in a row up to step 8") as caught:
        run.run()
    assert caught.value.exit_code == 5
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir())[-1] == "step-00000007"
    assert run.archive.checkpoints.latest().tensors["model"]["embedding.weight"].isfinite().all()
    objective = Objective({WARM_UP_CALLS + number: bad_loss for number in (1, 2, 3, 5, 6, 7, 9)})
    assert trainer(tmp_path / "b", objective, bad_steps=3, max_steps=10, **PLAIN).run().skipped == 7


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    objective = Objective()
    objective.at[WARM_UP_CALLS + 6] = lambda loss: spoil(objective.model)
    with pytest.raises(Diverged):
        trainer(tmp_path, objective, **{**PLAIN, "clip": 0, "validate_every": 1}).run()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir())[-1] == "step-00000005"


def spoil(model):
    model.output.bias.data[0] = math.nan  # after the forward pass: loss and gradient are still finite


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "average", "average": 0}, "keep = 'average' needs average"),
        ({"keep": "ema", "ema": 0.0}, "keep = 'ema' needs ema"),
        ({"schedule": "cosine", "max_steps": 0, "max_epochs": 1}, "schedule = 'cosine' needs max_steps"),
        ({"max_steps": 0, "patience": 0}, "never end"),
    ],
)
def test_options_that_do_not_fit_together(options, message):
    with pytest.raises(ConfigError, match=message):
        validate(Train, options, "train")


def test_unknown_metric_is_told_with_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match="'bleu'; known: loss, perplexity, score"):
        trainer(tmp_path, goal=Goal("bleu", higher=True)).run()


def test_loaders_that_do_not_keep_their_word(tmp_path):
    with pytest.raises(DataError, match="nothing to train on"):
        trainer(tmp_path / "a", loader=Loader(0)).run()

    class Short(Loader):
        def count(self, epoch):
            return BATCHES + 1

    with pytest.raises(DataError, match="ended early"):
        trainer(tmp_path / "b", loader=Short()).run()


def test_precision_and_compile_follow_the_options(tmp_path, monkeypatch):
    kinds = []

    class Watched(Objective):
        def loss(self, batch):
            kinds.append(torch.is_autocast_enabled("cpu"))
            return super().loss(batch)

    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: compiled.append(function) or function)
    trainer(tmp_path / "a", Watched(), max_steps=1, **PLAIN).run()
    assert (set(kinds), compiled) == ({False}, [])
    kinds.clear()
    trainer(tmp_path / "b", Watched(), max_steps=1, precision="bfloat16", compile="on", **PLAIN).run()
    assert (set(kinds), len(compiled)) == ({True}, 1)
