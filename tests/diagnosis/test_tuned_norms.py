"""The norms of a copy are tuned, and nothing else; tests are of the tuned copy."""

import pytest
import torch
from torch import nn

from advnorm import diagnosis
from advnorm.diagnosis.tuned_norms import tune_norms
from advnorm.threat import Linf

SETTINGS = {"tuned_on": 200, "epochs": 8, "batch_size": 20, "lr": 0.1, "attack": "pgd-2"}


def problem(count, *, seed=0):
    """Images whose first pixel is 0.7 in class 1 and 0.3 in class 0; the second is noise."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    images = torch.rand(count, 2, generator=draw)
    images[:, 0] = 0.3 + 0.4 * labels
    return images, labels


def shifted():
    """Return a model that is right but for its running statistics."""
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2, bias=False))
    model[1].weight.data[:] = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    model[0].running_mean[:] = 5.0  # everything looks like class 0
    return model


def asked(model, **options):
    images, labels = problem(100, seed=1)
    return diagnosis.tuned_norms(
        model,
        images,
        labels,
        threat=Linf(0.1),
        test_attack="pgd-5",
        training_samples=problem,
        **SETTINGS | options,
    )


@pytest.mark.parametrize("domain", ["clean", "adversarial"])
def test_wrong_statistics_are_tuned_away(domain):
    """0.1 of the 0.2 from the middle is left to the attack: all stay right."""
    answer = asked(shifted(), domain=domain)
    numbers = answer.numbers
    assert numbers["clean, before"] == 50
    assert numbers["clean, tuned"] == 100 and numbers["attacked, tuned"] == 100
    assert answer.settings["tuned_on"] == 200


def test_the_model_that_is_asked_about_stays():
    model = shifted()
    model[0].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    asked(model)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not model[0].weight.requires_grad and model[1].weight.requires_grad
    assert model.training


def test_norms_alone_are_tuned():
    model, other = shifted(), shifted()
    tune_norms(model, problem(200), None, epochs=1, batch_size=20, lr=0.1)
    assert torch.equal(model[1].weight, other[1].weight)
    for name in ("weight", "bias", "running_mean", "running_var"):
        assert not torch.equal(getattr(model[0], name), getattr(other[0], name))


def test_what_has_no_norms_or_no_run_is_refused():
    with pytest.raises(ValueError, match="norms with parameters"):
        asked(nn.Linear(2, 2))
    images, labels = problem(10)
    with pytest.raises(ValueError, match="ask about a run"):
        diagnosis.tuned_norms(shifted(), images, labels, threat=Linf(0.1))
