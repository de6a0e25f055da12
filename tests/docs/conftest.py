"""A folder as the pages assume it: two tiny runs, a model and data of the reader's own."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from advnorm.data import load
from advnorm.recipe import override
from advnorm.recipes import find
from advnorm.training import train

sys.path.insert(0, str(Path(__file__).parent))

TINY = [
    "data.train=200",
    "data.test=40",
    "epochs=1",
    "validation.samples=20",
    "validation.steps=1",
]

MINE = """
from torch import nn


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, worker_id):
    """Return a function that gives a folder of a name, which all processes share."""
    base = tmp_path_factory.getbasetemp()

    def folder(name):
        path = (base if worker_id == "master" else base.parent) / name
        path.mkdir(exist_ok=True)
        return path

    return folder


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Train the runs ``runs/a`` and ``runs/b``; write ``mine.py`` and ``mine.npz``."""
    folder = tmp_path_factory.mktemp("pages")
    for name, steps in {"a": 5, "b": 1}.items():
        recipe = override(find("digits.pgd"), [*TINY, f"attack.steps={steps}"])
        train(recipe, folder / "runs" / name, device="cpu")
    (folder / "mine.py").write_text(MINE)
    test = load("digits").test
    pixels, labels = test.images.numpy(), test.labels.numpy()
    np.savez(folder / "mine.npz", images=pixels, labels=labels)
    return folder


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    """Work in a fresh copy of that folder."""
    copy = tmp_path / "copy"
    shutil.copytree(prepared, copy)
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def namespace(folder):
    """Return the names that Python examples assume: model, images and labels."""
    test = load("digits").test
    rows = test.labels.argsort(stable=True)[::9]  # 40 images, some of every class
    images, labels = test.images[rows].float() / 255, test.labels[rows]
    hidden = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    )
    model = torch.nn.Sequential(hidden, torch.nn.Flatten(), torch.nn.Linear(144, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return {"model": model.eval(), "images": images, "labels": labels}
