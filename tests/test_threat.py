"""Threat models against brute force and closed forms."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from advnorm.draws import Draws
from advnorm.threat import L0, L1, L2, Linf

THREATS = [
    Linf(0.1),
    L2(0.5),
    L1(1.5),
    L0(3),
    Linf(0.3, (-1.0, 2.0)),
    L2(3.0, (-2.0, 2.0)),
    L1(4.0, (-2.0, 2.0)),
    L0(2, (-2.0, 2.0)),
]
STEEPEST = [threat for threat in THREATS if not isinstance(threat, L0)]
NORMS = {Linf: torch.inf, L2: 2, L1: 1, L0: 0}


def distance(threat, x, clean):
    return (x - clean).flatten(1).norm(p=NORMS[type(threat)], dim=1)


@pytest.mark.parametrize("threat", THREATS, ids=str)
@pytest.mark.parametrize("shape", [(4,), (3, 5, 5)], ids=str)
def test_project_lands_inside_and_leaves_inside_points_alone(threat, shape):
    low, high = threat.bounds
    clean = torch.rand(8, *shape) * (high - low) + low
    projected = threat.project(clean + torch.randn_like(clean), clean)
    assert (distance(threat, projected, clean) <= threat.eps + 1e-6).all()
    assert projected.min() >= low and projected.max() <= high
    assert threat.contains(projected, clean).all()
    torch.testing.assert_close(threat.project(projected, clean), projected)


def test_l2_projection_never_grows_a_perturbation():
    clean = torch.full((1, 4), 0.5)
    near = clean + torch.tensor([[0.01, 0, 0, 0]])
    torch.testing.assert_close(L2(0.2).project(near, clean), near)


@pytest.mark.parametrize("threat", STEEPEST, ids=str)
def test_direction_beats_random_directions_of_unit_norm(threat):
    grad = torch.randn(6, 10)
    best = (grad * threat.direction(grad)).sum(1)
    random = torch.randn(1000, 6, 10)
    random /= random.norm(p=NORMS[type(threat)], dim=-1, keepdim=True)
    assert (best + 1e-5 >= (grad * random).sum(-1)).all()


@given(st.floats(-37, 37))
@settings(deadline=None, max_examples=50)
def test_l2_direction_has_unit_length_for_any_finite_gradient(exponent):
    grad = torch.tensor([[3.0, 4.0]], dtype=torch.float32) * 10.0**exponent
    torch.testing.assert_close(L2(1.0).direction(grad), torch.tensor([[0.6, 0.8]]))


def test_a_zero_gradient_moves_nothing():
    for threat in THREATS:
        assert (threat.direction(torch.zeros(2, 3)) == 0).all()


@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_samples_are_admissible_and_depend_on_their_own_sample_alone(threat):
    low, high = threat.bounds
    clean = torch.rand(50, 3, 4, 4) * (high - low) + low
    draws = Draws.of(3, torch.arange(50))
    x = threat.sample(clean, draws)
    assert threat.contains(x, clean).all()
    rows = torch.tensor([7, 31])
    assert torch.equal(threat.sample(clean[rows], draws[rows]), x[rows])


def test_linf_samples_fill_the_cube():
    clean = torch.full((4000, 2), 0.5)
    delta = Linf(0.2).sample(clean, Draws.of(0, torch.arange(4000))) - 0.5
    assert delta.abs().max() > 0.199 and abs(delta.mean()) < 0.005
    assert abs(delta.var() - 0.4**2 / 12) < 1e-3


def test_l2_samples_are_uniform_in_the_ball():
    """The fraction within half the radius of a 3-D ball is 1/8."""
    clean = torch.zeros(20000, 3)
    x = L2(1.0, (-2.0, 2.0)).sample(clean, Draws.of(0, torch.arange(20000)))
    inner = (x.norm(dim=1) < 0.5).float().mean()
    assert abs(inner - 1 / 8) < 0.01


@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_contains_refuses_what_leaves_ball_or_bounds(threat):
    low, high = threat.bounds
    clean = torch.full((1, 5), (low + high) / 2)
    beyond = clean.clone()
    if isinstance(threat, L0):
        beyond[0, : int(threat.eps) + 1] += 0.01
    else:
        beyond[0, 0] += threat.eps * 1.001
    assert not threat.contains(beyond, clean)
    edge = torch.full((1, 5), high)
    assert not threat.contains(edge + 1e-3, edge)
    assert not threat.contains(torch.full_like(clean, torch.nan), clean)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Linf(-0.1), "must be >= 0"),
        (lambda: L2(-1.0), "must be >= 0"),
        (lambda: Linf(float("nan")), "must be >= 0"),
        (lambda: Linf(8.0), "write 8/255"),
        (lambda: Linf(float("inf")), "must be >= 0 and finite"),
        (lambda: Linf("8/255"), "give one number, such as 8/255, not '8/255'"),
        (lambda: L2(True), "give one number.*not True"),
        (lambda: L2(np.bool_(True)), "give one number"),
        (lambda: L2(torch.tensor(True)), "give one number"),
        (lambda: L2(None), "give one number.*not None"),
        (lambda: L2(1 + 2j), "give one number"),
        (lambda: Linf([4 / 255, 8 / 255]), "give a list of threats"),
        (lambda: Linf(torch.tensor([0.1, 0.2])), "give a list of threats"),
        (lambda: L2(1.0).with_eps("1"), "give one number"),
        (lambda: L1(-1.0), "must be >= 0"),
        (lambda: L0(2.5), "number of features.*whole number, such as 20"),
        (lambda: L0("3"), "give one number"),
        (lambda: Linf(0.1, (1.0, 0.0)), "low < high"),
        (lambda: Linf(0.1, (0.0, float("nan"))), "low < high"),
        (lambda: Linf(0.1, 1.0), "bounds are two numbers"),
        (lambda: Linf(0.1, "01"), "bounds are two numbers"),
        (lambda: Linf(0.1, (False, True)), "bounds are two numbers"),
        (lambda: L2(0.1, (0, 0.5, 1)), "bounds are two numbers"),
        (lambda: L2(0.1, (torch.zeros(3), torch.ones(3))), "bounds of each channel"),
    ],
)
def test_wrong_radius_or_bounds_are_refused_with_the_remedy(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "eps", [1, np.float32(1), np.int64(1), np.ones(()), torch.tensor(1.0), torch.tensor(1)]
)
@pytest.mark.parametrize("kind", [Linf, L2, L1, L0])
def test_numbers_of_any_library_make_the_same_threat(kind, eps):
    threat = kind(eps, [np.float64(0), torch.tensor(1)])
    assert threat == kind(1.0) and hash(threat) == hash(kind(1.0))
    assert type(threat.eps) is float and set(map(type, threat.bounds)) == {float}


@pytest.mark.parametrize("threat", [*THREATS, Linf(8 / 255), L2(0.1234567), Linf(0)])
def test_the_repr_makes_the_same_threat(threat):
    assert eval(repr(threat)) == threat


def project_by_solver(y, clean, eps, bounds):
    """Solve the projection onto the L1 ball in the box with scipy."""
    d = len(y)  # in positive and negative parts of the change, it is smooth
    parts = LinearConstraint(np.ones(2 * d), -np.inf, eps)
    ends = [(0.0, max(bounds[1] - c, 0.0)) for c in clean]
    ends += [(0.0, max(c - bounds[0], 0.0)) for c in clean]
    result = minimize(
        lambda v: 0.5 * np.sum((v[:d] - v[d:] - (y - clean)) ** 2),
        np.zeros(2 * d),
        jac=lambda v: np.concatenate([r := v[:d] - v[d:] - (y - clean), -r]),
        bounds=ends,
        constraints=[parts],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert result.success
    return clean + result.x[:d] - result.x[d:]


@pytest.mark.parametrize("seed", range(12))
def test_the_l1_projection_is_that_of_a_solver(seed):
    generator = torch.Generator().manual_seed(seed)
    clean = torch.rand(1, 7, generator=generator).double().round(decimals=seed % 3)
    y = clean + (0.2 + seed / 6) * torch.randn(1, 7, generator=generator).double()
    eps = 0.1 + 0.2 * seed
    projected = L1(eps).project(y, clean)[0].numpy()
    exact = project_by_solver(y[0].numpy(), clean[0].numpy(), eps, (0.0, 1.0))
    np.testing.assert_allclose(projected, exact, atol=2e-6)


@given(st.integers(0, 10**6), st.floats(0, 50), st.sampled_from([2, 9, 300]))
@settings(deadline=None, max_examples=60)
def test_the_l1_projection_meets_the_optimality_conditions(seed, eps, d):
    """What is not clipped shrinks by one number, and the radius is used up or not needed."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.rand(3, d, generator=generator, dtype=torch.float64)
    y = clean + 2 * torch.randn(3, d, generator=generator, dtype=torch.float64)
    threat = L1(eps)
    change, wish = threat.project(y, clean) - clean, y - clean
    clipped = y.clamp(0, 1) - clean
    needed = clipped.abs().sum(1) > eps
    length = change.abs().sum(1)
    assert ((length - eps).abs()[needed] < 1e-9 * (1 + eps)).all()
    assert torch.equal(change[~needed], (y.clamp(0, 1) - clean)[~needed]) or torch.allclose(
        change[~needed], clipped[~needed], atol=1e-12
    )
    shrunk = wish.abs() - change.abs()
    free = (change.abs() > 1e-9) & (change.abs() < clipped.abs() - 1e-9)
    for row in range(3):
        by = shrunk[row][free[row]]
        if len(by):
            assert by.max() - by.min() < 1e-8
            still = change[row].abs() <= 1e-9
            assert (wish[row].abs()[still] <= by.max() + 1e-8).all()


def test_the_l0_projection_is_that_of_brute_force():
    generator = torch.Generator().manual_seed(0)
    clean = torch.rand(40, 6, generator=generator)
    y = clean + torch.randn(40, 6, generator=generator)
    sets = [torch.tensor(s) for s in combinations(range(6), 2)]
    options = torch.stack([clean] * len(sets))
    for option, chosen in zip(options, sets, strict=True):
        option[:, chosen] = y[:, chosen].clamp(0, 1)
    best = (options - y).square().sum(2).amin(0)
    projected = L0(2).project(y, clean)
    torch.testing.assert_close((projected - y).square().sum(1), best)
    assert ((projected != clean).sum(1) <= 2).all()


def test_l1_samples_are_uniform_in_the_ball():
    """The share within half the radius of a ball of 3 dimensions is 1/8."""
    clean = torch.zeros(20000, 3)
    x = L1(1.0, (-2.0, 2.0)).sample(clean, Draws.of(0, torch.arange(20000)))
    length = x.abs().sum(1)
    assert abs((length < 0.5).float().mean() - 1 / 8) < 0.01 and length.max() > 0.99
    assert abs(x.mean()) < 0.01 and abs(x.abs().mean() - 1 / 4) < 0.01


def test_l0_samples_change_as_many_features_as_they_may():
    clean = torch.zeros(200, 30)
    x = L0(4).sample(clean, Draws.of(0, torch.arange(200)))
    assert torch.equal((x != 0).sum(1), torch.full((200,), 4))
    assert (x != 0).any(0).all()


def test_the_l1_direction_takes_the_steepest_twentieth():
    grad = torch.arange(80.0)[None] * torch.tensor([1.0, -1.0]).repeat(40)
    direction = L1(1.0).direction(grad)
    assert direction[0, 76:].tolist() == [0.25, -0.25, 0.25, -0.25]
    assert direction.abs().sum() == 1


@pytest.mark.parametrize("threat", THREATS, ids=str)
def test_shrink_projects_each_sample_to_its_own_radius(threat):
    clean = torch.rand(3, 8)
    x = (clean + torch.randn(3, 8)).clamp(*threat.bounds)
    radii = torch.tensor([1.0, 2.0, 3.0]) * (1 if isinstance(threat, L0) else 0.1)
    together = threat.shrink(x, clean, radii)
    for row, radius in enumerate(radii.tolist()):
        alone = threat.with_eps(radius).project(x[row : row + 1], clean[row : row + 1])
        torch.testing.assert_close(together[row], alone[0])


def test_half_a_radius_of_features_is_rounded_up():
    assert L0(5).scaled(0.5) == L0(3) and L0(5).scaled(0.001) == L0(1)
    assert L0(5).scaled(0) == L0(0) and L1(5).scaled(0.5) == L1(2.5)


def test_the_diameter_is_the_distance_of_opposite_corners():
    low, high = torch.full((1, 2, 3), -1.0), torch.full((1, 2, 3), 1.0)
    for kind in (Linf, L2, L1, L0):
        threat = kind(1, (-1.0, 1.0))
        assert threat.diameter((2, 3)) == pytest.approx(float(threat.distance(low, high)))
