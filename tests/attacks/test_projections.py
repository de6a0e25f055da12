"""The projections onto a plane in a box, against independent solvers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from advnorm.attacks.projections import project_l2, project_linf

BOX = (-0.5, 1.25)
ORDERS = {project_linf: torch.inf, project_l2: 2}
BOTH = pytest.mark.parametrize("project", ORDERS, ids=lambda f: f.__name__)


def problem(seed, batch=5, d=6):
    """Return points (some on the edge), planes (some weights 0, some tiny) and offsets.

    About a third of the planes miss the box.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    low, high = BOX
    x = (low + (high - low) * (uniform(batch, d) * 1.6 - 0.3)).clamp(low, high)
    w = (uniform(batch, d) - 0.5) * 10.0 ** (-4 * uniform(batch, d))
    w = w * (uniform(batch, d) < 0.7)
    z = low + (high - low) * (uniform(batch, d) * 2.0 - 0.5)
    return x, w, (w * z).sum(1)


def reach(w):
    """Return the least and the greatest value of w.z over the box."""
    ends = torch.stack([w * BOX[0], w * BOX[1]])
    return ends.amin(0).sum(-1), ends.amax(0).sum(-1)


def least_radius(x, w, b):
    """Solve min r with |z - x| <= r, w.z = b, z in the box, as a linear program."""
    d = len(x)
    ones = -np.ones((d, 1))
    result = linprog(
        np.r_[np.zeros(d), 1.0],
        A_ub=np.block([[np.eye(d), ones], [-np.eye(d), ones]]),
        b_ub=np.r_[x, -x],
        A_eq=np.r_[w, 0.0][None],
        b_eq=[b],
        bounds=[BOX] * d + [(0, None)],
    )
    assert result.success
    return result.fun


def least_distance(x, w, b):
    """Try all 3^d ways to hold pixels at an edge; the free ones have a closed form."""
    d, best = len(x), np.inf
    for code in range(3**d):
        bound = np.array([(code // 3**i) % 3 for i in range(d)])
        z = np.where(bound == 1, BOX[0], np.where(bound == 2, BOX[1], x))
        free, lack = bound == 0, b - w @ z
        norm = (w[free] ** 2).sum()
        if norm > 0:
            z = z + np.where(free, w, 0) * lack / norm
        inside = (z >= BOX[0] - 1e-9).all() and (z <= BOX[1] + 1e-9).all()
        if inside and abs(w @ z - b) < 1e-9:
            best = min(best, np.linalg.norm(z - x))
    return best


SOLVERS = {project_linf: (least_radius, 6), project_l2: (least_distance, 4)}


@BOTH
@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_the_distance_is_that_of_a_brute_force_solver(project, seed):
    solver, d = SOLVERS[project]
    x, w, b = problem(seed, d=d)
    z = project(x, w, b, BOX)
    least, most = reach(w)
    meets = (b > least + 1e-9) & (b < most - 1e-9)
    for i in meets.nonzero().flatten().tolist():
        expected = solver(x[i].numpy(), w[i].numpy(), float(b[i]))
        distance = (z[i] - x[i]).norm(p=ORDERS[project])
        assert float(distance) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@BOTH
@given(st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None, max_examples=60)
def test_the_point_is_in_the_box_and_on_the_plane_or_as_near_as_can_be(
    project, seed, dtype
):
    x, w, b = (part.to(dtype) for part in problem(seed, batch=40, d=12))
    z = project(x, w, b, BOX)
    assert z.dtype == dtype and ((z >= BOX[0]) & (z <= BOX[1])).all()
    nearest = torch.clamp(b, *reach(w))
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-11}[dtype]
    torch.testing.assert_close((w * z).sum(1), nearest, rtol=0, atol=tolerance)


@BOTH
def test_a_plane_that_misses_the_box_gives_its_nearest_corner(project):
    x = torch.tensor([[0.2, 0.3, 0.4]] * 2).double()
    w = torch.tensor([[1.0, -2.0, 0.0]] * 2).double()
    z = project(x, w, torch.tensor([9.0, -9.0]).double(), (0.0, 1.0))
    expected = torch.tensor([[1.0, 0.0, 0.4], [0.0, 1.0, 0.4]]).double()
    torch.testing.assert_close(z, expected, rtol=0, atol=0)


@BOTH
def test_a_plane_through_the_point_or_without_a_normal_moves_nothing(project):
    x = torch.rand(2, 5).double()
    w = torch.stack([torch.rand(5), torch.zeros(5)]).double()
    b = torch.stack([(w[0] * x[0]).sum(), torch.tensor(3.0).double()])
    assert torch.allclose(project(x, w, b, (0.0, 1.0)), x, rtol=0, atol=1e-15)


@BOTH
@pytest.mark.parametrize("factor", [1e-30, 1e-12, 1e12, 1e25])
def test_the_scale_of_a_plane_does_not_matter(project, factor):
    x, w, b = (part.float() for part in problem(3, batch=20, d=12))
    expected = project(x, w, b, BOX)
    scaled = project(x, w * factor, b * factor, BOX)
    torch.testing.assert_close(scaled, expected, rtol=0, atol=2e-4)


@BOTH
def test_breakpoints_over_many_scales_are_solved_too(project):
    """Weights from 1 to 1e-8: one pixel after the other meets its edge."""
    w = 10.0 ** -torch.linspace(0, 8, 40).double()[None]
    x = 1 - 10.0 ** -torch.linspace(8, 0, 40).double()[None]
    for share in (0.1, 0.5, 0.9, 0.999999):
        b = (w * x).sum(1) + share * (w * (1 - x)).sum(1)
        z = project(x, w, b, (0.0, 1.0))
        lack = (b - (w * z).sum(1)).abs() / (b - (w * x).sum(1))
        assert lack < 1e-6


@BOTH
def test_a_rows_result_does_not_depend_on_its_batch(project):
    x, w, b = problem(11, batch=64, d=30)
    together = project(x, w, b, BOX)
    for i in (0, 17, 63):
        alone = project(x[i : i + 1], w[i : i + 1], b[i : i + 1], BOX)
        torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-13)


@BOTH
def test_no_rows_are_fine(project):
    x = torch.zeros(0, 4)
    assert project(x, x, torch.zeros(0), (0.0, 1.0)).shape == (0, 4)
