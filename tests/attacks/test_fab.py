"""FAB against linear models, whose nearest adversarial input has a closed form."""

import pytest
import torch
from torch import nn

from advnorm.attacks import NonFiniteGradientError, parallel_runs
from advnorm.attacks.fab import fab_distance, fab_t
from advnorm.attacks.projections import project_l2, project_linf
from advnorm.threat import L2, Linf

WIDE = (-10.0, 10.0)
DUALS = {"linf": 1, "l2": 2}
PROJECTIONS = {"linf": project_linf, "l2": project_l2}
THREATS = pytest.mark.parametrize("make", [Linf, L2], ids=["linf", "l2"])


def linear(seed, classes=5, d=8, batch=30, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, d, generator=generator, dtype=torch.float64).to(dtype)
    clean = torch.rand(batch, d, generator=generator, dtype=torch.float64).to(dtype)
    return weight, clean, (clean @ weight.T).argmax(1)


def exact_distances(weight, clean, labels, name):
    """Return min over k of (f_y - f_k) / |w_y - w_k|, in the dual norm."""
    logits = clean @ weight.T
    lead = logits.gather(1, labels[:, None]) - logits
    norms = (weight[labels][:, None] - weight).norm(p=DUALS[name], dim=2)
    return (lead / norms).scatter(1, labels[:, None], torch.inf).amin(1)


@THREATS
@pytest.mark.parametrize("seed", range(3))
def test_reaches_the_nearest_class_of_a_linear_model_within_one_percent(make, seed):
    weight, clean, labels = linear(seed)
    threat = make(0.1, WIDE)
    distances = fab_distance(lambda x: x @ weight.T, clean, labels, threat, steps=20)
    ratio = distances / exact_distances(weight, clean, labels, threat.name)
    assert ratio.min() > 1 and ratio.max() < 1.01


@THREATS
def test_reaches_the_nearest_point_where_the_bounds_cut(make):
    """Against two classes the nearest point of the box is one exact projection away."""
    weight, clean, labels = linear(4, classes=2)
    threat, w = make(0.1, (0.0, 1.0)), weight[0] - weight[1]
    planes = w.expand_as(clean), torch.zeros(len(clean)).double()
    nearest = PROJECTIONS[threat.name](clean, *planes, threat.bounds)
    reached = (nearest @ w).abs() < 1e-9
    order = torch.inf if make is Linf else 2
    exact = (nearest - clean).norm(p=order, dim=1)
    distances = fab_distance(lambda x: x @ weight.T, clean, labels, threat)
    assert reached.any() and (distances[~reached] == torch.inf).all()
    ratio = (distances / exact)[reached]
    assert ratio.min() > 1 - 1e-9 and ratio.max() < 1.01


@THREATS
def test_breaks_exactly_what_can_be_broken_and_returns_the_rest_clean(make):
    weight, clean, labels = linear(5, batch=80)
    exact = exact_distances(weight, clean, labels, make(0.1).name)
    threat = make(float(exact.median()), WIDE)
    adversarial = fab_t(lambda x: x @ weight.T, clean, labels, threat, steps=30)
    broken = (adversarial @ weight.T).argmax(1) != labels
    assert threat.contains(adversarial, clean).all()
    assert broken[exact < 0.99 * threat.eps].all() and not broken[exact > threat.eps].any()
    assert torch.equal(adversarial[~broken], clean[~broken])


def scalar_fab(lead, slope, steps):
    """Run FAB on one pixel that starts at 0, with the published settings."""
    u, best = 0.0, float("inf")
    for _ in range(steps):
        root = u - lead(u) / slope(u)
        d, d0 = root - u, root
        alpha = min(abs(d) / (abs(d) + abs(d0)), 0.1)
        u = (1 - alpha) * (u + 1.05 * d) + alpha * 1.05 * d0
        if lead(u) > 0:
            best, u = min(best, abs(u)), 0.9 * u
    return best


@THREATS
@pytest.mark.parametrize("steps", range(1, 5))
@pytest.mark.parametrize(
    ("lead", "slope"),
    [
        (lambda u: u - 1, lambda u: 1.0),
        (lambda u: (u + 1) ** 2 - 4, lambda u: 2 * (u + 1)),
        (lambda u: (u + 0.1) ** 0.5 - 1, lambda u: 0.5 * (u + 0.1) ** -0.5),
    ],
    ids=["straight", "convex", "concave"],
)
def test_takes_the_published_steps(make, steps, lead, slope):
    def logits_fn(x):
        return torch.cat([torch.zeros_like(x), lead(x)], 1)

    clean, labels = torch.zeros(1, 1).double(), torch.zeros(1, dtype=torch.long)
    distances = fab_distance(logits_fn, clean, labels, make(0.1, WIDE), steps=steps)
    assert float(distances) == pytest.approx(scalar_fab(lead, slope, steps), rel=1e-9)


def test_the_pull_is_towards_the_projection_of_the_clean_image():
    """On a curved boundary of the plane the iterates leave the ray of the first step."""

    def lead(x):
        return x[0] + 2 * x[1] ** 2 + 0.3 * x[0] * x[1] - 1

    clean = torch.tensor([0.1, 0.3]).double()
    x, best = clean, torch.inf
    for _ in range(6):
        w = torch.stack([1 + 0.3 * x[1], 4 * x[1] + 0.3 * x[0]])
        d = -lead(x) * w / (w @ w)
        d0 = -(lead(x) + w @ (clean - x)) * w / (w @ w)
        alpha = min(d.norm() / (d.norm() + d0.norm()), 0.1)
        x = (1 - alpha) * (x + 1.05 * d) + alpha * (clean + 1.05 * d0)
        if lead(x) > 0:
            best, x = min(best, float((x - clean).norm())), clean + 0.9 * (x - clean)

    def logits_fn(x):
        return torch.stack([0 * x[:, 0], lead(x.T)], 1)

    distances = fab_distance(
        logits_fn, clean[None], torch.zeros(1, dtype=torch.long), L2(0.1, WIDE), steps=6
    )
    assert float(distances) == pytest.approx(best, rel=1e-9)


def test_the_first_target_is_the_runner_up_and_others_follow():
    """Class 1 runs up but is far away; class 2 is behind and near."""

    def logits_fn(x):
        return torch.stack([0 * x[:, 0], 0.1 * x[:, 0] - 0.1, x[:, 1] - 0.2], 1)

    clean, labels = torch.zeros(1, 2).double(), torch.zeros(1, dtype=torch.long)
    first, both = (
        fab_distance(logits_fn, clean, labels, Linf(0.5, WIDE), steps=10, targets=count)
        for count in (1, 2)
    )
    assert 1 < first < 1.01 and 0.2 < both < 0.202


def test_a_misclassified_image_has_distance_zero_and_is_left_alone():
    weight, clean, labels = linear(6)
    wrong = (labels + 1) % 5
    model = lambda x: x @ weight.T  # noqa: E731
    assert (fab_distance(model, clean, wrong, L2(0.1), steps=2) == 0).all()
    assert torch.equal(fab_t(model, clean, wrong, L2(0.1), steps=2), clean)


def test_nothing_is_found_where_the_class_never_changes():
    def constant(x):
        return torch.tensor([2.0, 0.0, 1.0]) + 0 * x[:, :3]

    clean, labels = torch.rand(3, 4), torch.zeros(3, dtype=torch.long)
    assert (fab_distance(constant, clean, labels, Linf(0.1), steps=3) == torch.inf).all()
    assert torch.equal(fab_t(constant, clean, labels, Linf(0.1), steps=3), clean)


@pytest.mark.parametrize("rows", [1, 70, 512])
@pytest.mark.parametrize("threat", [Linf(0.05, WIDE), L2(0.2, WIDE)], ids=str)
def test_targets_that_are_tried_together_find_what_they_find_alone(
    threat, rows, monkeypatch
):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5)).double()
    clean = torch.rand(30, 6).double()
    labels = net(clean).argmax(1)
    monkeypatch.setattr(parallel_runs, "ROWS", rows)
    together = fab_distance(net, clean, labels, threat, steps=15)
    x = fab_t(net, clean, labels, threat, steps=15)
    order = net(clean).argsort(1, descending=True)
    alone = []
    for rank in range(1, 5):  # a model of the label and one target, all else far below

        def two(x, rank=rank):
            far = torch.full((30, 5), -1e3, dtype=x.dtype)
            pair = order[:, [0, rank]]
            return far.scatter(1, pair, net(x).gather(1, pair))

        alone.append(fab_distance(two, clean, labels, threat, steps=15, targets=1))
    nearest = torch.stack(alone).amin(0)
    assert (together <= nearest + 1e-9).all() and together.isfinite().all()
    assert torch.equal(net(x).argmax(1) != labels, together <= threat.eps)
    monkeypatch.setattr(parallel_runs, "ROWS", 1)
    torch.testing.assert_close(
        together, fab_distance(net, clean, labels, threat, steps=15), rtol=0, atol=1e-12
    )


def test_a_broken_sample_costs_no_further_pass():
    weight, clean, labels = linear(7, batch=40)
    sizes = []

    def logits_fn(x):
        sizes.append(len(x))
        return x @ weight.T

    fab_t(logits_fn, clean, labels, Linf(0.9, WIDE), steps=50)
    assert sizes == [40, 40, 40]  # the clean logits, one gradient, one check
    sizes.clear()
    eps = float(exact_distances(weight, clean, labels, "linf").median())
    adversarial = fab_t(logits_fn, clean, labels, Linf(eps, WIDE), steps=20)
    left = int(((adversarial @ weight.T).argmax(1) == labels).sum())
    assert sizes[1] == 40 and sizes[-1] == 3 * left and 10 < left < 30  # 3 targets together


@THREATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 3, 12])
def test_images_of_any_type_and_number_of_classes_stay_admissible(make, dtype, classes):
    torch.manual_seed(classes)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(100, classes)
    ).to(dtype)
    clean = torch.rand(12, 2, 5, 5, dtype=dtype).round(decimals=1)
    labels, threat = model(clean).argmax(1), make(0.15)
    soft = nn.functional.one_hot(labels, classes).to(dtype)
    adversarial = fab_t(model, clean, labels, threat, steps=10)
    assert adversarial.dtype == dtype and adversarial.shape == clean.shape
    assert threat.contains(adversarial, clean).all() and not adversarial.requires_grad
    changed = (adversarial != clean).flatten(1).any(1)
    assert torch.equal(changed, model(adversarial).argmax(1) != labels) and changed.any()
    assert torch.equal(fab_t(model, clean, soft, threat, steps=10), adversarial)


def test_no_samples_are_fine():
    none = torch.zeros(0, 6), torch.zeros(0, dtype=torch.long)
    assert fab_t(nn.Linear(6, 3), *none, Linf(0.1)).shape == (0, 6)


@THREATS
def test_a_samples_result_does_not_depend_on_its_batch(make):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    clean = torch.rand(9, 6).double()
    labels, order = model(clean).argmax(1), torch.tensor([4, 2, 7])
    for attack in (fab_t, fab_distance):
        together = attack(model, clean, labels, make(0.2), steps=8)
        some = attack(model, clean[order], labels[order], make(0.2), steps=8)
        torch.testing.assert_close(some, together[order], rtol=0, atol=1e-11)


def test_an_attack_leaves_everything_as_it_was():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model.eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[3].bias.requires_grad_(False)
    clean = torch.rand(8, 6)
    labels, before = model(clean).argmax(1), clean.clone()
    buffers = {key: value.clone() for key, value in model.state_dict().items()}
    rng = torch.get_rng_state()
    with torch.no_grad():
        inside = fab_t(model, clean, labels, Linf(0.1), steps=4)
    assert torch.equal(inside, fab_t(model, clean, labels, Linf(0.1), steps=4))
    assert torch.equal(rng, torch.get_rng_state())
    assert torch.equal(clean, before) and not clean.requires_grad
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.grad is None for p in model[3].parameters())
    assert not model[3].bias.requires_grad and model[0].weight.requires_grad
    for key, value in model.state_dict().items():
        assert torch.equal(value, buffers[key]), key


@pytest.mark.parametrize("bad", [1, 2])
def test_a_gradient_that_is_not_finite_in_any_step_is_reported(bad):
    """The slope of a root at 0 is infinite, while the logits are fine."""
    calls = []

    def logits_fn(x):
        calls.append(x)
        graph = [call for call in calls if call.requires_grad]
        root = (x - x.detach()).sqrt() if x.requires_grad and len(graph) == bad else 0 * x
        return torch.stack([1 + root.sum(1), x.sum(1) / 100], 1)

    clean, labels = torch.full((2, 3), 0.5), torch.zeros(2, dtype=torch.long)
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        fab_t(logits_fn, clean, labels, Linf(0.1), steps=3)
    assert all(x.isfinite().all() for x in calls)


@THREATS
@pytest.mark.parametrize("bounds", [(-torch.inf, torch.inf), (0.0, torch.inf)])
def test_without_bounds_a_linear_model_is_met_at_its_distance(make, bounds):
    weight, clean, labels = linear(0)
    exact = exact_distances(weight, clean, labels, make(1.0).name)
    project = PROJECTIONS[make(1.0).name]
    normal, level = torch.ones(3, 8, dtype=torch.float64), torch.tensor([9.0, 1.0, 4.0])
    moved = project(clean[:3], normal, level.double(), bounds)
    torch.testing.assert_close((moved * normal).sum(1), level.double())
    if bounds[0] < 0:
        threat = make(float(exact.max()) * 1.01, bounds)
        adversarial = fab_t(lambda x: x @ weight.T, clean, labels, threat, steps=50)
        assert ((adversarial @ weight.T).argmax(1) != labels).all()
