"""What bounds take at a time follows a number of megabytes, and no result depends on it."""

import pytest
import torch
from nets import settled
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from advnorm.bounds import certify, margin_bounds
from advnorm.threat import Linf


class Largest(TorchDispatchMode):
    """Sees the size of the largest tensor of real numbers, views aside."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        is_value = isinstance(result, torch.Tensor) and result.is_floating_point()
        if is_value and not func.is_view:
            self.bytes = max(self.bytes, result.untyped_storage().nbytes())
        return result


def network(hidden):
    torch.manual_seed(0)
    return settled(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 12 * 12, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 5),
        )
    )


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown"])
def test_the_largest_tensor_follows_the_budget_and_the_margins_do_not(method):
    model, images = network(20), torch.rand(40, 1, 12, 12).double()
    sizes, results = [], []
    for memory in (32.0, 1.0, 0.5):
        with Largest() as largest, torch.no_grad():
            results.append(
                margin_bounds(
                    model,
                    images,
                    torch.arange(40) % 5,
                    Linf(0.02),
                    method=method,
                    memory=memory,
                )
            )
        sizes.append(largest.bytes)
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])
    assert sizes[1] <= sizes[0] / 2
    assert sizes[1] <= 2**20


@pytest.mark.parametrize("memory", [0, -1.0, float("nan")])
def test_a_budget_of_nothing_is_refused(memory):
    with pytest.raises(ValueError, match="megabytes above 0"):
        certify(
            network(2),
            torch.rand(1, 1, 12, 12).double(),
            torch.tensor([0]),
            Linf(0.1),
            memory=memory,
        )
