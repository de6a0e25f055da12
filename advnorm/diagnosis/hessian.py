r"""How sharp is the loss? The largest eigenvalues of its Hessian (sridhar2021, Fig. 1b)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor, nn

from advnorm.diagnosis.losses import LossFn, differentiable, make_loss
from advnorm.diagnosis.option_ranges import Count, Factor
from advnorm.diagnosis.registry import question
from advnorm.norms import Mode
from advnorm.progress import Progress, Quiet
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


class Spectrum(NamedTuple):
    """The ends of a spectrum, and how far the one of larger size may be off."""

    largest: float
    smallest: float
    error: float
    estimates: tuple[float, ...]
    """The eigenvalue of largest size, after each step."""

    @property
    def dominant(self) -> float:
        """The eigenvalue of largest size, with its sign: what power iteration finds."""
        return max(self.largest, self.smallest, key=abs)


def spectrum(
    loss: LossFn,
    parameters: Sequence[Tensor],
    *,
    steps: int = 30,
    tolerance: float = 1e-3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Spectrum:
    r"""Find the ends of the Hessian's spectrum from Hessian-vector products (Lanczos).

    From a random :math:`q_1`, with every new vector made orthogonal to all before,

    .. math::
        \beta_k q_{k+1} = H q_k - \alpha_k q_k - \beta_{k-1} q_{k-1}

    The eigenvalues of the tridiagonal :math:`(\alpha, \beta)` approach those of H from
    inside; :math:`\beta_k |s_k|`, with s the small matrix's eigenvector, bounds the
    distance to an eigenvalue of H. The walk ends below ``tolerance`` times the eigenvalue.
    """
    progress = progress or Quiet()
    grads = torch.autograd.grad(
        loss(), parameters, create_graph=True, materialize_grads=True
    )
    size = sum(p.numel() for p in parameters)
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(size, generator=generator, dtype=torch.float64).to(parameters[0])
    rounding = 10 * torch.finfo(q.dtype).eps
    basis, alphas, betas, estimates = [q / q.norm()], [], [], []
    for step in range(1, min(steps, size) + 1):
        w = _product(grads, parameters, basis[-1])
        alphas.append(float(w @ basis[-1]))
        for _ in range(2):  # once is not enough in floating point
            for vector in basis:
                w = w - (w @ vector) * vector
        betas.append(float(w.norm()))
        values, vectors = eigh_tridiagonal(alphas, betas[:-1])
        index = abs(values).argmax()
        error = betas[-1] * abs(vectors[-1, index])
        estimates.append(float(values[index]))
        progress.update(step, steps, f"eigenvalue {values[index]:.4g} +- {error:.2g}")
        done = betas[-1] <= rounding * max(map(abs, alphas))  # all there is was seen
        if done or error <= tolerance * abs(values[index]):
            break
        basis.append(w / betas[-1])
    return Spectrum(float(values[-1]), float(values[0]), float(error), tuple(estimates))


@question("hessian")
def hessian(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    threat: Threat | None = None,
    loss: str = "plain",
    statistics: Mode = "batch",
    steps: Count = 30,
    tolerance: Factor = 1e-3,
    progress: Progress | None = None,
) -> Diagnosis:
    """Largest Hessian eigenvalue of the plain, adversarial or certified loss."""
    with differentiable(model, statistics) as parameters:
        surface = make_loss(
            model, images, labels, loss=loss, threat=threat, progress=progress
        )
        found = spectrum(
            surface,
            parameters,
            steps=steps,
            tolerance=tolerance,
            progress=progress,
        )
    count = tuple(range(1, len(found.estimates) + 1))
    return Diagnosis(
        question="hessian",
        source="sridhar2021 Fig. 1b",
        reading="The larger the eigenvalue, the sharper the loss around these weights.",
        numbers={
            "dominant": found.dominant,
            "largest": found.largest,
            "smallest": found.smallest,
            "error": found.error,
        },
        settings={"loss": loss, "statistics": statistics, "n": len(images), "steps": steps},
        panels=(
            Panel(
                kind="lines",
                title=f"Hessian of the {loss} loss",
                x="Lanczos step",
                y="eigenvalue of largest size",
                series=(Series(name="estimate", x=count, y=found.estimates),),
            ),
        ),
    )


def _product(grads: Sequence[Tensor], parameters: Sequence[Tensor], v: Tensor) -> Tensor:
    """Return the Hessian times a vector."""
    parts = torch.split(v, [p.numel() for p in parameters])
    shaped = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
    found = torch.autograd.grad(
        grads, parameters, shaped, retain_graph=True, materialize_grads=True
    )
    return torch.cat([part.reshape(-1) for part in found])
