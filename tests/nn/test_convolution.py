import pytest
import torch

from regard.nn.convolution import GatedConvolution, Normed, scale_gradient


def make(kernel: int) -> GatedConvolution:
    torch.manual_seed(kernel)
    return GatedConvolution(4, kernel)


@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@torch.no_grad()
def test_each_position_sees_its_window(kernel):
    """Around: half on either side; behind: itself and those before it."""
    layer, x = make(kernel), torch.randn(1, 9, 4)
    for see, before, after in [
        (layer.around, (kernel - 1) // 2, kernel // 2),
        (lambda x: layer.behind(x, None)[0], kernel - 1, 0),
    ]:
        clean = see(x)
        assert clean.shape == x.shape
        for place in range(9):
            other = x.clone()
            other[0, place] += 1
            changed = (see(other) != clean).any(-1)[0].nonzero().flatten().tolist()
            assert changed == list(range(max(0, place - after), min(9, place + before + 1)))


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("parts", [[1] * 6, [2, 4], [6]])
@torch.no_grad()
def test_in_parts_as_all_at_once(kernel, parts):
    layer, x = make(kernel), torch.randn(2, 6, 4)
    found, past = [], None
    for part in x.split(parts, 1):
        some, past = layer.behind(part, past)
        assert past.shape == (2, kernel - 1, 4)
        found.append(some)
    torch.testing.assert_close(torch.cat(found, 1), layer.behind(x, None)[0])


@torch.no_grad()
def test_only_the_direction_of_the_weights_is_in_v():
    layer, x = Normed(3, 2), torch.randn(5, 3)
    before = layer(x)
    layer.linear.parametrizations.weight.original1.mul_(7)
    torch.testing.assert_close(layer(x), before)


def test_the_encoder_gets_a_part_of_the_gradient_of_its_attentions():
    x = torch.ones(3, requires_grad=True)
    y = scale_gradient(x, 0.25)
    assert torch.equal(y, x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 0.25))


def test_outputs_have_about_the_variance_of_inputs():
    """What the start values are made for: four times the variance in, since the gate halves twice."""
    torch.manual_seed(0)
    found = GatedConvolution(64, 3).around(torch.randn(32, 20, 64))
    assert 0.6 < float(found.detach().var()) < 1.4
