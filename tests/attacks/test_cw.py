"""CW against linear models, whose nearest adversarial example has a closed form."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm.attacks import NonFiniteGradientError
from advnorm.attacks.cw import CWSettings, cw, cw_distance
from advnorm.draws import Draws
from advnorm.threat import L2, Linf

WIDE = (-1.0, 2.0)
QUICK = CWSettings(steps=200)
BRIEF = CWSettings(steps=30, constants=5, constant=0.1)


def affine(seed, features, classes):
    """Return a random weight ``(features, classes)``, and inputs around 0.5."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(features, classes, generator=generator, dtype=torch.float64)
    clean = torch.rand(16, features, generator=generator, dtype=torch.float64)
    return weight, clean * 0.4 + 0.3


def distance_to(weight, clean, labels, targets, confidence=0.0):
    """Return the distance to where the target leads the label by the confidence."""
    normal = (weight[:, targets] - weight[:, labels]).T
    lead = (clean * normal).sum(1)
    return (confidence - lead) / normal.norm(dim=1)


@pytest.mark.parametrize(
    ("seed", "confidence"), [(0, 0.0), (1, 0.0), (2, 0.0), (3, 1.5), (4, 1.5)]
)
def test_reaches_the_closed_form_distance_of_a_linear_model(seed, confidence):
    weight, clean = affine(seed, 10, 2)
    labels = (clean @ weight).argmax(1)
    exact = distance_to(weight, clean, labels, 1 - labels, confidence)
    search = CWSettings(steps=300, lr=0.005, confidence=confidence)
    nearest = cw_distance(lambda x: x @ weight, clean, labels, bounds=WIDE, search=search)
    assert nearest.success.all()
    ratio = nearest.distance / exact
    assert ratio.min() >= 1 - 1e-9 and ratio.max() < 1.01
    torch.testing.assert_close((nearest.adversarial - clean).norm(dim=1), nearest.distance)
    logits = nearest.adversarial @ weight
    lead = logits.gather(1, 1 - labels[:, None]) - logits.gather(1, labels[:, None])
    assert (lead > confidence).all()


def test_reaches_the_closed_form_distance_of_a_target():
    """One constraint is enough where its projection is classified as the target."""
    weight, clean = affine(3, 10, 4)
    labels = (clean @ weight).argmax(1)
    targets = (labels + 1 + torch.arange(16) % 3) % 4
    normal = (weight[:, targets] - weight[:, labels]).T
    exact = distance_to(weight, clean, labels, targets)
    foot = clean + (1 + 1e-6) * exact[:, None] * normal / normal.norm(dim=1)[:, None]
    simple = (foot @ weight).argmax(1) == targets
    nearest = cw_distance(
        lambda x: x @ weight, clean, labels, bounds=WIDE, search=QUICK, targets=targets
    )
    ratio = nearest.distance / exact
    assert simple.sum() > 4 and ratio[simple].max() < 1.01 and ratio.min() >= 1 - 1e-9
    assert torch.equal((nearest.adversarial @ weight).argmax(1), targets)


MODELS, FEATURES, MOST = 20, 10, 10


def zoo():
    """Return 20 linear models of 3 to 10 classes as one, and how near each sample's edge is.

    The first number of an input says which model it meets; no gradient reaches it. Classes
    that a model lacks are far below.
    """
    bank = torch.zeros(MODELS, FEATURES, MOST).double()
    floor, inputs, classes, exact = torch.zeros(MODELS, MOST).double(), [], [], []
    for seed in range(MODELS):
        count = 3 + seed % 8
        weight, clean = affine(seed, FEATURES, count)
        labels = (clean @ weight).argmax(1)
        ways = [
            distance_to(weight, clean, labels, torch.full_like(labels, other))
            for other in range(count)
        ]
        ways = torch.stack(ways, 1).scatter(1, labels[:, None], torch.inf)
        bank[seed, :, :count], floor[seed, count:] = weight, -1e3
        which = torch.full((len(clean), 1), seed / MODELS).double()
        inputs.append(torch.cat([which, clean], 1))
        classes.append(labels)
        exact.append(ways.min(1).values)

    def logits_fn(x):
        which = (x[:, 0] * MODELS).detach().round().long()
        return torch.einsum("nf,nfc->nc", x[:, 1:], bank[which]) + floor[which]

    return logits_fn, torch.cat(inputs), torch.cat(classes), torch.cat(exact)


def test_reaches_the_nearest_of_several_classes_within_1_percent():
    """The leading wrong class need not be the nearest: a second search goes there."""
    logits_fn, clean, labels, exact = zoo()
    nearest = cw_distance(logits_fn, clean, labels, bounds=WIDE, search=QUICK)
    ratio = nearest.distance / exact
    assert nearest.success.all() and ratio.min() >= 1 - 1e-9 and ratio.max() < 1.01
    torch.testing.assert_close(nearest.adversarial[:, 0], clean[:, 0])
    shorter = clean + 0.999 * (nearest.adversarial - clean)
    assert torch.equal(logits_fn(shorter).argmax(1), labels), "it was not pulled back"
    assert (logits_fn(nearest.adversarial).argmax(1) != labels).all()


@pytest.mark.parametrize(("high", "nearest"), [(1.0, (0.27, 0.48)), (0.46, (0.36, 0.46))])
def test_the_bounds_cut_the_shortest_way(high, nearest):
    """From (0.2, 0.2) to x0 + 4 x1 > 2.2: straight, or along the edge of the bounds."""
    clean, label = torch.tensor([[0.2, 0.2]]).double(), torch.zeros(1, dtype=torch.long)

    def logits_fn(x):
        total = x[:, 0] + 4 * x[:, 1]
        return torch.stack([torch.full_like(total, 2.2), total], 1)

    search = CWSettings(steps=300, lr=0.05)  # tanh is slow near an edge
    distances = cw_distance(logits_fn, clean, label, bounds=(-1.0, high), search=search)
    expected = torch.tensor([nearest]).double()
    torch.testing.assert_close(distances.adversarial, expected, atol=0.015, rtol=0)
    assert distances.adversarial.max() <= high


def test_an_overshoot_does_not_end_the_search():
    """The first step is longer than the distance; the answer is within 1% all the same."""
    weight = torch.tensor([[0.0, 1.0]]).double().repeat(20, 1)
    clean = torch.full((1, 20), -0.001).double()  # 0.0045 away, a step is 0.067
    label = torch.zeros(1, dtype=torch.long)
    nearest = cw_distance(
        lambda x: x @ weight, clean, label, bounds=(-1.5, 1.5), search=CWSettings()
    )
    assert 0 <= nearest.distance / (0.001 * 20**0.5) - 1 < 0.01


def test_what_is_adversarial_already_is_its_own_answer_and_costs_one_pass():
    weight, clean = affine(0, 6, 3)
    guess, sizes = (clean @ weight).argmax(1), []

    def logits_fn(x):
        sizes.append(len(x))
        return x @ weight

    nearest = cw_distance(logits_fn, clean, (guess + 1) % 3, search=BRIEF)
    assert sizes == [16] and nearest.success.all() and (nearest.distance == 0).all()
    assert torch.equal(nearest.adversarial, clean)
    nearest = cw_distance(logits_fn, clean, guess, search=BRIEF, targets=guess)
    assert sizes == [16, 16] and (nearest.distance == 0).all()


def test_an_adversarial_image_without_the_confidence_is_searched_on():
    clean, label = torch.tensor([[0.5]]).double(), torch.zeros(1, dtype=torch.long)

    def logits_fn(x):
        return torch.cat([torch.zeros_like(x), 10 * (x - 0.4)], 1)  # leads by 1 here

    search = CWSettings(steps=200, confidence=4.0)
    nearest = cw_distance(logits_fn, clean, label, search=search)
    torch.testing.assert_close(nearest.distance[0].item(), 0.3, atol=2e-3, rtol=0)


def test_a_constant_model_cannot_be_fooled_and_keeps_the_clean_image():
    clean, labels = torch.rand(3, 4), torch.zeros(3, dtype=torch.long)

    def logits_fn(x):
        return torch.cat([x.sum(1, keepdim=True) * 0 + 1, x.sum(1, keepdim=True) * 0], 1)

    nearest = cw_distance(logits_fn, clean, labels, search=BRIEF)
    assert not nearest.success.any() and nearest.distance.isinf().all()
    assert torch.equal(nearest.adversarial, clean)


def test_a_search_that_has_converged_or_is_hopeless_makes_no_more_passes():
    weight, clean = affine(1, 6, 2)
    labels, calls = (clean @ weight).argmax(1), []

    def passes(weight, constants):
        calls.clear()

        def logits_fn(x):
            calls.append(len(x))
            return x @ weight

        search = CWSettings(steps=30, constants=constants, lr=0.1)
        cw_distance(logits_fn, clean, labels, bounds=WIDE, search=search)
        return sum(calls)

    assert passes(weight, 5) < passes(weight, 40) == passes(weight, 80)
    blank = torch.zeros_like(weight)
    assert passes(blank, 5) < passes(blank, 40) == passes(blank, 80)


def test_a_sample_without_progress_is_dropped():
    """A flat loss is checked after a tenth of the steps, and once more."""
    sizes = []

    def logits_fn(x):
        sizes.append(len(x))
        return torch.stack([x.sum(1) * 0 + 1, x.sum(1) * 0], 1)

    clean = torch.full((2, 3), 0.5)
    labels = torch.zeros(2, dtype=torch.long)
    cw_distance(logits_fn, clean, labels, search=CWSettings(steps=100, constants=1))
    assert sizes == [2] * 21


@given(st.integers(0, 10**6), st.floats(0.01, 1.0), st.sampled_from([2, 3, 5]))
@settings(deadline=None, max_examples=8)
def test_every_image_is_inside_the_ball_and_the_bounds(seed, eps, classes):
    generator = torch.Generator().manual_seed(seed)
    clean = torch.rand(6, 3, 2, 2, generator=generator).round(decimals=1)
    weight = torch.randn(12, classes, generator=generator)
    labels = torch.randint(classes, (6,), generator=generator)

    def logits_fn(x):
        return x.flatten(1) @ weight

    threat = L2(eps)
    x = cw(logits_fn, clean, labels, threat, search=BRIEF)
    nearest = cw_distance(logits_fn, clean, labels, search=BRIEF)
    assert threat.contains(x, clean).all()
    assert L2(10.0).contains(nearest.adversarial, clean).all()
    inside = nearest.distance <= eps
    assert torch.equal(x[inside], nearest.adversarial[inside])
    assert torch.equal(x[~inside], clean[~inside])
    assert (logits_fn(x).argmax(1) != labels)[inside].all()


def test_other_threats_and_settings_are_refused_with_a_sentence():
    clean, labels = torch.rand(2, 4), torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="use an L2 threat"):
        cw(nn.Linear(4, 2), clean, labels, Linf(0.1))
    for bounds in [(0.0, torch.inf), (-torch.inf, 0.0)]:
        with pytest.raises(ValueError, match="bounds must be finite"):
            cw(nn.Linear(4, 2), clean, labels, L2(0.1, bounds))
    for name in ("steps", "constants", "constant", "lr"):
        with pytest.raises(ValueError, match=f"{name} must be > 0"):
            CWSettings(**{name: 0})
    with pytest.raises(ValueError, match="confidence must be >= 0"):
        CWSettings(confidence=-1.0)


def test_the_settings_are_those_of_the_paper():
    assert CWSettings() == CWSettings(1000, 9, 1e-3, 0.01, 0.0)


def test_an_attack_leaves_everything_as_it_was():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model.eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[3].bias.requires_grad_(False)
    clean, labels = torch.rand(8, 6), torch.zeros(8, dtype=torch.long)
    before, buffers = clean.clone(), {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.get_rng_state()
    x = cw(model, clean, labels, L2(1.0), search=BRIEF)
    assert torch.equal(rng, torch.get_rng_state())
    assert torch.equal(clean, before) and not clean.requires_grad and not x.requires_grad
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.grad is None for p in model[3].parameters())
    assert not model[3].bias.requires_grad and model[0].weight.requires_grad
    for key, value in model.state_dict().items():
        assert torch.equal(value, buffers[key]), key
    with torch.no_grad():
        assert torch.equal(x, cw(model, clean, labels, L2(1.0), search=BRIEF))


def test_a_samples_result_does_not_depend_on_its_batch():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    clean, labels = torch.rand(9, 6).double(), torch.arange(9) % 3
    draws = Draws.of(4, torch.arange(9))
    together = cw(model, clean, labels, L2(2.0), search=BRIEF, draws=draws)
    order = torch.tensor([4, 2, 7])
    some = cw(model, clean[order], labels[order], L2(2.0), search=BRIEF, draws=draws[order])
    torch.testing.assert_close(some, together[order], rtol=0, atol=1e-9)


@pytest.mark.parametrize("bad", [1, 15, 30])
def test_a_gradient_that_is_not_finite_in_any_one_step_is_reported(bad):
    calls = []

    def logits_fn(x):
        calls.append(x)
        root = (x - x.detach()).sqrt() if len(calls) == bad + 1 else x
        return torch.stack([root.sum(1) + 3, -x.sum(1)], 1)

    clean, labels = torch.full((2, 3), 0.5), torch.zeros(2, dtype=torch.long)
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        cw_distance(logits_fn, clean, labels, search=BRIEF)


def test_soft_labels_and_an_empty_batch_are_fine():
    soft = torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.0, 0.9]])
    model, clean = nn.Linear(4, 3), torch.rand(2, 4)
    hard = cw(model, clean, soft.argmax(1), L2(1.0), search=BRIEF)
    assert torch.equal(cw(model, clean, soft, L2(1.0), search=BRIEF), hard)
    assert cw(model, clean[:0], soft.argmax(1)[:0], L2(1.0)).shape == (0, 4)


@pytest.mark.parametrize("scale", [1e-3, 255.0])
def test_the_unit_of_the_pixels_does_not_matter(scale):
    weight, clean = affine(0, 6, 3)
    labels = (clean @ weight).argmax(1)
    one = cw_distance(lambda x: x @ weight, clean, labels, bounds=(0, 1), search=QUICK)
    other = cw_distance(
        lambda x: (x / scale) @ weight,
        scale * clean,
        labels,
        bounds=(0, scale),
        search=QUICK,
    )
    assert one.success.all() and other.success.all()
    torch.testing.assert_close(other.distance / scale, one.distance, rtol=0.02, atol=0)
