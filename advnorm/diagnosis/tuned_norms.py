"""Do filters of one domain serve the other, once the norms are tuned to it? (xie2020)."""

from collections.abc import Callable
from copy import deepcopy
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm.diagnosis.attacked_domains import attack_images
from advnorm.diagnosis.common import QUIET, frozen_eval, predict_logits
from advnorm.diagnosis.registry import Count, question
from advnorm.draws import permutation
from advnorm.norms import mode, norm_parameters, route
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat

TrainingSamples = Callable[[int], tuple[Tensor, Tensor]]


@question("tuned_norms")
def tuned_norms(  # noqa: PLR0913 (options of a question)
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat,
    domain: Literal["clean", "adversarial"] = "clean",
    tuned_on: Count = 5000,
    epochs: Count = 2,
    batch_size: Annotated[int, Field(ge=2)] = 100,
    lr: Annotated[float, Field(gt=0)] = 0.01,
    attack: str = "pgd-5",
    test_attack: str = "pgd-50",
    training_samples: TrainingSamples | None = None,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Tune a copy's norms alone on one domain, and test both (xie2020 section 4.4).

    SGD with momentum 0.9 on ``tuned_on`` training images of the run; all parameters but
    those of norms stay, and running statistics follow the batches. ``attack`` makes the
    adversarial images of each batch, ``test_attack`` those of the test, both against the
    running statistics. The model that is asked about does not change.
    """
    if training_samples is None:
        raise ValueError("tuned_norms needs the training images of a run: ask about a run")
    if not any(True for _ in norm_parameters(model)):
        raise ValueError("tuned_norms needs norms with parameters, and this model has none")
    own, classes = training_samples(tuned_on)
    samples = own.to(images), classes
    tuned = deepcopy(model)

    def search(batch: Tensor, targets: Tensor) -> Tensor:
        with frozen_eval(tuned):
            return attack_images(tuned, batch, targets, threat, attack=attack)

    with torch.random.fork_rng(), route(tuned, domain=domain):
        torch.manual_seed(0)  # a dropout layer draws in training
        tune_norms(
            tuned,
            samples,
            search if domain == "adversarial" else None,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            progress=progress,
        )
        after = _accuracies(tuned, images, labels, threat, test_attack)
    before = _accuracies(model, images, labels, threat, test_attack)
    numbers = {f"{name}, before": value for name, value in before.items()}
    numbers |= {f"{name}, tuned": value for name, value in after.items()}
    return Diagnosis(
        question="tuned_norms",
        source="xie2020 section 4.4",
        reading="Filters that serve the other domain once the norms are tuned to it hold "
        "what that domain needs.",
        numbers=numbers,
        settings={
            "n": len(images),
            "domain": domain,
            "tuned_on": len(samples[0]),
            "epochs": epochs,
            "lr": lr,
            "attack": attack if domain == "adversarial" else "none",
            "test_attack": test_attack,
        },
        panels=(
            Panel(
                kind="bars",
                title=f"Norms tuned on {domain} images",
                x="test",
                names=tuple(before),
                y="accuracy, %",
                series=tuple(
                    Series(name=name, x=(0.0, 1.0), y=tuple(values.values()))
                    for name, values in (("before", before), ("tuned", after))
                ),
            ),
        ),
    )


def tune_norms(
    model: nn.Module,
    samples: tuple[Tensor, Tensor],
    search: Callable[[Tensor, Tensor], Tensor] | None,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    progress: Progress = QUIET,
) -> None:
    """Train the norms of a model alone, on the images that ``search`` makes of a batch."""
    model.requires_grad_(False)
    parameters = list(norm_parameters(model))
    for parameter in parameters:
        parameter.requires_grad_(True)
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    for epoch in range(epochs):
        order = permutation(len(samples[0]), epoch, "tuned_norms").to(samples[0].device)
        for rows in torch.split(order, batch_size):
            if len(rows) < 2:  # has no batch statistics
                continue
            batch, labels = (each[rows] for each in samples)
            batch = search(batch, labels) if search else batch
            model.train()
            with mode(model, "train"), torch.enable_grad():
                loss = F.cross_entropy(model(batch), labels)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        progress.update(epoch + 1, epochs, "epochs of the norms")


def _accuracies(
    model: nn.Module, images: Tensor, labels: Tensor, threat: Threat, attack: str
) -> dict[str, float]:
    """Return clean and attacked accuracy in percent, by running statistics.

    As a failed attack is no success, a sample counts only if it is right on both images.
    """
    with frozen_eval(model):
        attacked = attack_images(model, images, labels, threat, attack=attack)
        right = [
            predict_logits(model, each).argmax(1) == labels for each in (images, attacked)
        ]
    shares = {"clean": right[0], "attacked": right[0] & right[1]}
    return {name: 100 * float(each.double().mean()) for name, each in shares.items()}
