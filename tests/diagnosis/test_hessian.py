"""The Hessian's eigenvalues against the dense Hessian; the model does not change."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import diagnosis, norms
from advnorm.models import build
from advnorm.threat import Linf


def network(norm, dtype=torch.float64):
    torch.manual_seed(1)
    layers = [nn.Linear(3, 4), norms.NORMS[norm]()(4), nn.Tanh(), nn.Linear(4, 3)]
    return nn.Sequential(*layers).to(dtype)


def data(n=12):
    generator = torch.Generator().manual_seed(2)
    return torch.rand(n, 3, generator=generator).double(), torch.arange(n) % 3


def dense(model, loss):
    """Return the eigenvalues of the whole Hessian, a row a parameter."""
    parameters = list(model.parameters())
    grads = torch.autograd.grad(
        loss(), parameters, create_graph=True, materialize_grads=True
    )
    flat = torch.cat([g.reshape(-1) for g in grads])
    rows = [
        torch.cat(
            [
                r.reshape(-1)
                for r in torch.autograd.grad(
                    value, parameters, retain_graph=True, materialize_grads=True
                )
            ]
        )
        for value in flat
    ]
    return torch.linalg.eigvalsh(torch.stack(rows))


@pytest.mark.parametrize("statistics", ["batch", "running"])
@pytest.mark.parametrize("norm", ["batch", "group", "none", "dual", "borrowed", "mixture"])
def test_the_ends_are_those_of_the_dense_hessian(norm, statistics):
    model, (images, labels) = network(norm), data()
    answer = diagnosis.hessian(
        model, images, labels, statistics=statistics, steps=100, tolerance=0.0
    )
    with norms.mode(model, statistics), norms.twice_differentiable(model):
        values = dense(model, lambda: F.cross_entropy(model(images), labels))
    ends = [answer.numbers["largest"], answer.numbers["smallest"]]
    torch.testing.assert_close(
        torch.tensor(ends), values[[-1, 0]].float(), rtol=1e-5, atol=1e-7
    )
    assert abs(answer.numbers["dominant"]) == pytest.approx(float(values.abs().max()), 1e-7)


def test_the_error_that_it_names_holds_before_it_is_done():
    torch.manual_seed(0)
    a = torch.randn(60, 60, dtype=torch.float64)
    a = a + a.T
    x = torch.zeros(60, dtype=torch.float64, requires_grad=True)
    values = torch.linalg.eigvalsh(a)
    errors = []
    for steps in range(2, 40, 3):
        eigenvalues = diagnosis.spectrum(
            lambda: 0.5 * x @ a @ x, [x], steps=steps, tolerance=1e-12
        )
        nearest = (values - eigenvalues.dominant).abs().min()
        assert nearest <= eigenvalues.error + 1e-9
        errors.append(float((values.abs().max() - abs(eigenvalues.dominant)).abs()))
    assert errors[-1] < 1e-6 < errors[0]


def test_the_dominant_one_is_the_largest_in_size_and_keeps_its_sign():
    sizes = torch.tensor([-5.0, 1.0, 2.0], dtype=torch.float64)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    eigenvalues = diagnosis.spectrum(lambda: 0.5 * (sizes * x * x).sum(), [x])
    assert (eigenvalues.largest, eigenvalues.smallest) == (
        pytest.approx(2),
        pytest.approx(-5),
    )
    assert eigenvalues.dominant == eigenvalues.estimates[-1] == pytest.approx(-5)


@pytest.mark.parametrize("loss", ["plain", "adversarial", "certified"])
def test_it_leaves_the_model_as_it_was(loss):
    model, (images, labels) = network("batch"), data()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    diagnosis.hessian(model, images, labels, loss=loss, threat=Linf(0.1), steps=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.training and (model[0].weight.grad == 1).all()
    assert model[3].weight.grad is None
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_the_certified_loss_at_a_tiny_radius_is_the_plain_one():
    model, (images, labels) = network("batch"), data()
    settings = {"steps": 20, "tolerance": 1e-8}
    plain = diagnosis.hessian(model, images, labels, **settings)
    certified = diagnosis.hessian(
        model, images, labels, loss="certified", threat=Linf(1e-9), **settings
    )
    assert certified.numbers["dominant"] == pytest.approx(plain.numbers["dominant"], 1e-6)


def test_it_runs_on_our_networks_in_single_precision():
    model = build("cnn_small", shape=(1, 12, 12), classes=10, norm=norms.NORMS["batch"]())
    answer = diagnosis.hessian(model, torch.rand(6, 1, 12, 12), torch.arange(6), steps=4)
    assert answer.numbers["largest"] > 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "advers"}, "adversarial"),
        ({"loss": "adversarial"}, "needs a threat"),
        ({"statistics": "train"}, "batch or running"),
    ],
)
def test_bad_settings_are_one_sentence(settings, words):
    model, (images, labels) = network("none"), data()
    with pytest.raises(ValueError, match=words):
        diagnosis.hessian(model, images, labels, **settings)
