import pytest
import torch

from regard.nn import recurrent
from regard.nn.recurrent import CELLS, Recurrent, RecurrentEncoder, repeated

INPUTS, WIDTH, LAYERS = 5, 4, 3
KNOWN = 3  # of the inputs, before a walk begins
LENGTHS = torch.tensor([6, 1, 3, 4])


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make(cell: str, dropout: float = 0.0) -> Recurrent:
    torch.manual_seed(1)
    return Recurrent(cell, INPUTS, WIDTH, LAYERS, dropout).eval()


def first_state(cell: str, rows: int = 2) -> tuple[torch.Tensor, ...]:
    return tuple(randn(rows, LAYERS, WIDTH, seed=part + 2) for part in range(2 if cell == "lstm" else 1))


def by_hand(cell: str, module: Recurrent, x: torch.Tensor, state: tuple[torch.Tensor, ...]):
    """One step of one row, from the equations in the module's docstring."""
    after = []
    for layer in range(LAYERS):
        w, u, b, c = (
            getattr(module.layers, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        s = state[0][layer]
        given, past = (w @ x + b).view(-1, WIDTH), (u @ s + c).view(-1, WIDTH)
        if cell == "vanilla":
            new = (torch.tanh(given[0] + past[0]),)
        elif cell == "gru":
            r, z = torch.sigmoid(given[0] + past[0]), torch.sigmoid(given[1] + past[1])
            new = ((1 - z) * torch.tanh(given[2] + r * past[2]) + z * s,)
        else:
            i, f, o = (torch.sigmoid(given[k] + past[k]) for k in (0, 1, 3))
            memory = f * state[1][layer] + i * torch.tanh(given[2] + past[2])
            new = (o * torch.tanh(memory), memory)
        after.append(new)
        x = new[0]
    return x, tuple(torch.stack(parts) for parts in zip(*after, strict=True))


@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_one_step_is_the_written_equation(cell):
    module, state, x = make(cell), first_state(cell), randn(2, INPUTS)
    walk = module.walk(x[:, None, :KNOWN], state)
    output, after = walk.step(0, x[:, KNOWN:]), walk.state
    for row in range(2):
        wanted, wanted_state = by_hand(cell, module, x[row], tuple(part[row] for part in state))
        torch.testing.assert_close(output[row], wanted, atol=1e-6, rtol=0)
        for part, same in zip(after, wanted_state, strict=True):
            torch.testing.assert_close(part[row], same, atol=1e-6, rtol=0)


@pytest.mark.parametrize("parts", [[1] * 6, [6], [1, 5], [4, 2]])
@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_steps_equal_whole_sequences(cell, parts):
    module, x = make(cell), randn(2, 6, INPUTS)
    state = first_state(cell)
    wanted = []
    walk = module.walk(x[:, :, :KNOWN], state)
    for step in range(6):
        wanted.append(walk.step(step, x[:, step, KNOWN:]))
    found = []
    for part in x.split(parts, 1):
        output, state = module(part, state)
        found.append(output)
    torch.testing.assert_close(torch.cat(found, 1), torch.stack(wanted, 1), atol=1e-6, rtol=0)
    for part, same in zip(state, walk.state, strict=True):
        assert part.shape == (2, LAYERS, WIDTH)  # batch first
        torch.testing.assert_close(part, same, atol=1e-6, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_a_walk_has_the_gradients_of_the_whole_sequence(cell):
    module, x = make(cell).double(), randn(2, 6, INPUTS).double().requires_grad_()
    state = tuple(part.double().requires_grad_() for part in first_state(cell))
    leaves = [*module.parameters(), x, *state]
    weights = randn(2, 6, WIDTH, seed=7).double()
    outputs, after = module(x, state)
    wanted = torch.autograd.grad((outputs * weights).sum() + after[-1].square().sum(), leaves)
    walk = module.walk(x[:, :, :KNOWN], state)
    outputs = torch.stack([walk.step(step, x[:, step, KNOWN:]) for step in range(6)], 1)
    found = torch.autograd.grad((outputs * weights).sum() + walk.state[-1].square().sum(), leaves)
    for gradient, same in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, same, atol=1e-12, rtol=0)


def test_weights_used_at_every_step_get_their_gradient_in_each_pass():
    weight, bias = randn(3, 2).requires_grad_(), randn(3, seed=1).requires_grad_()
    x = randn(4, 2, seed=2)
    for _ in range(2):  # gradients add up over passes, as elsewhere
        product = repeated(weight)
        (product(x, bias).sum() + product(x, randn(4, 3)).sum()).backward()
    torch.testing.assert_close(weight.grad, 4 * x.sum(0).expand(3, 2))
    torch.testing.assert_close(bias.grad, torch.full((3,), 8.0))


@pytest.mark.parametrize("steps", [1, 4], ids=["step", "sequence"])
def test_dropout_is_between_layers_in_training_only(steps):
    module, state, x = make("gru", 0.5), first_state("gru"), randn(2, steps, INPUTS)
    assert torch.equal(module(x, state)[0], module(x, state)[0])
    module.train()
    (first, after), (second, _) = module(x, state), module(x, state)
    assert not torch.equal(first, second)
    still = module.eval()(x, state)[1]
    torch.testing.assert_close(after[0][:, 0], still[0][:, 0])  # the first layer is not touched


@pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("cell", CELLS)
@torch.no_grad()
def test_encoder_reads_each_row_as_if_alone(cell, bidirectional):
    torch.manual_seed(1)
    encoder = RecurrentEncoder(cell, INPUTS, WIDTH, 2, bidirectional, 0.0)
    x = randn(4, 6, INPUTS)
    x[1, 1:] = float("nan")  # padding never enters a state
    annotations, last = encoder(x, LENGTHS)
    directions = 1 + bidirectional
    assert annotations.shape == (4, 6, WIDTH * directions)
    assert last.shape == (4, directions, WIDTH)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, final = encoder.layers(x[row : row + 1, :length])
        torch.testing.assert_close(annotations[row, :length], alone[0], atol=1e-6, rtol=0)
        assert not annotations[row, length:].any()
        # the forward direction ends at the last token, the backward one at the first
        torch.testing.assert_close(last[row, 0], annotations[row, length - 1, :WIDTH])
        if bidirectional:
            torch.testing.assert_close(last[row, 1], annotations[row, 0, WIDTH:])
        assert len(final) == (2 if cell == "lstm" else directions * 2)


def test_encoder_dropout_is_between_layers_in_training_only():
    encoder = RecurrentEncoder("gru", INPUTS, WIDTH, 2, True, 0.5)
    x = randn(4, 6, INPUTS)
    assert not torch.equal(encoder(x, LENGTHS)[0], encoder(x, LENGTHS)[0])
    encoder.eval()
    assert torch.equal(encoder(x, LENGTHS)[0], encoder(x, LENGTHS)[0])


@pytest.mark.parametrize("cell", CELLS)
def test_a_processor_without_bfloat16_computes_sequences_in_float32(cell, monkeypatch):
    module, x, state = make(cell), randn(2, 5, INPUTS), first_state(cell)
    wanted, _ = module(x, state)
    monkeypatch.setattr(recurrent, "has_bfloat16", lambda: False)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = module(x.bfloat16(), state)
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs, wanted, atol=0.02, rtol=0.02)
    outputs.sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
