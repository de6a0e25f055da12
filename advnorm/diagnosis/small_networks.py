"""Small networks that a question trains itself, on the images it is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.attacks import bim
from advnorm.diagnosis.common import (
    QUIET,
    attack_in_batches,
    frozen_eval,
    predict_logits,
    stratified_halves,
)
from advnorm.draws import Draws, permutation
from advnorm.norms import Norm
from advnorm.progress import Progress
from advnorm.threat import Threat

BuildNetwork = Callable[[], nn.Module]


@dataclass(frozen=True)
class SGDOptions:
    """How a small network is trained: plain SGD at a constant learning rate."""

    epochs: int
    lr: float
    batch_size: int
    decay: float = 0.0
    """Weight decay of all parameters."""
    seed: int = 0


class TrainTestSplit(NamedTuple):
    """Training and test images, half of each class."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


class NetworkScore(NamedTuple):
    """Accuracy and mean loss on some images."""

    accuracy: float
    loss: float


def split_train_test(images: Tensor, labels: Tensor) -> TrainTestSplit:
    """Split the images of each class between training and test."""
    if len(images) < 4:
        raise ValueError(f"training a network needs at least 4 images, not {len(images)}")
    if not (labels != labels[0]).any():
        raise ValueError(
            f"training a network needs images of two classes or more, not of class "
            f"{labels[0]} alone: take more samples"
        )
    train, test = stratified_halves(labels)
    return TrainTestSplit(images[train], labels[train], images[test], labels[test])


def train_network(
    build: BuildNetwork, images: Tensor, labels: Tensor, options: SGDOptions
) -> nn.Module:
    """Build a network and train it; the caller's random state does not change.

    A last batch of one sample, which has no batch statistics, is left out.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(options.seed)
        model = build().to(images).train()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=options.lr, weight_decay=options.decay
    )
    with torch.enable_grad():
        for epoch in range(options.epochs):
            order = permutation(len(images), options.seed, "epoch", epoch).to(images.device)
            for rows in torch.split(order, options.batch_size):
                if len(rows) > 1:
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(images[rows]), labels[rows])
                    torch.autograd.backward(loss)
                    optimizer.step()
    return model.eval()


def attack_with_bim(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    step_size: float,
    batch_size: int | None = None,
    progress: Progress = QUIET,
) -> Tensor:
    """Return the adversarial images of BIM, which is FGSM for one step of length eps."""

    def search(rows: Tensor) -> Tensor:
        x, y = images[rows], labels[rows]
        draws = Draws.of(0, rows)
        return bim(model, x, y, threat, steps=steps, step_size=step_size, draws=draws)

    return attack_in_batches(
        search, images, "images attacked", progress, batch_size=batch_size
    )


def evaluate_network(model: nn.Module, images: Tensor, labels: Tensor) -> NetworkScore:
    """Return accuracy and mean cross-entropy with the running statistics."""
    with frozen_eval(model):
        logits = predict_logits(model, images)
    accuracy = (logits.argmax(1) == labels).double().mean()
    return NetworkScore(float(accuracy), float(F.cross_entropy(logits, labels)))


def fully_connected(
    features: int, widths: list[int], classes: int, norms: list[Norm | None]
) -> nn.Module:
    """Return a fully connected ReLU network with hidden layers of these widths and norms.

    PyTorch's default initialization; a linear layer before a norm keeps its bias.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, width, norm in zip([features, *widths], widths, norms, strict=False):
        layers.append(nn.Linear(inputs, width))
        if norm is not None:
            layers.append(norm(width))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Linear([features, *widths][-1], classes))
