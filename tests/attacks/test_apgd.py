"""Auto-PGD against closed forms, against Algorithm 1 sample by sample, and its manners."""

import sys
from itertools import combinations
from math import ceil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from advnorm.attacks import GOALS, NonFiniteGradientError, parallel_runs
from advnorm.attacks.apgd import apgd, apgd_ce, apgd_dlr, apgd_t
from advnorm.attacks.auto_pgd import auto_pgd, checkpoints
from advnorm.attacks.losses import dlr, targeted_dlr
from advnorm.draws import Draws
from advnorm.threat import L2, Linf

MODULE = sys.modules[apgd.__module__]
ALL = [apgd, apgd_ce, apgd_dlr, apgd_t]
WIDE = (-100.0, 100.0)


class Zoo:
    """Twenty random linear models in one batch, 10 classes each.

    The first five inputs are the number of the model in binary. No logit depends on them,
    so an attack has no reason to move them, and no step does.
    """

    def __init__(self, norm, *, eps, dimension=20, each=20):
        generator = torch.Generator().manual_seed(0)
        self.w = torch.randn(20, dimension, 10, generator=generator).double()
        self.b = 0.1 * torch.randn(20, 10, generator=generator).double()
        self.norm = norm
        points = torch.rand(20, each, dimension, generator=generator).double()
        if eps is None:  # a third of the pixels sit on a bound
            points = (3 * points).round() / 3
        else:  # make the median radius of each model a sliver under eps
            z = points @ self.w + self.b[:, None]
            radii = self._radii(z, z.argmax(2))
            scale = eps / (radii.median(1).values * (1 + 2e-6))
            points, self.w = points * scale[:, None, None], self.w / scale[:, None, None]
        code = (torch.arange(20)[:, None] >> torch.arange(5)) & 1
        code = code.double()[:, None].expand(-1, each, -1)
        self.clean = torch.cat([code, points], 2).flatten(0, 1)
        self.labels = self(self.clean).argmax(1)

    def __call__(self, x):
        which = ((x[:, :5] > 0.5) * 2 ** torch.arange(5)).sum(1)
        return torch.einsum("nd,ndc->nc", x[:, 5:], self.w[which]) + self.b[which]

    def _differences(self):
        """Return w_k - w_y, shape ``(20, y, d, k)``."""
        return self.w[:, None] - self.w.transpose(1, 2)[..., None]

    def _radii(self, z, y):
        dual = self._differences().norm(p=1 if self.norm is Linf else 2, dim=2)
        dual = dual.gather(1, y[..., None].expand(-1, -1, 10))
        distances = (z.amax(2, keepdim=True) - z) / dual
        return distances.scatter(2, y[..., None], torch.inf).amin(2)

    def radii(self):
        """Return each sample's distance to another class: margin / dual norm."""
        z = self(self.clean).view(20, -1, 10)
        return self._radii(z, z.argmax(2)).flatten()

    def breakable(self, threat):
        """Tell who can be broken where the bounds cut: pixels move to eps or the bound."""
        low, high = threat.bounds
        points = self.clean[:, 5:]
        up = (high - points).clamp(max=threat.eps)[..., None]
        down = (points - low).clamp(max=threat.eps)[..., None]
        which = torch.arange(20).repeat_interleave(len(points) // 20)
        v = self._differences()[which, self.labels]
        reach = torch.where(v > 0, up * v, -down * v).sum(1)
        z = self(self.clean)
        margins = z + reach - z.gather(1, self.labels[:, None])
        return margins.scatter(1, self.labels[:, None], -torch.inf).amax(1) > 0


def broken_together(zoo, threat):
    """Return who is broken by APGD-CE or APGD-T; every success must be admissible."""
    broken = torch.zeros(len(zoo.clean), dtype=torch.bool)
    for attack in (apgd_ce, apgd_t):
        rows = (~broken).nonzero().squeeze(1)
        x = attack(zoo, zoo.clean[rows], zoo.labels[rows], threat)
        assert threat.contains(x, zoo.clean[rows]).all()
        broken[rows] = zoo(x).argmax(1) != zoo.labels[rows]
    return broken


@pytest.mark.parametrize("norm", [Linf, L2])
def test_breaks_exactly_the_breakable_samples_of_twenty_linear_models(norm):
    """A sample of each model is breakable by a millionth of eps only."""
    zoo = Zoo(norm, eps=0.4)
    can = zoo.radii() < 0.4
    assert 150 < can.sum() < 250
    close = (zoo.radii() / 0.4 - 1).abs() < 3e-6
    assert close.sum() == 20 and can[close].all()
    assert torch.equal(broken_together(zoo, norm(0.4, WIDE)), can)


def test_breaks_exactly_the_breakable_samples_where_the_bounds_cut():
    zoo, threat = Zoo(Linf, eps=None), Linf(0.1)
    can = zoo.breakable(threat)
    wide = zoo.radii() < threat.eps
    assert not (can & ~wide).any() and (wide & ~can).sum() > 20  # the bounds do cut
    sure = zoo.breakable(threat.with_eps(0.1 * (1 - 1e-6)))
    assert torch.equal(can, sure) and can.sum() > 100
    assert torch.equal(broken_together(zoo, threat), can)


def paper_checkpoints(steps):
    p = [0.0, 0.22]
    while p[-1] < 1:
        p.append(p[-1] + max(p[-1] - p[-2] - 0.03, 0.06))
    return sorted({ceil(round(share * steps, 9)) for share in p})


def algorithm_1(f, gain, clean, label, threat, start, steps, rho):
    """Follow the paper for one sample, with the whole history at hand."""
    w = paper_checkpoints(steps)

    def look(x):
        x = x.clone().requires_grad_()
        value = gain(f(x))
        return value.item(), torch.autograd.grad(value.sum(), x)[0]

    eta, halved, xs, values, grads = 2 * threat.eps, False, [start], [], []
    tops = {0: -torch.inf}
    for k in range(steps + 1):
        value, grad = look(xs[k])
        values.append(value)
        grads.append(grad)
        if f(xs[k]).argmax() != label:
            return xs[k]
        best = max(range(k + 1), key=lambda i: values[i])
        current, slope = xs[k], grad
        if k in w[1:]:
            before = w[w.index(k) - 1]
            rises = sum(values[i + 1] > values[i] for i in range(before, k))
            stuck = not halved and values[best] == tops[before]
            halved = rises < rho * (k - before) or stuck
            tops[k] = values[best]
            if halved:
                eta, current, slope = eta / 2, xs[best], grads[best]
                xs[k], values[k], grads[k] = current, values[best], slope
        if k == steps:
            return xs[best]
        z = threat.project(current + eta * threat.direction(slope), clean)
        if k:
            z = current + 0.75 * (z - current) + 0.25 * (current - xs[k - 1])
        xs.append(threat.project(z, clean))


def bumpy(seed):
    """Return a small net with many local maxima, and samples that it classifies well."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(6, 16, generator=generator).double()
    b = torch.randn(16, 5, generator=generator).double()

    def f(x):
        return torch.sin(4 * x.flatten(1) @ a) @ b

    clean = torch.rand(30, 6, generator=generator).double()
    return f, clean, f(clean).argmax(1)


@pytest.mark.parametrize("threat", [Linf(0.03), L2(0.06)], ids=str)
@pytest.mark.parametrize(("steps", "rho"), [(7, 0.75), (33, 0.75), (60, 0.0)])
def test_follows_algorithm_1_sample_by_sample(threat, steps, rho):
    """With rho 0 only the second condition can halve a step."""
    f, clean, labels = bumpy(1)
    clean, labels = clean[:10], labels[:10]
    draws = Draws.of(3, torch.arange(10))
    start = threat.sample(clean, draws.stream("start"))
    x = apgd_dlr(f, clean, labels, threat, steps=steps, rho=rho, draws=draws)
    expected = [
        algorithm_1(
            f, dlr(labels[i : i + 1]), clean[i : i + 1], labels[i], threat,
            start[i : i + 1], steps, rho,
        )
        for i in range(10)
    ]  # fmt: skip
    torch.testing.assert_close(x, torch.cat(expected), rtol=0, atol=1e-7)
    broken = f(x).argmax(1) != labels
    assert 1 < broken.sum() < 9


def test_the_checkpoints_of_the_paper():
    assert list(checkpoints(100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert list(checkpoints(1000)) == [220, 410, 570, 700, 800, 870, 930, 990]
    assert list(checkpoints(3)) == [1, 2, 3] and not list(checkpoints(0))


@pytest.mark.parametrize("attack", ALL)
def test_a_robust_sample_gets_the_point_of_the_largest_gain(attack, monkeypatch):
    """Every point that the model was shown is compared with the one returned."""
    monkeypatch.setattr(parallel_runs, "ROWS", 1)  # a target at a time
    f, clean, labels = bumpy(2)
    seen = []

    def spy(x):
        seen.append(x.detach())
        return f(x)

    threat = Linf(1e-3)
    x = attack(spy, clean[:1], labels[:1], threat, steps=25)
    if attack is apgd_t:  # over all targets and runs; the first pass is the clean one
        ratios = torch.stack([_targeted_values(f, s, labels[:1]) for s in seen[1:]])
        runs = ratios.view(4, 26, 4).transpose(1, 2)  # run, target, iterate
        order = f(clean[:1]).argsort(1, descending=True)[0, 1:]
        rank = {int(c): r for r, c in enumerate(order)}
        wrong = [c for c in range(5) if c != labels[0]]
        best = max(runs[rank[c], i].max() for i, c in enumerate(wrong))
        assert _targeted_values(f, x, labels[:1]).max() >= best
        return
    gain = dlr(labels[:1]) if attack is apgd_dlr else _cross_entropy(labels[:1])
    assert len(seen) == 26 and gain(f(x)) == max(gain(f(s)) for s in seen)


def _cross_entropy(labels):
    return lambda logits: F.cross_entropy(logits, labels, reduction="none")


def _targeted_values(f, x, labels):
    z = f(x)[0]
    top = z.sort(descending=True).values
    wrong = torch.tensor([c for c in range(5) if c != labels[0]])
    return (z[wrong] - z[labels[0]]) / (top[0] - (top[2] + top[3]) / 2)


def test_broken_samples_leave_the_batch_and_no_pass_is_wasted(monkeypatch):
    f, clean, labels = bumpy(1)
    sizes, graded = [], []

    def spy(x):
        sizes.append(len(x))
        graded.append(x.requires_grad)
        return f(x)

    x = apgd_ce(spy, clean, labels, Linf(0.03), steps=20)
    robust = int((f(x).argmax(1) == labels).sum())
    assert sizes[0] == 30 and sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 21 and robust <= sizes[-1] < 30
    assert all(graded[:-1]) and not graded[-1]  # nobody follows the last gradient
    sizes.clear()
    apgd_t(spy, clean, labels, Linf(0.03), steps=20)
    assert len(sizes) == 1 + 2 * 21 and sizes[:2] == [30, 30]  # one target, then three
    assert sizes[1:22] == sorted(sizes[1:22], reverse=True) and sizes[21] < 30
    assert sizes[22:] == sorted(sizes[22:], reverse=True) and sizes[22] <= 3 * sizes[21]
    assert sizes[22] % 3 == 0 and sizes[-1] % 3 == 0 and sizes[-1] < sizes[22]
    sizes.clear()
    monkeypatch.setattr(parallel_runs, "ROWS", 1)  # a target at a time
    apgd_t(spy, clean, labels, Linf(0.03), steps=20)
    assert len(sizes) == 1 + 4 * 21 and sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[22] < 30


def test_each_target_starts_elsewhere():
    f, clean, labels = bumpy(1)
    seen = []
    apgd_t(lambda x: seen.append(x) or f(x), clean, labels, Linf(1e-6), steps=0)
    starts = [seen[1], *seen[2].view(3, 30, -1)]
    assert len(seen) == 3
    assert all((a != b).any(1).all() for a, b in combinations(starts, 2))


@pytest.mark.parametrize("rows", [1, 70, 512])
@pytest.mark.parametrize("threat", [Linf(0.03), L2(0.1), L2(1e-4)], ids=str)
def test_targets_that_climb_together_climb_as_they_do_alone(threat, rows, monkeypatch):
    """Broken or not, and the same point where nothing is broken."""
    f, clean, labels = bumpy(3)
    monkeypatch.setattr(parallel_runs, "ROWS", rows)
    x = apgd_t(f, clean, labels, threat, steps=20, draws=Draws.of(0, torch.arange(30)))
    best, broken = clean.clone(), torch.zeros(30, dtype=torch.bool)
    value = torch.full((30,), -torch.inf, dtype=clean.dtype)
    order = f(clean).argsort(1, descending=True)[:, 1:]
    for rank in range(4):  # each target by itself, over all images
        draws = Draws.of(0, torch.arange(30)).stream("target start", rank)
        gain = targeted_dlr(labels, order[:, rank])
        start = threat.sample(clean, draws)
        result = auto_pgd(f, clean, labels, threat, gain, start, steps=20, rho=0.75)
        better = result.gains > value
        best[better], value[better] = result.images[better], result.gains[better]
        broken |= result.broken
    assert torch.equal(f(x).argmax(1) != labels, broken)
    torch.testing.assert_close(x[~broken], best[~broken], rtol=0, atol=1e-12)
    assert broken.any() or threat.eps < 1e-3


@pytest.mark.parametrize("targets", [1, 3, 9])
def test_targets_are_the_likeliest_wrong_classes_in_turn(targets, monkeypatch):
    monkeypatch.setattr(parallel_runs, "ROWS", 1)
    f, clean, labels = bumpy(2)
    seen = []

    def record(y, t):
        assert torch.equal(y, labels)
        seen.append(t)
        return targeted_dlr(y, t)

    monkeypatch.setattr(MODULE, "targeted_dlr", record)
    apgd_t(f, clean, labels, Linf(1e-6), steps=1, targets=targets)
    expected = f(clean).argsort(1, descending=True)[:, 1 : 1 + targets]  # label comes first
    assert torch.equal(torch.stack(seen, 1), expected)


def test_no_target_is_refused():
    f, clean, labels = bumpy(2)
    with pytest.raises(ValueError, match="from 1"):
        apgd_t(f, clean, labels, Linf(0.1), targets=0)


@pytest.mark.parametrize("attack", ALL)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("norm", [Linf, L2])
def test_few_classes_are_attacked_with_the_margin(attack, classes, norm):
    generator = torch.Generator().manual_seed(classes)
    w = torch.randn(8, classes, generator=generator).double()
    clean = torch.rand(40, 8, generator=generator).double()
    labels = (clean @ w).argmax(1)
    margins = (clean @ w).amax(1, keepdim=True) - clean @ w
    dual = (w[:, :, None] - w[:, None]).norm(p=1 if norm is Linf else 2, dim=0)[labels]
    radii = (margins / dual).scatter(1, labels[:, None], torch.inf).amin(1)
    eps = float(radii.median()) * 1.001
    x = attack(lambda x: x @ w, clean, labels, norm(eps, WIDE), steps=50)
    broken = (x @ w).argmax(1) != labels
    assert not (broken & (radii > eps)).any()
    if classes == 2 or attack is apgd_t:
        assert torch.equal(broken, radii < eps)


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.7)], ids=str)
@pytest.mark.parametrize("attack", [apgd_ce, apgd_dlr, apgd_t])
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(0, 9),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    shape=st.sampled_from([(3, 4, 4), (48,)]),
)
@settings(deadline=None, max_examples=8)
def test_every_image_is_inside_the_ball_and_the_bounds(
    attack, threat, seed, steps, dtype, shape
):
    generator = torch.Generator().manual_seed(seed)
    clean = torch.rand(6, *shape, generator=generator, dtype=dtype).round(decimals=1)
    weight = 0.2 * torch.randn(48, 5, generator=generator, dtype=dtype)
    labels = torch.randint(5, (6,), generator=generator)
    x = attack(lambda x: x.flatten(1) @ weight, clean, labels, threat, steps=steps)
    assert threat.contains(x, clean).all() and x.dtype == dtype and not x.requires_grad


def net():
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4)
    )


@pytest.mark.parametrize("attack", ALL)
def test_an_attack_leaves_everything_as_it_was(attack):
    model = net().eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[4].bias.requires_grad_(False)
    clean = torch.rand(8, 6)
    labels, before = model(clean).argmax(1), clean.clone()
    buffers = {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.get_rng_state()
    attack(model, clean, labels, Linf(0.1), steps=5, draws=Draws.of(0, torch.arange(8)))
    assert torch.equal(rng, torch.get_rng_state())
    assert torch.equal(clean, before) and not clean.requires_grad
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.grad is None for p in model[4].parameters())
    assert not model[4].bias.requires_grad and model[0].weight.requires_grad
    for key, value in model.state_dict().items():
        assert torch.equal(value, buffers[key]), key


@pytest.mark.parametrize("attack", ALL)
def test_works_where_gradients_are_switched_off(attack):
    f, clean, labels = bumpy(3)
    settings = {"steps": 5, "draws": Draws.of(0, torch.arange(30))}
    with torch.no_grad():
        inside = attack(f, clean, labels, Linf(0.03), **settings)
    assert torch.equal(inside, attack(f, clean, labels, Linf(0.03), **settings))


@pytest.mark.parametrize("attack", ALL)
@pytest.mark.parametrize("threat", [Linf(0.03), L2(0.06)], ids=str)
def test_a_samples_result_does_not_depend_on_its_batch(attack, threat):
    f, clean, labels = bumpy(4)
    draws = Draws.of(4, torch.arange(30) + 100)
    together = attack(f, clean, labels, threat, steps=30, draws=draws)
    order = torch.tensor([14, 2, 27, 5, 9])
    some = attack(f, clean[order], labels[order], threat, steps=30, draws=draws[order])
    torch.testing.assert_close(some, together[order], rtol=0, atol=1e-7)


def test_restarts_start_elsewhere():
    f, clean, labels = bumpy(5)
    draws = Draws.of(0, torch.arange(30))
    for attack in ALL:
        first, second = (
            attack(f, clean, labels, Linf(0.01), steps=0, draws=draws.stream(i))
            for i in range(2)
        )
        assert (first != second).any(1).all()


@pytest.mark.parametrize("attack", ALL)
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_reported_not_counted_as_a_success(
    attack, label, value
):
    model = nn.Linear(4, 5)
    clean, labels = torch.rand(2, 4), torch.full((2,), label)
    with torch.no_grad():
        model.bias[1] = 1e4  # class 1 wins, unless a logit is not finite
        model.weight[0, 0] = value
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        attack(model, clean, labels, Linf(0.1), steps=2)


def test_a_class_that_is_switched_off_is_no_defect():
    f, clean, labels = bumpy(1)
    keep = labels != 0
    off = torch.tensor([True, False, False, False, False])
    x = apgd(
        lambda x: f(x).masked_fill(off, -torch.inf),
        clean[keep],
        labels[keep],
        Linf(0.03),
        steps=5,
    )
    assert x.isfinite().all()


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_gradient_that_is_not_finite_in_any_one_step_is_reported(bad):
    """The slope of a root at 0 is infinite; its sign is fine, so the attack could go on."""
    calls = []

    def logits_fn(x):
        calls.append(x)
        root = (x - x.detach()).sqrt() if len(calls) == bad + 1 else x
        return torch.stack([root.sum(1) + 9, -x.sum(1)], 1)

    clean, labels = torch.full((2, 3), 0.5), torch.zeros(2, dtype=torch.long)
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        apgd(logits_fn, clean, labels, Linf(0.1), steps=3)


def test_soft_labels_every_aim_and_an_empty_batch_are_fine():
    model = nn.Linear(4, 3)
    clean, soft = torch.rand(2, 4), torch.tensor([[0.5, 0.4, 0.1], [0.1, 0.0, 0.9]])
    for goal in GOALS.values():
        x = apgd(model, clean, soft, Linf(0.1), steps=3, goal=goal)
        assert x.shape == clean.shape
    for attack in ALL:
        assert attack(model, clean, soft, Linf(0.1), steps=3).shape == clean.shape
        assert attack(model, clean[:0], soft[:0], Linf(0.1), steps=3).shape == (0, 4)


def test_a_misclassified_sample_is_not_attacked_with_targets():
    f, clean, labels = bumpy(6)
    wrong = (labels + 1) % 5
    assert torch.equal(apgd_t(f, clean, wrong, Linf(0.1)), clean)


def test_logits_times_ten_thousand_are_broken_all_the_same():
    """The cross-entropy of a sure model is flat; the ratio is not."""
    f, clean, labels = bumpy(1)
    f32 = lambda x: f(x.double()).float() * 1e4  # noqa: E731
    threat = Linf(0.03)
    plain = apgd_t(f, clean, labels, threat, steps=30)
    scaled = apgd_t(f32, clean.float(), labels, threat, steps=30)
    count = (f(plain).argmax(1) != labels).sum()
    assert count > 5 and (f32(scaled).argmax(1) != labels).sum() == count
