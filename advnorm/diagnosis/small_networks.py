"""Small networks that a question trains itself, on the images that it was given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.attacks import bim
from advnorm.diagnosis.preserve import dealt, in_parts, logits_of, resting
from advnorm.draws import permutation
from advnorm.norms import Norm
from advnorm.progress import Progress
from advnorm.threat import Threat

Make = Callable[[], nn.Module]


@dataclass(frozen=True)
class Training:
    """How a small network is trained: plain SGD at a constant rate."""

    epochs: int
    rate: float
    batch_size: int
    decay: float = 0.0
    """Weight decay, of all parameters."""
    seed: int = 0


class Parts(NamedTuple):
    """Images to train on and images to test on, half of each class."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


class Score(NamedTuple):
    """Accuracy and mean loss on some images."""

    accuracy: float
    loss: float


def parted(images: Tensor, labels: Tensor) -> Parts:
    """Deal the images of each class to training and test in turn."""
    if len(images) < 4:
        raise ValueError(f"training a network needs at least 4 images, not {len(images)}")
    if not (labels != labels[0]).any():
        raise ValueError(
            f"training a network needs images of two classes or more, not of {labels[0]} "
            "alone: take more samples"
        )
    train, test = dealt(labels)
    return Parts(images[train], labels[train], images[test], labels[test])


def trained(make: Make, images: Tensor, labels: Tensor, how: Training) -> nn.Module:
    """Make a network and train it; the caller's random state is left alone.

    A last batch of one sample, which has no statistics, is left out.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(how.seed)
        model = make().to(images).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=how.rate, weight_decay=how.decay)
    with torch.enable_grad():
        for epoch in range(how.epochs):
            order = permutation(len(images), how.seed, "epoch", epoch).to(images.device)
            for rows in torch.split(order, how.batch_size):
                if len(rows) > 1:
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(images[rows]), labels[rows])
                    torch.autograd.backward(loss)
                    optimizer.step()
    return model.eval()


def attacked(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    step_size: float,
    progress: Progress | None = None,
) -> Tensor:
    """Return the images of BIM, which is FGSM for one step of length eps."""

    def search(rows: Tensor) -> Tensor:
        given = images[rows], labels[rows], threat
        return bim(model, *given, steps=steps, step_size=step_size)

    return in_parts(search, images, "images attacked", progress)


def score(model: nn.Module, images: Tensor, labels: Tensor) -> Score:
    """Return accuracy and mean cross-entropy with the running statistics."""
    with resting(model):
        logits = logits_of(model, images)
    right = (logits.argmax(1) == labels).double().mean()
    return Score(float(right), float(F.cross_entropy(logits, labels)))


def connected(
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
