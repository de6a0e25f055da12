"""Problems and networks that several files evaluate; those on digits are trained once."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.runs.load import load_trained
from advnorm.training import train
from advnorm.training.components import load_data

sys.path.insert(0, str(Path(__file__).parent))  # masked_models, sound_models


@pytest.fixture(scope="session")
def digits_test():
    """150 test digits with their labels."""
    data = load_data(find("digits.pgd"), root=None)
    batch = next(
        data.test.batches(torch.arange(150), batch_size=150, device=torch.device("cpu"))
    )
    return batch.images, batch.labels


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Return a function: the network of a recipe on digits, trained at most once."""
    models = {}

    def model(name, *changes):
        key = (name, changes)
        if key not in models:
            recipe = override(find(name), ["model.options.width=64", "epochs=8", *changes])
            run = train(recipe, tmp_path_factory.mktemp("run") / "run", device="cpu")
            data = load_data(recipe, root=None)
            models[key], _, _ = load_trained(run, recipe, data, weights="last", warnings=[])
        return models[key]

    return model


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
