"""PGD against linear models, whose worst case has a closed form, and its good manners."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm import norms
from advnorm.attacks import GOALS, NonFiniteGradientError, bim, fgsm, pgd
from advnorm.draws import Draws
from advnorm.threat import L2, Linf

DUALS = {Linf: 1, L2: 2}
WIDE = (-10.0, 10.0)


def two_class(w):
    """Return a linear model whose margin for class 1 is w.x."""
    return lambda x: torch.stack([torch.zeros(len(x), dtype=x.dtype), x @ w], dim=1)


@pytest.mark.parametrize("threat", [Linf(0.05, WIDE), L2(0.2, WIDE)], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_reaches_the_worst_case_of_a_linear_model(threat, seed):
    w = torch.randn(10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    clean, labels = torch.full((4, 10), 0.5).double(), torch.zeros(4, dtype=torch.long)
    adversarial = pgd(two_class(w), clean, labels, threat, steps=60, step_size=threat.eps)
    worst = threat.eps * w.norm(p=DUALS[type(threat)])
    gain = adversarial @ w - clean @ w
    torch.testing.assert_close(gain, worst.expand(4), rtol=1e-6, atol=1e-9)


def test_reaches_the_linf_worst_case_where_the_bounds_cut_the_ball():
    """Each pixel moves by eps or to the edge of the range, whichever is nearer."""
    w = torch.tensor([1.0, -2.0, 3.0, -4.0], dtype=torch.float64)
    clean = torch.tensor([[0.95, 0.02, 0.5, 0.5]], dtype=torch.float64)
    label = torch.zeros(1, dtype=torch.long)
    adversarial = pgd(two_class(w), clean, label, Linf(0.1), steps=20, step_size=0.03)
    expected = torch.tensor([[1.0, 0.0, 0.6, 0.4]], dtype=torch.float64)
    torch.testing.assert_close(adversarial, expected)


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.7)], ids=str)
@given(st.integers(0, 10**6), st.integers(1, 8), st.floats(0.001, 3.0))
@settings(deadline=None, max_examples=25)
def test_every_adversarial_image_is_inside_the_ball_and_the_bounds(
    threat, seed, steps, step_size
):
    generator = torch.Generator().manual_seed(seed)
    clean = torch.rand(6, 3, 4, 4, generator=generator).round(decimals=1)
    weight = torch.randn(48, 5, generator=generator)
    labels = torch.randint(5, (6,), generator=generator)
    adversarial = pgd(
        lambda x: x.flatten(1) @ weight,
        clean,
        labels,
        threat,
        steps=steps,
        step_size=step_size,
    )
    assert threat.contains(adversarial, clean).all()


def test_targeted_attacks_raise_the_target_and_never_choose_the_label():
    model = nn.Linear(8, 4)
    clean, labels = torch.rand(200, 8), torch.arange(200) % 4
    for name in ("random", "least_likely"):
        targets = []

        def record(logits_fn, clean, labels, draws, name=name, targets=targets):
            gain = GOALS[name](logits_fn, clean, labels, draws)
            one_hot = torch.eye(4).log()  # the class whose loss is 0 is the target
            targets.append(
                torch.stack([gain(one_hot[c].expand(200, 4)) for c in range(4)], 1).argmax(
                    1
                )
            )
            return gain

        adversarial = pgd(
            model, clean, labels, Linf(0.2), steps=10, step_size=0.05, goal=record
        )
        target = targets[0]
        assert (target != labels).all()
        before = model(clean).log_softmax(1).gather(1, target[:, None])
        after = model(adversarial).log_softmax(1).gather(1, target[:, None])
        assert (after > before).all()
    counts = target.new_zeros(4).scatter_add(0, target, torch.ones_like(target))
    assert counts.sum() == 200


def test_random_targets_cover_all_wrong_classes_evenly():
    labels = torch.zeros(3000, dtype=torch.long)
    draws = Draws.of(0, torch.arange(3000))
    gain = GOALS["random"](
        lambda x: torch.zeros(len(x), 4), torch.zeros(3000, 1), labels, draws
    )
    scores = torch.stack(
        [gain(torch.eye(4)[c].mul(9.0).expand(3000, 4)) for c in range(4)], dim=1
    )
    shares = scores.argmax(1).bincount(minlength=4) / 3000
    assert shares[0] == 0 and (shares[1:] - 1 / 3).abs().max() < 0.04


@pytest.mark.parametrize("name", GOALS)
def test_every_aim_works_with_the_statistics_of_the_batch(name):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    clean, labels = torch.rand(4, 6), torch.arange(4) % 3
    with norms.mode(model, "batch"):
        x = pgd(model, clean, labels, Linf(0.1), steps=2, step_size=0.1, goal=GOALS[name])
    assert Linf(0.1).contains(x, clean).all() and model[1].num_batches_tracked == 0


def test_who_starts_clean_says_nothing_about_where_the_others_start():
    """If both came of one stream, the first pixel of the others would lean upwards."""
    clean, labels = torch.full((4000, 2), 0.5), torch.zeros(4000, dtype=torch.long)
    x = pgd(
        nn.Linear(2, 2), clean, labels, Linf(0.1), steps=0, step_size=1.0, clean_start=0.5
    )
    moved = (x != clean).any(1)
    lean = ((x - clean)[moved] / 0.1).mean(0)
    assert 1800 < moved.sum() < 2200 and lean.abs().max() < 0.07  # 5 standard errors


def test_the_clean_start_has_the_given_probability():
    clean, labels = torch.full((4000, 2), 0.5), torch.zeros(4000, dtype=torch.long)
    adversarial = pgd(
        nn.Linear(2, 2), clean, labels, Linf(0.1), steps=0, step_size=1.0, clean_start=0.2
    )
    stayed = (adversarial == clean).all(1).float().mean()
    assert abs(stayed - 0.2) < 0.03


def test_fgsm_is_the_signed_gradient_and_bim_starts_clean():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    clean, labels = torch.rand(5, 6).double() * 0.5 + 0.25, torch.tensor([0, 1, 2, 0, 1])
    x = clean.clone().requires_grad_()
    nn.functional.cross_entropy(model(x), labels).backward()
    expected = clean + 0.1 * x.grad.sign()
    adversarial = fgsm(model, clean, labels, Linf(0.1))
    torch.testing.assert_close(adversarial, expected)
    one = bim(model, clean, labels, Linf(0.1), steps=1, step_size=0.03)
    torch.testing.assert_close(one, clean + 0.03 * x.grad.sign())


def net():
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )


@pytest.mark.parametrize("attack", [pgd, bim])
def test_an_attack_leaves_everything_as_it_was(attack):
    model = net().train()
    model[1].eval()  # frozen by the user
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[4].bias.requires_grad_(False)
    clean, labels = torch.rand(8, 6), torch.zeros(8, dtype=torch.long)
    clean_before = clean.clone()
    buffers = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.random.fork_rng():  # dropout draws from the global state; the attack may not
        rng = torch.get_rng_state()
        with norms.mode(model, "running"):
            settings = {
                "steps": 3,
                "step_size": 0.05,
                "draws": Draws.of(0, torch.arange(8)),
            }
            attack(model.eval(), clean, labels, Linf(0.1), **settings)
        assert torch.equal(rng, torch.get_rng_state())
    assert torch.equal(clean, clean_before) and not clean.requires_grad
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.grad is None for p in model[4].parameters())
    assert not model[4].bias.requires_grad and model[0].weight.requires_grad
    for key, value in model.state_dict().items():
        assert torch.equal(value, buffers[key]), key


def test_an_attack_works_where_gradients_are_switched_off():
    clean, labels = torch.rand(3, 6), torch.zeros(3, dtype=torch.long)
    model = nn.Linear(6, 3)
    settings = {"steps": 3, "step_size": 0.05, "draws": Draws.of(0, torch.arange(3))}
    with torch.no_grad():
        inside = pgd(model, clean, labels, Linf(0.1), **settings)
    assert torch.equal(inside, pgd(model, clean, labels, Linf(0.1), **settings))


def test_a_samples_result_does_not_depend_on_its_batch():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    clean, labels = torch.rand(9, 6).double(), torch.arange(9) % 3
    draws = Draws.of(4, torch.arange(9) + 100)
    settings = {"steps": 5, "step_size": 0.05}
    together = pgd(model, clean, labels, Linf(0.1), draws=draws, **settings)
    order = torch.tensor([4, 2, 7])
    some = pgd(
        model, clean[order], labels[order], Linf(0.1), draws=draws[order], **settings
    )
    torch.testing.assert_close(some, together[order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_not_finite_is_reported(value):
    model = nn.Linear(4, 3)
    clean, labels = torch.rand(2, 4), torch.zeros(2, dtype=torch.long)
    with torch.no_grad():
        model.weight[0, 0] = value
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        pgd(model, clean, labels, Linf(0.1), steps=2, step_size=0.1)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_gradient_that_is_not_finite_in_any_one_step_is_reported(bad):
    """The slope of a root at 0 is infinite; its sign is fine, so the attack could go on."""
    calls = []

    def logits_fn(x):
        calls.append(x)
        root = (x - x.detach()).sqrt() if len(calls) == bad + 1 else x
        return torch.stack([root.sum(1), -x.sum(1)], 1)

    clean, labels = torch.full((2, 3), 0.5), torch.zeros(2, dtype=torch.long)
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        pgd(logits_fn, clean, labels, Linf(0.1), steps=3, step_size=0.1)
    assert all(x.isfinite().all() for x in calls)


def test_soft_labels_are_fine():
    model = nn.Linear(4, 3)
    clean, soft = torch.rand(2, 4), torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.0, 0.9]])
    for goal in GOALS.values():
        assert (
            pgd(model, clean, soft, Linf(0.1), steps=2, step_size=0.1, goal=goal).shape
            == clean.shape
        )


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.5)], ids=str)
def test_no_samples_are_no_mistake(threat):
    clean, labels = torch.rand(0, 3, 4, 4), torch.zeros(0).long()
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    adversarial = pgd(model, clean, labels, threat, steps=2, step_size=0.1)
    assert adversarial.shape == clean.shape and threat.contains(
        adversarial, clean
    ).shape == (0,)
