"""A problem that several files evaluate."""

import pytest
import torch
from torch import nn


@pytest.fixture
def five_classes():
    """Return a network with 5 classes, images, and the labels that it gives them."""
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 5)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    images = torch.rand(60, 8, generator=generator, dtype=torch.float64)
    return model, images, model(images).argmax(1)
