"""What rounding may cost: terms that cancel out, types, steep activations."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from forwards import LABEL, Forward, with_weights
from torch import nn

from advnorm.bounds import certify, margin_bounds
from advnorm.bounds.interval import evaluate_graph
from advnorm.bounds.tracing import trace
from advnorm.threat import Linf


@pytest.mark.parametrize("steep", [1e2, 1e7, 1e8, 1e12, 1e30])
@pytest.mark.parametrize("activation", [torch.tanh, torch.sigmoid])
@pytest.mark.parametrize("method", ["crown-ibp", "crown"])
def test_lines_around_a_steep_activation_hold(steep, activation, method):
    torch.manual_seed(0)

    def forward(self, x):
        return self.layer[1](torch.cat([activation(self.layer[0](x)), x], 1))

    for shift in (0.1, 0.5, 0.9):
        first = with_weights(nn.Linear(1, 1), [[steep]], [-steep * shift])
        head = with_weights(nn.Linear(2, 2), [[1.0, -2.0], [0.0, 0.0]], [0.0, 0.0])
        model = Forward(forward, nn.Sequential(first, head)).eval()
        image = torch.tensor([[0.6]])
        with torch.no_grad():
            logits = model(torch.linspace(0, 1, 2001)[:, None])
            margins = margin_bounds(model, image, LABEL, Linf(0.6), method=method)
        lowest = float((logits[:, 0] - logits[:, 1]).min())
        assert float(margins[0, 1]) <= lowest + 1e-6


@pytest.mark.parametrize(
    "divisor", [torch.tensor([0.247]), torch.tensor([3], dtype=torch.int32)]
)
def test_a_divisor_of_another_type_is_not_rounded(divisor):
    def forward(self, x):
        return self.layer(x / divisor)

    model = Forward(forward, nn.Linear(1, 2)).double().eval()
    model.layer.weight.data = torch.tensor([[-1.0], [0.0]], dtype=torch.float64)
    image = torch.tensor([[0.5]], dtype=torch.float64)
    model.layer.bias.data[:] = 0
    model.layer.bias.data[0] = float(image / divisor.double()) - 1e-9
    certificate = certify(model, image, LABEL, Linf(0.0))
    assert float(certificate.margins[0, 1]) == pytest.approx(-1e-9, abs=1e-13)


TAILS = {
    "divided": lambda z: z / 1.5,
    "negative": lambda z: -2 * (-z),
    "moved": lambda z: z.flatten(1),
    "viewed": lambda z: z.view(z.size(0), -1),
    "shifted": lambda z: 1 + (z - 3),
    "cut": lambda z: z[:, :2],
    "added up": lambda z: z + 0.5 * z,
    "side by side": lambda z: torch.cat([z[:, :1], z[:, 1:]], 1),
    "padded": lambda z: F.pad(z, (0, 0), value=-1.0),
    "rectified": F.relu,
    "leaky": lambda z: F.leaky_relu(z, 0.5),
    "averaged": lambda z: z.unsqueeze(1).mean(1),
    "pooled": lambda z: F.max_pool1d(z.unsqueeze(1), 1).squeeze(1),
    "by keyword": lambda z: torch.add(z, other=1.0).mul(other=2.0),
    "masked": lambda z: z * torch.tensor([True, True]),
    "promoted": lambda z: z + torch.tensor([0.5, 0.5], dtype=torch.float64).log(),
}


@pytest.mark.parametrize("name", TAILS)
def test_terms_that_cancel_out_count_behind_the_last_layer_too(name):
    """Large terms cancel in the last layer; margins are held against those of float64."""

    def forward(self, x):
        return TAILS[name](self.layer(x))

    worst = 0.0
    for seed in range(10):
        torch.manual_seed(seed)
        layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        model, images = Forward(forward, layers).eval(), torch.rand(100, 8)
        with torch.no_grad():
            layers[0].bias += 3000
            layers[2].bias -= layers[2].weight.sum(1) * 3000
            layers[2].bias -= layers(images).mean(0)
            labels = model(images).argmax(1)
            certificate = certify(model, images, labels, Linf(0.0))
            exact = deepcopy(model).double()(images.double()).double()
        margins = exact.gather(1, labels[:, None]) - exact
        ratio = (certificate.margins - margins) / certificate.slack.clamp(min=1e-30)
        worst = max(worst, float(ratio.scatter(1, labels[:, None], 0.0).max()))
        wrong = certificate.certified & (exact.argmax(1) != labels)
        assert not bool(wrong.any())
    assert worst <= 0.25


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Linear(2, 2), [3.5, 0.75]),  # |W| |x| + |b|
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), [3.5, 0.75]),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), [3.5, 0.75]),  # no steeper than 1
        (nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(-3.0)), [10.5, 2.25]),
        (nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), [1.0, 1.0]),  # values themselves
    ],
    ids=["linear", "norm", "relu", "steeper", "anew"],
)
def test_the_size_of_terms_by_hand(model, expected):
    first = model if isinstance(model, nn.Linear) else model[0]
    with_weights(first, [[2.0, -4.0], [0.0, 1.0]], [1.0, -0.5])
    model.eval()
    images = torch.tensor([[0.75, 0.25]])
    with torch.no_grad():
        certificate = certify(model, images, LABEL, Linf(0.0))
    own, other = certificate.slack[0].tolist()
    u = torch.finfo(torch.float32).eps / 2
    assert own == pytest.approx(512 * u * 2 * expected[0], rel=1e-4)
    assert other == pytest.approx(512 * u * sum(expected), rel=1e-4)


def test_a_norm_that_is_folded_leaves_its_terms():
    """The bias cancels out with the mean; the float32 network errs by their size."""
    for seed in range(10):
        torch.manual_seed(seed)
        last, norm = nn.Linear(16, 2), nn.BatchNorm1d(2)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), last, norm).eval()
        images = torch.rand(300, 8)
        with torch.no_grad():
            last.bias += 30000
            values = model[:3](images)
            norm.running_mean.copy_(values.mean(0))
            norm.running_var.copy_(values.var(0))
            labels = deepcopy(model).double()(images.double()).argmax(1)
            certificate = certify(model, images, labels, Linf(0.0))
            wrong = certificate.certified & (model(images).argmax(1) != labels)
        assert not bool(wrong.any())


def test_terms_of_norms_and_convolutions_by_hand():
    norm = nn.BatchNorm2d(1)
    norm.running_mean.fill_(-5.0)
    norm.running_var.fill_(4.0 - norm.eps)
    norm.weight.data.fill_(-3.0)
    norm.bias.data.fill_(7.0)
    layer = nn.Conv2d(1, 1, 1)
    layer.weight.data.fill_(-2.0)
    layer.bias.data.fill_(1.0)
    head = nn.Sequential(layer, norm, nn.AvgPool2d(2), nn.Flatten()).eval()
    with torch.no_grad():
        _, near = evaluate_graph(trace(head), torch.full((1, 1, 2, 2), 0.25))
    terms = 1.5 * (2 * 0.25 + 1) + 1.5 * 5 + 7  # factor 3 / 2, mean and bias
    eps = torch.finfo(torch.float32).eps
    assert float(near) == pytest.approx(512 * eps / 2 * terms, rel=1e-5)


def test_half_images_cost_what_half_precision_costs():
    def forward(self, x):
        return self.layer((x - self.mean) / self.deviation)

    layer = with_weights(nn.Linear(1, 2), [[-1.0], [0.0]], [0.0, 0.0])
    model = Forward(forward, layer).eval()
    model.mean, model.deviation = torch.tensor([0.4]), torch.tensor([0.247])
    certificate = certify(model, torch.tensor([[0.33667]]).half(), LABEL, Linf(0.1))
    assert float(certificate.slack[0, 1]) > 512 * 2**-12
