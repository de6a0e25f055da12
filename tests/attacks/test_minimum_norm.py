"""DDN, FMN, sigma-zero and PDPGD against linear models, whose nearest examples are known."""

import pytest
import torch
from torch import nn

from advnorm.attacks import NonFiniteGradientError
from advnorm.attacks.ddn import ddn, ddn_nearest
from advnorm.attacks.fab import fab_nearest
from advnorm.attacks.fmn import fmn, fmn_nearest
from advnorm.attacks.minimum_norm import is_wrong
from advnorm.attacks.pdpgd import pdpgd, pdpgd_nearest
from advnorm.attacks.sigma_zero import sigma_zero, sigma_zero_nearest
from advnorm.threat import L0, L1, L2, Linf

WIDE = (-10.0, 10.0)
DUALS = {"linf": 1, "l2": 2, "l1": torch.inf}
NEAREST = {
    "ddn l2": (ddn_nearest, L2, 100),
    "fmn linf": (fmn_nearest, Linf, 60),
    "fmn l2": (fmn_nearest, L2, 60),
    "fmn l1": (fmn_nearest, L1, 60),
    "fmn l0": (fmn_nearest, L0, 30),
    "sigma_zero l0": (sigma_zero_nearest, L0, 30),
    "pdpgd l1": (pdpgd_nearest, L1, 200),
    "fab l1": (fab_nearest, L1, 20),
}
SEARCHES = pytest.mark.parametrize("search", NEAREST)
ATTACKS = [
    (ddn, L2(0.6)),
    (fmn, Linf(0.1)),
    (fmn, L1(1.5)),
    (sigma_zero, L0(2)),
    (pdpgd, L1(1.5)),
]
NAMES = [f"{attack.__name__} {threat.name}" for attack, threat in ATTACKS]


def linear(seed):
    """Return a random linear model, of two classes or five, images and their labels."""
    generator = torch.Generator().manual_seed(seed)
    classes, d = (2, 5)[seed % 2], 12
    weight = torch.randn(classes, d, generator=generator).double()
    bias = 0.1 * torch.randn(classes, generator=generator).double()
    clean = torch.rand(16, d, generator=generator).double()

    def model(x):
        return x @ weight.T + bias

    return model, weight, clean, model(clean).argmax(1)


def exact_distances(model, weight, clean, labels, name, bounds):
    """Return min over k of (f_y - f_k) / |w_y - w_k| in the dual norm; count in L0."""
    logits = model(clean)
    lead = logits.gather(1, labels[:, None]) - logits
    towards = weight - weight[labels][:, None]
    if name == "l0":  # greedy: the features that gain most, each to the end of the box
        x = clean[:, None]
        gains = torch.where(towards > 0, bounds[1] - x, x - bounds[0]) * towards.abs()
        total = gains.sort(2, descending=True).values.cumsum(2)
        distance = 1.0 + (total < lead[..., None]).sum(2)
        distance = torch.where(total[..., -1] >= lead, distance, torch.inf)
    else:
        distance = lead / towards.norm(p=DUALS[name], dim=2)
    return distance.scatter(1, labels[:, None], torch.inf).amin(1)


@SEARCHES
@pytest.mark.parametrize("seed", range(20))
def test_distances_of_linear_models_are_the_closed_forms_within_one_percent(search, seed):
    nearest, kind, steps = NEAREST[search]
    model, weight, clean, labels = linear(seed)
    bounds = (0.0, 1.0) if kind is L0 else WIDE  # any one feature suffices in a wide box
    threat = kind(1, bounds)
    exact = exact_distances(model, weight, clean, labels, threat.name, bounds)
    images, distances = nearest(model, clean, labels, threat, steps=steps)
    can = exact.isfinite()
    assert torch.equal(distances.isfinite(), can)  # none missed
    assert is_wrong(model(images[can]), labels[can]).all()  # none invalid
    torch.testing.assert_close(threat.distance(images, clean)[can], distances[can])
    assert images.min() >= bounds[0] and images.max() <= bounds[1]
    ratio = distances[can] / exact[can]
    assert ratio.min() >= 1 - 1e-9 and ratio.max() < 1.01


@pytest.mark.parametrize(("attack", "threat"), ATTACKS, ids=NAMES)
def test_inside_a_ball_an_attack_breaks_what_is_near_and_returns_the_rest_clean(
    attack, threat
):
    model, weight, clean, labels = linear(3)
    bounds = (0.0, 1.0) if threat.name == "l0" else WIDE
    exact = exact_distances(model, weight, clean, labels, threat.name, bounds)
    threat = type(threat)(threat.eps, bounds)
    x = attack(model, clean, labels, threat, steps=100)
    broken = model(x).argmax(1) != labels
    assert threat.contains(x, clean).all() and torch.equal(x[~broken], clean[~broken])
    assert broken[exact < 0.99 * threat.eps].all() and broken.any() and not broken.all()


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 4))
    with torch.no_grad():
        model[1].weight.mul_(4)
        model[3].bias.zero_()
    clean = torch.rand(10, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return model.double(), clean.double()


@SEARCHES
def test_a_samples_result_does_not_depend_on_its_batch(network, search):
    nearest, kind, _ = NEAREST[search]
    model, clean = network
    labels, rows = model(clean).argmax(1), torch.tensor([6, 2])
    together = nearest(model, clean, labels, kind(1), steps=20)
    some = nearest(model, clean[rows], labels[rows], kind(1), steps=20)
    torch.testing.assert_close(some.distances, together.distances[rows], atol=1e-9, rtol=0)
    torch.testing.assert_close(some.images, together.images[rows], atol=1e-8, rtol=0)


@SEARCHES
def test_a_misclassified_image_has_distance_zero(network, search):
    nearest, kind, _ = NEAREST[search]
    model, clean = network
    wrong = (model(clean).argmax(1) + 1) % 4
    images, distances = nearest(model, clean, wrong, kind(1), steps=2)
    assert torch.equal(images, clean) and (distances == 0).all()


@SEARCHES
def test_a_constant_model_has_no_adversarial_image(search):
    nearest, kind, _ = NEAREST[search]
    clean, labels = torch.rand(3, 4), torch.zeros(3, dtype=torch.long)
    images, distances = nearest(
        lambda x: torch.tensor([2.0, 0.0, 1.0]) + 0 * x[:, :3],
        clean,
        labels,
        kind(1),
        steps=3,
    )
    assert (distances == torch.inf).all()
    assert torch.equal(images, clean)


def test_more_steps_come_nearer_where_the_boundary_is_curved(network):
    model, clean = network
    labels = model(clean).argmax(1)
    few, many = (
        fmn_nearest(model, clean, labels, L2(1), steps=steps).distances
        for steps in (2, 100)
    )
    assert many.isfinite().any() and (many <= few).all() and (many < few - 1e-3).any()


@pytest.mark.parametrize(("attack", "threat"), ATTACKS, ids=NAMES)
def test_a_gradient_that_is_not_finite_is_reported(attack, threat):
    def logits_fn(x):
        root = (x - x.detach()).sqrt() if x.requires_grad else 0 * x
        return torch.stack([1 + root.sum(1), x.sum(1) / 100], 1)

    clean, labels = torch.full((2, 3), 0.5), torch.zeros(2, dtype=torch.long)
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        attack(logits_fn, clean, labels, threat, steps=3)


def test_a_finished_image_costs_no_further_pass():
    model, _, clean, labels = linear(2)
    sizes = []

    def counted(x):
        sizes.append(len(x))
        return model(x)

    fmn(counted, clean, labels, Linf(9.0, WIDE), steps=500)
    assert len(sizes) < 40


@pytest.mark.parametrize(
    ("attack", "threat", "words"),
    [
        (ddn, Linf(0.1), "ddn minimizes the L2"),
        (sigma_zero, L1(1), "number of changed"),
        (pdpgd, L2(1), "pdpgd minimizes the L1"),
    ],
)
def test_another_norm_is_refused_in_a_sentence(attack, threat, words):
    with pytest.raises(ValueError, match=words):
        attack(nn.Flatten(), torch.rand(2, 3), torch.zeros(2).long(), threat)
