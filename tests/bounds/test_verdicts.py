"""Verdicts: the cheapest method is asked first, and the answers are those of all of them."""

import pytest
import torch
from torch import nn

from advnorm.bounds import (
    METHODS,
    certify,
    input_box,
    interval_bounds,
    is_certified,
    margin_bounds,
    rounding,
    trace,
    verdicts,
)
from advnorm.threat import L2, Linf

ORDER = ["ibp", "crown-ibp", "crown"]


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)]
    return nn.Sequential(*layers).eval()


def asked(seed: int, count: int = 40) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network, images, and mostly the labels that it gives them."""
    model = network(seed)
    images = torch.rand(count, 5)
    labels = model(images).argmax(1)
    labels[::7] = (labels[::7] + 1) % 3
    return model, images, labels


@pytest.mark.parametrize("threat", [Linf(0.03), Linf(0.1), L2(0.1), Linf(0.0), Linf(1.0)])
@pytest.mark.parametrize("method", ORDER)
@pytest.mark.parametrize("slack", [512, 2**20])
def test_certified_is_what_any_method_so_far_certifies(slack, method, threat, monkeypatch):
    monkeypatch.setattr(rounding, "SLACK", slack)  # the larger one decides many images
    for seed in range(8):
        model, images, labels = asked(seed)
        so_far = ORDER[: ORDER.index(method) + 1]
        each = [certify(model, images, labels, threat, method=m).certified for m in so_far]
        expected = torch.stack(each).any(0)
        assert torch.equal(
            is_certified(model, images, labels, threat, method=method), expected
        )


def test_a_dearer_method_is_asked_about_what_is_left(monkeypatch):
    model, images, labels = asked(3, count=200)
    threat, seen = Linf(0.1), {}

    def compute_margins(graph, images, labels, threat, method):
        seen[method] = images
        return real(graph, images, labels, threat, method)

    by_ibp, by_lines = (
        certify(model, images, labels, threat, method=method).certified
        for method in ORDER[:2]
    )
    real = verdicts.compute_margins
    monkeypatch.setattr(verdicts, "compute_margins", compute_margins)
    is_certified(model, images, labels, threat, method="crown")
    assert 0 < by_ibp.sum() < by_lines.sum() < len(images)  # each has something to say
    assert torch.equal(seen["crown-ibp"], images[~by_ibp])
    assert torch.equal(seen["crown"], images[~(by_ibp | by_lines)])


def test_nothing_more_is_asked_when_all_is_settled(monkeypatch):
    model, images, _ = asked(2)
    monkeypatch.setattr(verdicts, "compute_margins", None)
    assert is_certified(
        model, images, model(images).argmax(1), Linf(1e-6), method="crown"
    ).all()


@pytest.mark.parametrize("method", ORDER)
def test_margins_and_slack_are_those_of_the_definition(method):
    model, images, labels = asked(3)
    threat = Linf(0.05)
    certificate = certify(model, images, labels, threat, method=method)
    with torch.no_grad():
        torch.testing.assert_close(
            certificate.margins, margin_bounds(model, images, labels, threat, method=method)
        )
        last = interval_bounds(trace(model), input_box(images, threat))[-2]
        most = torch.maximum(last.lower.abs(), last.upper.abs())
        terms = most @ model[-1].weight.abs().T + model[-1].bias.abs()
    own = terms[torch.arange(len(images)), labels]
    torch.testing.assert_close(certificate.slack, 512 * 2.0**-24 * (own[:, None] + terms))
    safe = certificate.margins > certificate.slack
    safe[torch.arange(len(images)), labels] = True
    assert torch.equal(certificate.certified, safe.all(1))


def test_no_images_and_unknown_methods():
    model, images, labels = asked(4)
    for method in ORDER:
        none = images[:0], labels[:0], Linf(0.1)
        assert is_certified(model, *none, method=method).shape == (0,)
        assert margin_bounds(model, *none, method=method).shape == (0, 3)
    with pytest.raises(ValueError, match="crwn"):
        is_certified(model, images, labels, Linf(0.1), method="crwn")


def test_a_method_of_the_users_own_is_asked_after_the_intervals(monkeypatch):
    model, images, labels = asked(8)
    monkeypatch.setitem(METHODS._entries, "mine", METHODS["crown"])
    certified = is_certified(model, images, labels, Linf(0.05), method="mine")
    assert torch.equal(certified, certify(model, images, labels, Linf(0.05)).certified)
