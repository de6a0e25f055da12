"""Fooling images against a linear model, whose path is a straight line, and their manners."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm.attacks import NonFiniteGradientError
from advnorm.attacks.fooling import fooling, transform
from advnorm.draws import Draws


def margin(logits, targets):
    """Return the lead of the target in the softmax, by a loop."""
    rows = []
    for row, target in zip(logits.softmax(1), targets.tolist(), strict=True):
        others = [p for k, p in enumerate(row.tolist()) if k != target]
        rows.append(row[target].item() - max(others))
    return torch.tensor(rows)


def test_two_classes_are_a_straight_line_of_known_length():
    """The margin is tanh(z/2), z grows by |w| x step_size: steps = ceil((z* - z0) / that)."""
    w = torch.tensor([3.0, -4.0]).double()
    start = torch.tensor([[0.0, 0.0], [-1.0, 2.0]]).double()
    targets = torch.tensor([1, 1])
    fooled = transform(
        lambda x: torch.stack([torch.zeros(len(x)).double(), x @ w], 1),
        start,
        targets,
        bounds=(-9.0, 9.0),
        step_size=0.1,
        confidence=0.9,
    )
    z = 2 * torch.atanh(torch.tensor(0.9)).item()  # 2.944: 0.5 a step
    assert fooled.steps.tolist() == [6, 28] and z < 3.0  # z0 = 0 and -11
    expected = start + 0.1 * fooled.steps[:, None] * w / 5
    torch.testing.assert_close(fooled.images, expected)
    final = torch.tensor([6 * 0.5, -11 + 28 * 0.5]).double()
    torch.testing.assert_close(fooled.confidences, torch.tanh(final / 2))


def test_noise_becomes_confident_images_of_every_class():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    targets = torch.arange(10)
    nn.init.normal_(model[3].weight)
    fooled = fooling(model, targets, shape=(1, 8, 8), steps=200, confidence=0.5)
    assert fooled.images.shape == (10, 1, 8, 8)
    assert (fooled.confidences >= 0.5).all() and (fooled.steps > 0).all()
    with torch.no_grad():
        logits = model(fooled.images)
    assert torch.equal(logits.argmax(1), targets)
    torch.testing.assert_close(fooled.confidences, margin(logits, targets))


def test_the_start_is_white_noise_of_the_given_deviation_clipped_to_the_bounds():
    model, targets = nn.Sequential(nn.Flatten(), nn.Linear(400, 2)), torch.arange(100) % 2
    for bounds in [(-9.0, 9.0), (0.0, 1.0)]:
        fooled = fooling(
            model, targets, shape=(20, 20), bounds=bounds, steps=0, confidence=2.0
        )
        images = fooled.images
        if bounds[0] < 0:
            assert abs(images.mean()) < 0.003 and abs(images.std() - 0.1) < 0.003
        else:
            assert images.min() == 0 and abs((images == 0).float().mean() - 0.5) < 0.02
        assert (fooled.steps == 0).all()
        torch.testing.assert_close(fooled.confidences, margin(model(images), targets))


def test_a_finished_image_stops_changing_and_costs_no_more_passes():
    sizes = []

    def logits_fn(x):
        sizes.append(len(x))
        return torch.stack([torch.zeros(len(x)), x.sum(1)], 1)

    start = torch.tensor([[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]])
    fooled = transform(
        logits_fn,
        start,
        torch.ones(3, dtype=torch.long),
        bounds=(-9.0, 9.0),
        step_size=2**0.5 / 2,  # the sum grows by 1 a step; 0.9 is passed at 2.944
        confidence=0.9,
    )
    assert fooled.steps.tolist() == [0, 3, 1] and sizes == [3, 2, 1, 1]
    assert torch.equal(fooled.images[0], start[0])
    torch.testing.assert_close(fooled.confidences, torch.tensor([4.0, 3, 3]).div(2).tanh())


def test_without_a_reachable_confidence_every_step_is_taken():
    model, targets = nn.Linear(5, 3), torch.arange(4) % 3
    fooled = fooling(model, targets, shape=(5,), steps=7, confidence=1.5)
    assert (fooled.steps == 7).all()
    torch.testing.assert_close(fooled.confidences, margin(model(fooled.images), targets))


@given(st.integers(0, 10**6), st.floats(0.01, 3.0), st.integers(0, 8))
@settings(deadline=None, max_examples=25)
def test_images_are_valid_and_the_margin_is_that_of_a_fresh_pass(seed, step_size, steps):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(12, 4, generator=generator)
    targets = torch.randint(4, (5,), generator=generator)
    fooled = fooling(
        lambda x: x.flatten(1) @ weight,
        targets,
        shape=(3, 2, 2),
        bounds=(-0.5, 0.75),
        steps=steps,
        step_size=step_size,
        draws=Draws.of(seed, torch.arange(5)),
    )
    assert fooled.images.min() >= -0.5 and fooled.images.max() <= 0.75
    assert (fooled.steps <= steps).all()
    assert (fooled.confidences >= 0.9)[fooled.steps < steps].all()
    fresh = margin(fooled.images.flatten(1) @ weight, targets)
    torch.testing.assert_close(fooled.confidences, fresh, atol=1e-5, rtol=0)


def test_an_images_result_does_not_depend_on_its_batch():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    targets, draws = torch.arange(9) % 3, Draws.of(4, torch.arange(9) + 100)
    start = draws.uniform(6, dtype=torch.float64)
    together = transform(model, start, targets, steps=20)
    order = torch.tensor([4, 2, 7])
    some = transform(model, start[order], targets[order], steps=20)
    torch.testing.assert_close(some.images, together.images[order], rtol=0, atol=1e-12)
    assert torch.equal(some.steps, together.steps[order])
    model = model.float()
    together = fooling(model, targets, shape=(6,), steps=0, draws=draws)
    some = fooling(model, targets[order], shape=(6,), steps=0, draws=draws[order])
    assert torch.equal(some.images, together.images[order])


def test_everything_is_left_as_it_was_and_gradients_may_be_off():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    start, targets = torch.rand(4, 6), torch.arange(4) % 3
    before, buffers = start.clone(), {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.get_rng_state()
    fooled = transform(model, start, targets, steps=5)
    fooling(model, targets, shape=(6,), steps=5, draws=Draws.of(0, torch.arange(4)))
    assert torch.equal(rng, torch.get_rng_state()) and torch.equal(start, before)
    assert not start.requires_grad and not any(t.requires_grad for t in fooled)
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    for key, value in model.state_dict().items():
        assert torch.equal(value, buffers[key]), key
    with torch.no_grad():
        assert torch.equal(fooled.images, transform(model, start, targets, steps=5).images)


def test_a_gradient_that_is_not_finite_is_reported():
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    with pytest.raises(NonFiniteGradientError, match="not finite"):
        fooling(model, torch.tensor([0, 1]), shape=(4,), steps=2)


def test_no_images_are_fine():
    fooled = fooling(nn.Linear(4, 3), torch.zeros(0, dtype=torch.long), shape=(4,))
    assert fooled.images.shape == (0, 4) and len(fooled.steps) == 0
