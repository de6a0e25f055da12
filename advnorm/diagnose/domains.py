"""The three domains of sitawarin2021: clean images, and what two attacks make of them."""

from torch import Tensor, nn

from advnorm.attacks import pgd
from advnorm.diagnose.rest import in_parts
from advnorm.draws import Draws
from advnorm.evaluate.cells import attackers_of
from advnorm.evaluate.judges import worst_case
from advnorm.progress import Progress
from advnorm.threat import Threat


def weak(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Return the images of PGD with steps of 2.5 eps / steps, in the model's mode."""

    def search(rows: Tensor) -> Tensor:
        given = images[rows], labels[rows], threat
        size, draws = 2.5 * threat.eps / steps, Draws.of(seed, rows)
        return pgd(model, *given, steps=steps, step_size=size, draws=draws)

    return in_parts(search, images, f"images, pgd-{steps}", progress)


def strong(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    suite: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor:
    """Return the worst images that a suite of attacks finds, in the model's mode."""
    judge = worst_case(attackers_of(suite, threat), threat)

    def search(rows: Tensor) -> Tensor:
        return judge(model, images[rows], labels[rows], Draws.of(seed, rows)).images

    return in_parts(search, images, f"images, {suite}", progress)


def three(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    threat: Threat,
    *,
    steps: int,
    suite: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Return the images of the three domains by name, found in the model's mode."""
    found = {"clean": images}
    found[f"pgd-{steps}"] = weak(
        model, images, labels, threat, steps=steps, seed=seed, progress=progress
    )
    found[suite] = strong(
        model, images, labels, threat, suite=suite, seed=seed, progress=progress
    )
    return found
