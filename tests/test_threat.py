"""Threat models against brute force and closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from advnorm.draws import Draws
from advnorm.threat import L2, Linf

THREATS = [Linf(0.1), L2(0.5), Linf(0.3, (-1.0, 2.0)), L2(3.0, (-2.0, 2.0))]
NORMS = {Linf: torch.inf, L2: 2}


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


@pytest.mark.parametrize("threat", THREATS, ids=str)
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
@pytest.mark.parametrize("kind", [Linf, L2])
def test_numbers_of_any_library_make_the_same_threat(kind, eps):
    threat = kind(eps, [np.float64(0), torch.tensor(1)])
    assert threat == kind(1.0) and hash(threat) == hash(kind(1.0))
    assert type(threat.eps) is float and set(map(type, threat.bounds)) == {float}


@pytest.mark.parametrize("threat", [*THREATS, Linf(8 / 255), L2(0.1234567), Linf(0)])
def test_the_repr_makes_the_same_threat(threat):
    assert eval(repr(threat)) == threat
