"""Anybody's model and tensors: other precisions, integers, modes and kinds of numbers."""

import numpy as np
import pytest
import torch
from torch import nn

from advnorm import norms
from advnorm.attacks import ATTACKS, AttackEntry, pgd
from advnorm.evaluation import evaluate, run_condition
from advnorm.threat import Linf


def network():
    """Return a small network in double precision."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
    ).double()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_is_fed_its_own_and_attacked_in_a_wide_one(dtype):
    got, searched = set(), set()

    class Spy(nn.Linear):
        def forward(self, x):
            got.add((x.dtype, self.weight.dtype))
            return super().forward(x)

    def spy(logits_fn, clean, labels, threat, *, steps, step_size, draws):
        x = pgd(
            logits_fn, clean, labels, threat, steps=steps, step_size=step_size, draws=draws
        )
        searched.update({clean.dtype, x.dtype, logits_fn(x).dtype})
        return x

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ATTACKS._entries, "spy", AttackEntry("spy", spy, "Spy"))
        model, images = Spy(6, 2).to(dtype), torch.rand(50, 6)
        labels = model(images.to(dtype)).argmax(1)
        got.clear()
        evaluation = evaluate(
            model, images, labels, Linf(0.05), conditions=["clean", "spy-10"]
        )
    checked = {(torch.float64, torch.float64)}  # a copy, for finite differences
    assert got - checked == {(dtype, dtype)} - checked
    assert searched == {torch.promote_types(dtype, torch.float32)}
    clean, robust = (r.accuracy.correct for r in evaluation.results)
    assert clean >= 49 and robust < clean


def test_steps_below_half_precision_are_not_lost():
    """A step of 1e-4 near 1 is rounded away in float16; 20 of them are not."""
    model = nn.Linear(1, 2).half()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[64.0], [-64.0]]))
        model.bias.copy_(torch.tensor([-64.0 * 0.9985, 64.0 * 0.9985]))
    images, labels = torch.full((5, 1), 0.9995), torch.zeros(5).long()
    evaluation = evaluate(model, images, labels, Linf(2e-3), conditions=["clean", "bim-50"])
    assert [r.accuracy.correct for r in evaluation.results] == [5, 0]


def test_a_model_without_parameters_is_evaluated_in_single_precision():
    got = set()

    class Spy(nn.Module):
        def forward(self, x):
            got.add(x.dtype)
            return torch.stack([1 - x.mean(1), x.mean(1)], 1)

    evaluate(Spy(), torch.rand(5, 4).double(), torch.ones(5).long(), Linf(0.1))
    assert got == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_are_integers_of_any_size(dtype):
    model, images = network(), torch.rand(20, 3, 2, 2)
    labels = torch.arange(20) % 4
    expected = evaluate(model, images, labels, Linf(0.1)).verdicts
    assert evaluate(model, images, labels.to(dtype), Linf(0.1)).verdicts == expected


@pytest.mark.parametrize(
    "eps",
    [
        np.float32(0.1),
        np.float64(0.1),
        np.array(0.1),
        np.array([0.1, 0.2]),
        [np.float32(0.1), np.float64(0.2)],
        torch.tensor(0.1),
        torch.tensor([0.1, 0.2]),
        [torch.tensor(0.1), torch.tensor(0.2)],
        (0.1, 1),
        1,
    ],
    ids=repr,
)
def test_radii_are_numbers_of_any_kind(eps):
    model, images, labels = nn.Linear(6, 2), torch.rand(5, 6), torch.zeros(5).long()
    threats = [Linf(each) for each in eps] if np.ndim(eps) else Linf(eps)
    evaluation = evaluate(model, images, labels, threats, conditions=["fgsm"])
    radii = [r.threat.eps for r in evaluation.results]
    assert radii == pytest.approx(np.atleast_1d(np.asarray(eps, dtype=float)).tolist())
    assert all(type(radius) is float for radius in radii)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_can_be_called_where_gradients_are_switched_off(mode):
    model = network()
    images, labels = torch.rand(20, 3, 2, 2, dtype=torch.float64), torch.arange(20) % 4
    expected = evaluate(model, images, labels, Linf(0.1)).verdicts
    assert any(expected["clean"].robust)
    with mode():
        assert evaluate(model, images, labels, Linf(0.1)).verdicts == expected
        images, labels = images * 1, labels * 1  # tensors of this mode
        assert evaluate(model, images, labels, Linf(0.1)).verdicts == expected
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    assert evaluate(model, images, labels, Linf(0.1)).verdicts == expected


def test_a_model_made_in_inference_mode_is_evaluated_too():
    model, images = network(), torch.rand(20, 3, 2, 2).double()
    labels = torch.arange(20) % 4
    expected = evaluate(model, images, labels, Linf(0.1)).verdicts
    with torch.inference_mode():
        copy = network()
        copy.load_state_dict(model.state_dict())
        assert evaluate(copy, images, labels, Linf(0.1)).verdicts == expected
    assert all(p.is_inference() and p.requires_grad for p in copy.parameters())


def test_the_search_is_given_tensors_of_its_own(monkeypatch):
    """No inference tensors, which cannot be saved for a gradient, and no caller's graph."""
    seen = []

    def spy(model, batches, condition, **settings):
        batches = list(batches)
        seen.extend(batches)
        return run_condition(model, batches, condition, **settings)

    monkeypatch.setattr("advnorm.evaluation.gradient_free.run_condition", spy)
    model, images = nn.Linear(6, 2), torch.rand(5, 6, requires_grad=True)
    evaluate(model, images, torch.zeros(5).long(), Linf(0.1))
    with torch.inference_mode():
        evaluate(model, torch.rand(5, 6), torch.zeros(5).long(), Linf(0.1))
    tensors = [tensor for batch in seen for tensor in batch]
    assert len(tensors) == 18 and images.grad is None and images.requires_grad
    assert not any(t.is_inference() or t.requires_grad for t in tensors)


@pytest.mark.parametrize("of_images", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("of_model", [torch.float32, torch.float64])
def test_images_may_touch_the_bounds_in_their_own_precision(of_images, of_model):
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            seen.append(x.detach())
            return super().forward(x)

    bounds = (-0.7, 0.3)
    images = torch.randn(5, 6).to(of_images).clamp(*bounds)
    assert images.double().max() > 0.3 or of_images == torch.float16
    evaluate(
        Spy(6, 2).to(of_model), images, torch.zeros(5).long(), Linf(0.1, bounds=bounds)
    )
    edges = torch.tensor(bounds, dtype=of_model)
    assert all((x >= edges[0]).all() and (x <= edges[1]).all() for x in seen)


@pytest.mark.parametrize("norm", [norms.MixtureNorm, norms.AffineNorm])
def test_a_model_is_judged_on_the_branch_of_its_route_which_is_named(norm):
    model = nn.Sequential(nn.Linear(6, 8), norm(8), nn.ReLU(), nn.Linear(8, 2))
    nn.init.constant_(model[1].clean.bias, 1.0)
    images = torch.rand(30, 6)
    answers = {}
    for domain in ("clean", "adversarial"):
        with norms.route(model, domain=domain):
            evaluation = evaluate(
                model, images, torch.zeros(30).long(), Linf(0.1), conditions=["clean"]
            )
            expected = model.eval()(images).argmax(1).tolist()
        assert [result.branch for result in evaluation.results] == [domain]
        answers[domain] = evaluation.verdicts[f"clean@{domain}"].predictions
        assert list(answers[domain]) == expected
    default = evaluate(
        model, images, torch.zeros(30).long(), Linf(0.1), conditions=["clean"]
    )
    assert default.verdicts["clean@adversarial"].predictions == answers["adversarial"]
