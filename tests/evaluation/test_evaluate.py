"""Evaluation: verdicts against closed forms, independent of batching, refusals that help."""

import pytest
import torch
from torch import nn

import advnorm
from advnorm import norms
from advnorm.attacks import ATTACKS, AttackEntry
from advnorm.data import Batch
from advnorm.evaluation import evaluate, parse_conditions, run_condition
from advnorm.threat import L2, THREATS, Linf

DUALS = {"linf": 1, "l2": 2}


def linear_problem(seed=0, n=200, d=12, dtype=torch.float64):
    """Return a two-class linear model away from the bounds, and its signed margins."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(d, 2).to(dtype)
    with torch.no_grad():
        model.weight.copy_(torch.randn(2, d, generator=generator))
        model.bias.copy_(-model.weight.sum(1) / 2)
    images = (torch.rand(n, d, generator=generator, dtype=dtype) - 0.5) * 0.2 + 0.5
    labels = torch.randint(2, (n,), generator=generator)
    w = model.weight[1] - model.weight[0]
    signed = (images - 0.5) @ w * (labels * 2 - 1)
    return model, images, labels, w.detach(), signed.detach()


@pytest.mark.parametrize(
    "norm, eps", [("linf", 0.01), ("linf", 0.03), ("l2", 0.05), ("l2", 0.1)]
)
def test_verdicts_equal_the_closed_form_of_a_linear_model(norm, eps):
    """A sample can be broken exactly if its margin is below eps times the dual norm."""
    model, images, labels, w, signed = linear_problem()
    evaluation = evaluate(model, images, labels, THREATS[norm](eps), conditions=["pgd-50"])
    robust = torch.tensor(next(iter(evaluation.verdicts.values())).robust)
    margin_change = eps * w.norm(p=DUALS[norm])
    clear = (
        signed - margin_change
    ).abs() > 0.03 * margin_change  # a path of 2.5 eps comes that near
    assert clear.float().mean() > 0.9
    assert torch.equal(robust[clear], (signed > margin_change)[clear])
    assert 0 < robust.float().mean() < (signed > 0).float().mean()


def small_net(dtype):
    """Return a network that uses all of its classes."""
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
    )
    with torch.no_grad():
        model(torch.rand(500, 3, 2, 2))  # moves the running statistics
        model[2].momentum = 1.0
        model(torch.rand(500, 3, 2, 2))
        model[4].weight.mul_(5.0)
        model[4].bias.copy_(-model.eval()(torch.rand(500, 3, 2, 2)).mean(0))
    return model.to(dtype)


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_verdicts_do_not_depend_on_batch_size(batch_size):
    model = small_net(torch.float64)
    images, labels = torch.rand(64, 3, 2, 2, dtype=torch.float64), torch.arange(64) % 4
    kinds = ["clean", "noise-0.3", "fgsm", "bim-5", "pgd-5x3"]
    settings = {"threat": [Linf(0.02), Linf(0.1)], "conditions": kinds}
    whole = evaluate(model, images, labels, batch_size=50, **settings)
    parts = evaluate(model, images, labels, batch_size=batch_size, **settings)
    assert parts.verdicts == whole.verdicts
    assert whole.verdicts["pgd-5x3_linf_0.02"].accuracy().correct > 0


def test_in_single_precision_at_most_two_verdicts_in_a_thousand_differ():
    model = small_net(torch.float32)
    images = torch.rand(2000, 3, 2, 2)
    labels = model.eval()(images).argmax(1)
    settings = {"threat": Linf(0.02), "conditions": ["pgd-5"]}
    one = evaluate(model, images, labels, batch_size=2000, **settings)
    other = evaluate(model, images, labels, batch_size=33, **settings)
    pairs = zip(
        one.verdicts["pgd-5_linf_0.02"].robust,
        other.verdicts["pgd-5_linf_0.02"].robust,
        strict=True,
    )
    assert sum(a != b for a, b in pairs) <= 4
    assert 0.05 < one.results[0].accuracy.fraction < 0.95


def test_the_order_of_the_samples_does_not_matter():
    """The engine is keyed by the sample's own index, wherever it stands."""
    model = small_net(torch.float64)
    images, labels = torch.rand(40, 3, 2, 2, dtype=torch.float64), torch.arange(40) % 4
    (condition,) = parse_conditions(["pgd-5"], [Linf(0.05)], (0.0, 1.0))
    order = torch.randperm(40)
    samples = torch.arange(40) + 1000
    straight = run_condition(model, [Batch(images, labels, samples)], condition, total=40)
    mixed = run_condition(
        model, [Batch(images[order], labels[order], samples[order])], condition, total=40
    )
    by_sample = dict(zip(mixed.samples, mixed.robust, strict=True))
    assert [by_sample[s] for s in straight.samples] == list(straight.robust)


def test_in_single_precision_the_order_changes_at_most_two_verdicts_in_a_thousand():
    model = small_net(torch.float32)
    images, samples = torch.rand(2000, 3, 2, 2), torch.arange(2000)
    labels = model.eval()(images).argmax(1)
    (condition,) = parse_conditions(["pgd-5"], [Linf(0.02)], (0.0, 1.0))
    robust = []
    for order in (samples, torch.randperm(2000)):
        batches = [Batch(images[i], labels[i], samples[i]) for i in order.split(300)]
        verdicts = run_condition(model, batches, condition, total=2000)
        robust.append(dict(zip(verdicts.samples, verdicts.robust, strict=True)))
    assert sum(robust[0][s] != robust[1][s] for s in range(2000)) <= 4
    assert 100 < sum(robust[0].values()) < 1900


def test_no_parameter_requires_a_gradient_during_the_search():
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            seen.append(self.weight.requires_grad or self.bias.requires_grad)
            return super().forward(x)

    (condition,) = parse_conditions(["pgd-3"], [Linf(0.1)], (0.0, 1.0))
    model, images = Spy(6, 2), torch.rand(9, 6)
    batch = Batch(images, model(images).argmax(1), torch.arange(9))
    seen.clear()
    run_condition(model, [batch], condition, total=9)
    assert len(seen) > 4 and not any(seen) and model.weight.requires_grad


def test_the_seed_decides_the_random_starts():
    starts = []

    class Spy(nn.Linear):
        def forward(self, x):
            if x.requires_grad:
                starts.append(x.detach())
            return super().forward(x)

    model, images = Spy(6, 2), torch.rand(9, 6)
    labels = model(images).argmax(1)
    for seed in (1, 2, 1):
        evaluate(model, images, labels, Linf(0.1), conditions=["pgd-1"], seed=seed)
    one, two, again = starts[3::4]  # before each attack three passes look for symptoms
    assert torch.equal(one, again) and (one != two).float().mean() > 0.9


def test_examples_are_of_the_first_samples_or_of_none():
    model, images = nn.Linear(6, 2), torch.rand(9, 6)
    samples, labels = 3 * torch.arange(9), model(images).argmax(1)
    (condition,) = parse_conditions(["pgd-3"], [Linf(0.1)], (0.0, 1.0))

    def run(*parts, done=None):
        """Return the verdicts, and the examples that were saved."""
        batches, saved = [Batch(images[p], labels[p], samples[p]) for p in parts], []

        def save(verdicts, examples):
            saved.append(examples)

        verdicts = run_condition(model, batches, condition, total=9, done=done, save=save)
        return verdicts, [examples for examples in saved if examples is not None]

    first, rest, empty = slice(0, 4), slice(4, 9), slice(0, 0)
    whole, (examples,) = run(first, rest)
    assert torch.equal(examples.clean, images[first])
    assert examples.samples.tolist() == [0, 3, 6, 9]
    with_gaps, (examples,) = run(empty, first, empty, rest, empty)
    assert with_gaps == whole and torch.equal(examples.clean, images[first])
    resumed, examples = run(rest, done=run(first)[0])
    assert resumed == whole and not examples
    assert not run(empty)[1] and not run()[1]


def test_the_model_is_left_as_it_was():
    model = small_net(torch.float32).train()
    model[2].eval()
    model[4].bias.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    images, rng = torch.rand(9, 3, 2, 2), torch.get_rng_state()
    evaluate(model, images, torch.arange(9) % 4, Linf(0.1))
    assert model.training and model[4].training and not model[2].training
    assert not model[4].bias.requires_grad and model[1].weight.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(rng, torch.get_rng_state())


def test_running_statistics_are_used_even_on_a_model_in_train_mode():
    model = small_net(torch.float64)
    images, labels = torch.rand(40, 3, 2, 2, dtype=torch.float64), torch.arange(40) % 4
    model.eval()
    expected = evaluate(model, images, labels, Linf(0.05)).verdicts
    assert evaluate(model.train(), images, labels, Linf(0.05)).verdicts == expected
    with norms.mode(model, "batch"):
        assert evaluate(model, images, labels, Linf(0.05)).verdicts == expected


def test_a_success_outside_of_the_ball_does_not_count(monkeypatch):
    def cheat(logits_fn, clean, labels, threat, *, draws):
        return (clean + 3 * threat.eps).clamp(*threat.bounds)

    monkeypatch.setitem(ATTACKS._entries, "cheat", AttackEntry("cheat", cheat, "Cheat"))
    model, images, labels, _, _ = linear_problem()
    evaluation = evaluate(model, images, labels, Linf(0.1), conditions=["clean", "cheat"])
    assert evaluation.results[0].accuracy == evaluation.results[1].accuracy


def test_a_lying_attack_is_judged_by_a_fresh_forward_pass(monkeypatch):
    def idle(logits_fn, clean, labels, threat, *, draws):
        return clean.clone()

    monkeypatch.setitem(ATTACKS._entries, "idle", AttackEntry("idle", idle, "Idle"))
    model, images, labels, _, signed = linear_problem()
    evaluation = evaluate(model, images, labels, Linf(0.1), conditions=["idle"])
    assert evaluation.results[0].accuracy.correct == (signed > 0).sum()


def test_wrong_and_broken_samples_are_not_attacked_again(monkeypatch):
    sizes = []

    def half(logits_fn, clean, labels, threat, *, steps, step_size, draws):
        """Break the first half of what it is given."""
        sizes.append(len(clean))
        x = clean.clone()
        w = model.weight[1] - model.weight[0]
        away = -(labels * 2 - 1).to(w.dtype)[:, None] * w.sign() * threat.eps
        first = (len(clean) + 1) // 2
        x[:first] += away[:first]
        return x

    monkeypatch.setitem(ATTACKS._entries, "half", AttackEntry("half", half, "Half"))
    model, images, labels, _, signed = linear_problem(n=64)
    evaluation = evaluate(
        model, images, labels, Linf(0.4), conditions=["half-3x4"], batch_size=64
    )
    right = int((signed > 0).sum())
    expected = []
    left = right
    for _ in range(4):
        expected.append(left)
        left -= (left + 1) // 2
    assert sizes == expected and evaluation.results[0].accuracy.correct == left


def test_more_restarts_and_larger_radii_never_help_the_defender():
    model = small_net(torch.float64)
    images = torch.rand(60, 3, 2, 2, dtype=torch.float64)
    labels = model.eval()(images).argmax(1)
    evaluation = evaluate(
        model, images, labels, [Linf(0.01), Linf(0.05)], conditions=["pgd-5", "pgd-5x4"]
    )
    counts = [r.accuracy.correct for r in evaluation.results]
    assert counts[0] > counts[1] and counts[2] <= counts[0] and counts[3] <= counts[1]


def test_noise_counts_every_sample_and_stays_in_the_bounds():
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append(x)
            return torch.stack([1 - x.mean(1), x.mean(1)], 1)

    images = torch.full((500, 4), 0.49)
    evaluation = evaluate(
        Spy(), images, torch.ones(500).long(), Linf(0.1), conditions=["clean", "noise-0.5"]
    )
    assert evaluation.results[0].accuracy.correct == 0
    assert 150 < evaluation.results[1].accuracy.correct < 350, (
        "noise may also repair a sample"
    )
    noisy = seen[-2]
    assert noisy.min() >= 0 and noisy.max() <= 1 and noisy.std() > 0.3
    evaluate(
        Spy(), images, torch.ones(500).long(), Linf(0.1), conditions=["noise-0.5+unclipped"]
    )
    assert torch.equal(seen[-2].clamp(0, 1), noisy) and seen[-2].std() > 0.45


def test_noise_of_tiles_is_that_of_the_small_image_enlarged():
    seen = {}

    class Spy(torch.nn.Module):
        def forward(self, x):
            seen[x.shape[-1]] = x
            return torch.zeros(len(x), 2) + x.mean()

    small = torch.full((5, 1, 4, 4), 0.5)
    for side, name in ((1, "noise-0.3+unclipped"), (3, "noise-0.3+unclipped+tile=3")):
        images = small.repeat_interleave(side, 2).repeat_interleave(side, 3)
        evaluate(Spy(), images, torch.zeros(5).long(), Linf(0.1), conditions=[name])
    enlarged = seen[4].repeat_interleave(3, 2).repeat_interleave(3, 3)
    assert torch.equal(seen[12], enlarged) and seen[4].std() > 0.2
    with pytest.raises(ValueError, match="images of 1x4x4 have no tiles of 3x3"):
        evaluate(
            Spy(), small, torch.zeros(5).long(), Linf(0.1), conditions=["noise+tile=3"]
        )


@pytest.mark.parametrize(
    "change, words",
    [
        ({"images": torch.rand(4, 6) * 255}, "divide bytes by 255"),
        ({"images": torch.randn(4, 6)}, "look standardized"),
        ({"images": torch.full((4, 6), torch.nan)}, "NaN"),
        ({"images": torch.zeros(4, 6, dtype=torch.uint8)}, "divide by 255"),
        ({"images": torch.rand(0, 6)}, "no images"),
        ({"labels": torch.tensor([0, 1, 2, 3])}, "0 to 2"),
        ({"labels": torch.tensor([0, 1, 2, -1])}, "number the labels from 0"),
        ({"labels": torch.tensor([0, 1])}, "one an image"),
        ({"labels": torch.rand(4)}, "class indices"),
        ({"train_mode": "refuse"}, r"layer 'Linear'\): call model.eval\(\)"),
        ({"train_mode": "batch"}, "'set' or 'refuse', not 'batch'"),
        ({"conditions": ["pdg-10"]}, "did you mean 'pgd'"),
        ({"conditions": ["pgd-ten"]}, "write pgd"),
        ({"conditions": []}, "conditions is empty"),
        ({"conditions": ["fgsm", "fgsm"]}, "named twice"),
        ({"threat": []}, r"no threats: give at least one, such as Linf\(8/255\)"),
        ({"threat": 0.03}, r"threat is Linf\(8/255\) or L2\(0.5\).*, not 0.03"),
        ({"threat": [0.03]}, r"threat is Linf\(8/255\) or L2\(0.5\).*, not 0.03"),
        ({"threat": "linf"}, r"threat is Linf\(8/255\) or L2\(0.5\)"),
        ({"threat": Linf}, r"threat is Linf\(8/255\) or L2\(0.5\)"),
        ({"threat": None}, "fgsm needs a threat: pass one"),
        ({"threat": [Linf(0.1), Linf(0.1, (-1, 1))]}, "different bounds"),
        ({"threat": [Linf(0.1), Linf(0.10000001)]}, "two radii share"),
        ({"threat": L2(2.45)}, r"shape \(6,\) in \[0, 1\], 2.449"),
        ({"batch_size": 0}, "batch_size is"),
        ({"batch_size": -3}, "batch_size is"),
        (
            {"images": torch.full((4, 6), 0.301), "threat": Linf(0.1, (0.0, 0.3))},
            "outside of the",
        ),
        ({"model": nn.Sequential(nn.Linear(6, 3), nn.Flatten(0))}, "logits of shape"),
    ],
)
def test_bad_input_has_one_sentence_that_says_what_to_do(change, words):
    arguments = {
        "model": nn.Linear(6, 3),
        "images": torch.rand(4, 6),
        "labels": torch.tensor([0, 1, 2, 0]),
        "threat": Linf(0.1),
    } | change
    with pytest.raises(ValueError, match=words) as error:
        evaluate(
            arguments.pop("model"),
            arguments.pop("images"),
            arguments.pop("labels"),
            **arguments,
        )
    assert "\n" not in str(error.value)


def test_logits_that_are_not_finite_are_refused():
    model = nn.Linear(6, 3)
    nn.init.constant_(model.weight, torch.nan)
    with pytest.raises(ValueError, match="NaN or infinite"):
        evaluate(model, torch.rand(4, 6), torch.zeros(4).long(), Linf(0.1))


def test_one_sample_and_two_classes_work():
    evaluation = evaluate(
        nn.Linear(6, 2), torch.rand(1, 6), torch.zeros(1).long(), Linf(0.1)
    )
    assert all(r.accuracy.n == 1 for r in evaluation.results)


def test_the_package_itself_is_the_way_in():
    model = nn.Linear(6, 2)
    evaluation = advnorm.evaluate(model, torch.rand(5, 6), torch.zeros(5).long(), Linf(0.1))
    text = str(evaluation)
    assert "clean" in text and "pgd-50_linf_0.1" in text and "n=5" in text
    assert advnorm.evaluation.parse_conditions is parse_conditions
