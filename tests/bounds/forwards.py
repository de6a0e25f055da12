"""Models whose forward is a function of the test."""

import torch
from torch import nn

LABEL = torch.tensor([0])


def with_weights(layer: nn.Linear, weight: list, bias: list) -> nn.Linear:
    layer.weight.data = torch.tensor(weight)
    layer.bias.data = torch.tensor(bias)
    return layer


class Forward(nn.Module):
    """A linear layer of two outputs behind a function of the module and the input."""

    def __init__(self, function, layer: nn.Module) -> None:
        super().__init__()
        self.function, self.layer, self.relu = function, layer, nn.ReLU(inplace=True)
        self.cached = None

    def forward(self, x):
        return self.function(self, x)
