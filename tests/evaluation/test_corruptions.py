"""Cells of corruptions, on anybody's model and on runs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import advnorm
from advnorm.data import CORRUPTIONS, corrupt
from advnorm.draws import Draws
from advnorm.evaluation import parse_conditions
from advnorm.recipe import parse
from advnorm.records import Run
from advnorm.runs import evaluate_run
from advnorm.threat import Linf
from advnorm.training import train


def test_a_condition_tests_the_corrupted_images():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    images, labels = torch.rand(30, 1, 8, 8), torch.randint(3, (30,))
    evaluation = advnorm.evaluate(
        model,
        images,
        labels,
        Linf(0.1),
        conditions=["corruption-fog-4"],
        seed=5,
        batch_size=7,
    )
    draws = Draws.of(5, torch.arange(30))
    worse = corrupt(images, draws, name="fog", severity=4)
    verdicts = evaluation.verdicts["corruption-fog-4"]
    assert list(verdicts.predictions) == model(worse).argmax(1).tolist()
    assert evaluation.results[0].settings == {"corruption": "fog", "severity": 4}


@pytest.mark.parametrize(
    "shape, count", [(None, 95), ((3, 8, 8), 95), ((1, 8, 8), 90), ((2,), 95)]
)
def test_one_name_stands_for_all_that_the_images_can_have(shape, count):
    conditions = parse_conditions(["clean", "corruptions"], [], (0.0, 1.0), shape=shape)
    assert len(conditions) == 1 + count
    named = {f"corruption-{name}-{s}" for name in CORRUPTIONS for s in range(1, 6)}
    assert {condition.name for condition in conditions[1:]} <= named


@pytest.mark.parametrize(
    "name, words",
    [
        ("corruption", "write corruption-NAME-SEVERITY"),
        ("corruption-fog", "write corruption-NAME-SEVERITY"),
        ("corruption-fog-6", "SEVERITY from 1 to 5"),
        ("corruption-fog-3x2", "write corruption-NAME-SEVERITY"),
        ("corruption-frog-3", "no corruption 'frog': did you mean 'fog'"),
        ("corruptions-3", "did you mean 'corruption'"),
    ],
)
def test_a_wrong_name_says_what_to_write(name, words):
    with pytest.raises(ValueError, match=words):
        parse_conditions([name], [], (0.0, 1.0))
    with pytest.raises(ValueError, match="named twice"):
        parse_conditions(["corruption-fog-3", "corruptions"], [], (0.0, 1.0))


def published(root: Path, pixels: np.ndarray, labels: np.ndarray) -> None:
    """Write files as MNIST-C has them, 28x28."""
    from advnorm.data.in_memory import MNIST_C

    for number, name in enumerate(MNIST_C):
        folder = root / "mnist_c" / name
        folder.mkdir(parents=True)
        np.save(folder / "test_images.npy", np.roll(pixels, number, axis=2))
        np.save(folder / "test_labels.npy", labels)


def test_the_published_files_are_evaluated_by_one_name(tmp_path):
    """All sixteen sets of MNIST-C, one result each, read once and judged like any data."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (40, 28, 28, 1), dtype=np.uint8)
    labels = (np.arange(40) % 10).astype(np.int64)
    published(tmp_path, pixels, labels)
    np.savez(
        tmp_path / "own.npz",
        **{f"x_{part}": pixels for part in ("train", "test")},
        **{f"y_{part}": labels for part in ("train", "test")},
    )
    recipe = parse(
        {
            "data": {"name": f"npz:{tmp_path / 'own.npz'}"},
            "model": {"name": "linear"},
            "norm": {"name": "none"},
            "objective": {"name": "standard"},
            "epochs": 1,
            "batch_size": 20,
            "evaluation": {"conditions": ["clean"], "data": "mnist-c"},
        }
    )
    out = tmp_path / "run"
    train(recipe, out)
    results = evaluate_run(Run.open(out), recipe, root=tmp_path)
    assert [r.data for r in results][:2] == ["mnist-c:brightness", "mnist-c:canny_edges"]
    assert len(results) == 16 and all(r.other and r.accuracy.n == 40 for r in results)
