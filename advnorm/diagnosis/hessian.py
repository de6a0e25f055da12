r"""How sharp is the loss? The largest eigenvalues of its Hessian (sridhar2021, Fig. 1b)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor, nn

from advnorm.diagnosis.common import QUIET
from advnorm.diagnosis.losses import LossFn, loss_surface
from advnorm.diagnosis.registry import Count, NonNegative, question
from advnorm.norms import Mode
from advnorm.progress import Progress
from advnorm.records import Diagnosis, Panel, Series
from advnorm.threat import Threat


class Spectrum(NamedTuple):
    """The two ends of a spectrum, and an error bound for the dominant one."""

    largest: float
    smallest: float
    error: float
    estimates: tuple[float, ...]
    """The dominant eigenvalue, after each step."""

    @property
    def dominant(self) -> float:
        """The eigenvalue of largest magnitude, with its sign, as of power iteration."""
        return max(self.largest, self.smallest, key=abs)


def spectrum(
    loss: LossFn,
    parameters: Sequence[Tensor],
    *,
    steps: int = 30,
    tolerance: float = 1e-3,
    seed: int = 0,
    progress: Progress = QUIET,
) -> Spectrum:
    r"""Return the ends of the Hessian's spectrum, by Lanczos on Hessian-vector products.

    From a random :math:`q_1`, with every new vector made orthogonal to all before,

    .. math::
        \beta_k q_{k+1} = H q_k - \alpha_k q_k - \beta_{k-1} q_{k-1}

    The eigenvalues of the tridiagonal :math:`(\alpha, \beta)` approach those of H from
    inside; :math:`\beta_k |s_k|`, with s the small matrix's eigenvector, bounds the
    distance to an eigenvalue of H. It stops below ``tolerance`` times the eigenvalue.
    """
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
        done = betas[-1] <= rounding * max(map(abs, alphas))  # the whole Krylov space
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
    tolerance: NonNegative = 1e-3,
    progress: Progress = QUIET,
) -> Diagnosis:
    """Largest Hessian eigenvalues of the plain, adversarial or certified loss."""
    with loss_surface(
        model, images, labels, threat, loss=loss, statistics=statistics, progress=progress
    ) as surface:
        ends = spectrum(*surface, steps=steps, tolerance=tolerance, progress=progress)
    count = tuple(range(1, len(ends.estimates) + 1))
    return Diagnosis(
        question="hessian",
        source="sridhar2021 Fig. 1b",
        reading="The larger the eigenvalue, the sharper the loss around these weights.",
        numbers={
            "dominant": ends.dominant,
            "largest": ends.largest,
            "smallest": ends.smallest,
            "error": ends.error,
        },
        settings={"loss": loss, "statistics": statistics, "n": len(images), "steps": steps},
        panels=(
            Panel(
                kind="lines",
                title=f"Hessian of the {loss} loss",
                x="Lanczos step",
                y="eigenvalue of largest size",
                series=(Series(name="estimate", x=count, y=ends.estimates),),
            ),
        ),
    )


def _product(grads: Sequence[Tensor], parameters: Sequence[Tensor], v: Tensor) -> Tensor:
    """Return the Hessian times a vector."""
    parts = torch.split(v, [p.numel() for p in parameters])
    shaped = [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]
    products = torch.autograd.grad(
        grads, parameters, shaped, retain_graph=True, materialize_grads=True
    )
    return torch.cat([part.reshape(-1) for part in products])
