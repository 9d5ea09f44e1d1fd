"""Little work is done by one thread, and afterwards there are as many as before."""

import pytest
import torch

from regard.nn.threads import LITTLE, enough_threads


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_as_many_as_pay(threads):
    with enough_threads(LITTLE):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == threads
    with enough_threads(LITTLE + 1):
        assert torch.get_num_threads() == threads


def test_an_error_leaves_as_many_as_before(threads):
    with pytest.raises(ValueError, match="no"), enough_threads(1):
        raise ValueError("no")
    assert torch.get_num_threads() == threads
