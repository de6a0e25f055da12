r"""The toy problems of galloway2019 in the plane: Gaussians (Figure 1) and spheres (H).

They are drawn: sample i of a split is a function of (seed, split, i). Their ``bounds`` are
wide enough that no point and no useful perturbation touches them.
"""

import torch
from torch import Tensor

from advnorm.data.splits import DataSet, TensorSplit
from advnorm.draws import Draws

_MEANS = torch.tensor([[-5.0, 0.0], [5.0, 0.0]], dtype=torch.float64)
_COVARIANCE = torch.tensor([[1.0, 0.05], [0.05, 0.01]], dtype=torch.float64)
_RADII = torch.tensor([1.0, 1.3], dtype=torch.float64)


def gaussians(*, seed: int, validation: float) -> DataSet:
    r"""Two classes with one covariance in the plane (galloway2019, section 3, Figure 1).

    .. math::
        y \sim \mathrm{Ber}(1/2), \quad x \mid y = j \sim N(\nu^j, \Sigma)

    with :math:`\nu^0 = [-5, 0]`, :math:`\nu^1 = [5, 0]`, :math:`\Sigma_{11} = 1`,
    :math:`\Sigma_{22} = 0.01`, :math:`\Sigma_{12} = 0.05`. The paper gives no count: there
    are 1,000 training and 1,000 test points. The bounds are [-16, 16], 11 deviations away.
    """

    def draw(split: str, count: int) -> TensorSplit:
        points, labels = gaussian_points(count, seed=seed, split=split)
        return TensorSplit(points.float(), labels)

    return DataSet(
        "gaussians",
        (2,),
        ("left", "right"),
        (-16.0, 16.0),
        draw("train", 1000),
        draw("validation", round(1000 * validation)),
        draw("test", 1000),
    )


def gaussian_points(
    count: int, *, seed: int, split: str = "train"
) -> tuple[Tensor, Tensor]:
    """Draw ``count`` points of :func:`gaussians` in double precision, and their labels.

    A larger count begins with the same points.
    """
    draws = Draws.of(seed, torch.arange(count)).stream("gaussians", split)
    labels = (draws.stream("label").uniform() < 0.5).long()
    noise = draws.stream("noise").normal(2, dtype=torch.float64)
    return _MEANS[labels] + noise @ torch.linalg.cholesky(_COVARIANCE).T, labels


def spheres(*, seed: int, validation: float) -> DataSet:
    r"""Two concentric circles of radius 1 and 1.3 (galloway2019, appendix H; Gilmer, 2018).

    .. math:: x = R_y z / \|z\|_2, \quad z \sim N(0, I)

    500 training points and 20,000 test points, half of them of each class. The bounds
    are [-2, 2].
    """

    def draw(split: str, count: int) -> TensorSplit:
        numbers = torch.arange(count)
        draws = Draws.of(seed, numbers).stream("spheres", split)
        return TensorSplit(
            _project(draws.normal(2, dtype=torch.float64), numbers % 2), numbers % 2
        )

    return DataSet(
        "spheres",
        (2,),
        ("inner", "outer"),
        (-2.0, 2.0),
        draw("train", 500),
        draw("validation", round(500 * validation)),
        draw("test", 20_000),
    )


def _project(points: Tensor, labels: Tensor) -> Tensor:
    lengths = torch.linalg.vector_norm(points, dim=1, keepdim=True)
    projected: Tensor = points / lengths * _RADII[labels, None]
    return projected.float()
