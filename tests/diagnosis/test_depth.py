"""Depth: two mini-batches by PCA, and the theory's limit against random networks."""

from math import log, pi
from statistics import NormalDist

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import diagnosis, norms
from advnorm.data import load
from advnorm.diagnosis.common import stratified_halves
from advnorm.diagnosis.depth_pca import same_class_neighbours
from advnorm.diagnosis.principal_components import project_to_plane
from advnorm.diagnosis.small_networks import (
    SGDOptions,
    evaluate_network,
    fully_connected,
    split_train_test,
    train_network,
)
from advnorm.diagnosis.trainable_depth import (
    DepthGrid,
    _accuracies,
    gradient_growth,
    max_trainable_depth,
    measure_depth_grid,
)
from advnorm.models import build
from advnorm.norms import NORMS
from advnorm.progress import Quiet
from advnorm.threat import Linf

CPU = torch.device("cpu")


def _perceptron(*, depth):
    options = {"width": 8, "depth": depth}
    return build("mlp", shape=(2,), classes=2, norm=NORMS["batch"](), options=options)


def test_neighbours_by_hand():
    points = torch.tensor([[0.0, 0], [1, 0], [5, 0], [5.5, 0]])
    assert same_class_neighbours(points, torch.tensor([0, 0, 1, 1])) == 1
    assert same_class_neighbours(points, torch.tensor([0, 1, 1, 1])) == 0.5


@pytest.mark.parametrize("statistics", ["batch", "running"])
def test_each_mini_batch_passes_by_itself(statistics):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4), nn.BatchNorm1d(4)
    )
    images = torch.rand(12, 3)
    labels = torch.tensor([0, 1, 2] * 4)
    answer = diagnosis.depth_pca(model, images, labels, layers=2, statistics=statistics)
    kept = [i for i in range(12) if labels[i] < 2]
    one, other = [0, 1, 6, 7], [3, 4, 9, 10]  # two of each class
    assert sorted(one + other) == kept
    rows = []
    for half in (one, other):
        with norms.mode(model, statistics), torch.no_grad():
            rows.append(model[:4](images[half]))
    expected = project_to_plane(torch.cat(rows)).points
    entered, first, last = answer.panels
    assert (entered.title, first.title, last.title) == (
        "Input",
        "At place 1 of 2",
        "At place 2 of 2",
    )
    drawn = {s.name: list(zip(s.x, s.y, strict=True)) for s in last.series}
    tags = labels[one + other].tolist()
    batches = [1] * 4 + [2] * 4
    again = {name: [] for name in drawn}
    for tag, batch, point in zip(tags, batches, expected.tolist(), strict=True):
        again[f"batch {batch}, class {tag}"].append(tuple(point))
    for name, points in drawn.items():
        torch.testing.assert_close(torch.tensor(points), torch.tensor(again[name]))
    assert answer.settings["n"] == 8
    largest = float(expected.abs().max())
    assert answer.numbers["4: largest coordinate"] == pytest.approx(largest, rel=1e-5)
    alike = same_class_neighbours(expected, torch.tensor(tags))
    assert answer.numbers["4: neighbours of the same class"] == alike


def test_classes_that_are_not_there_are_one_sentence():
    with pytest.raises(ValueError, match="at least 4 images of the classes"):
        diagnosis.depth_pca(
            nn.Linear(2, 2), torch.rand(4, 2), torch.arange(4), classes=(0, 1)
        )


@pytest.mark.parametrize("batch_size", [5, 8, 32])
def test_the_gradient_of_random_networks_grows_as_the_theory_says(batch_size):
    torch.manual_seed(0)
    width, layers, rates = 300, 24, []
    for _ in range(3):
        h, seen = torch.randn(batch_size, width).double().requires_grad_(), []
        for _ in range(layers):
            h = h @ (torch.randn(width, width).double() / width**0.5)
            h.retain_grad()
            seen.append(h)
            h = F.relu((h - h.mean(0)) / h.var(0, correction=0).sqrt())
        h.backward(torch.randn_like(h))
        sizes = [float(h.grad.square().sum()) for h in seen]
        rates.append(log(sizes[3] / sizes[-6]) / (layers - 9))
    assert sum(rates) / 3 == pytest.approx(log(gradient_growth(batch_size)), rel=0.06)


def test_the_limit_falls_to_that_of_large_batches():
    assert gradient_growth(10**7) == pytest.approx(pi / (pi - 1), rel=1e-6)
    depths = [max_trainable_depth(b) for b in (4, 8, 16, 64, 256, 10**6)]
    assert depths == sorted(depths)
    assert depths[-1] == pytest.approx(16 / log(pi / (pi - 1)), rel=1e-5)
    with pytest.raises(ValueError, match="4 or more"):
        gradient_growth(3)


def test_training_is_plain_sgd():
    images, labels = torch.rand(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    layers = []

    def make():
        layers.append(nn.Linear(3, 2))
        return layers[-1]

    start = train_network(make, images, labels, SGDOptions(0, 0.1, 6, seed=5))
    w, b = (p.detach().clone() for p in start.parameters())
    trained = train_network(make, images, labels, SGDOptions(2, 0.1, 6, decay=0.5, seed=5))
    for _ in range(2):
        logits = images @ w.T + b
        pull = (logits.softmax(1) - F.one_hot(labels)) / 6
        w, b = w - 0.1 * (pull.T @ images + 0.5 * w), b - 0.1 * (pull.sum(0) + 0.5 * b)
    torch.testing.assert_close(trained.weight.detach(), w)
    torch.testing.assert_close(trained.bias.detach(), b)
    assert evaluate_network(trained, images, labels).loss == pytest.approx(
        float(F.cross_entropy(images @ w.T + b, labels)), rel=1e-5
    )


def test_every_sample_is_seen_once_an_epoch():
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            if self.training:
                seen.append(x[:, 0].tolist())
            return super().forward(x)

    images = torch.arange(7.0)[:, None]
    train_network(lambda: Spy(1, 2), images, torch.zeros(7).long(), SGDOptions(1, 0.1, 3))
    assert [len(part) for part in seen] == [3, 3]  # the last one alone is left out
    assert len({x for part in seen for x in part}) == 6


def test_networks_have_the_requested_layers():
    net = fully_connected(5, [4, 4], 3, [NORMS["batch"](), None])
    kinds = [type(layer).__name__ for layer in net]
    assert kinds == ["Flatten", "Linear", "BatchNorm", "ReLU", "Linear", "ReLU", "Linear"]
    assert [type(layer).__name__ for layer in fully_connected(5, [], 3, [])] == [
        "Flatten",
        "Linear",
    ]


@pytest.mark.parametrize(("margin", "attacked"), [(0.125, 1.0), (0.09, 0.0)])
def test_noise_and_attack_of_a_threshold_are_the_closed_form(margin, attacked):
    """Noise of deviation 0.25 leaves the share Phi(margin / 0.25), BIM moves by 0.1."""
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight[:], model.bias[:] = (
            torch.tensor([[-1.0], [1.0]]),
            torch.tensor([1.0, 0]),
        )
        model.bias.sub_(0.5)
    labels = torch.arange(4000) % 2
    images = (0.5 + margin * (2.0 * labels - 1))[:, None]
    accuracies = _accuracies(model, split_train_test(images, labels), Linf(0.1))
    assert (accuracies["clean"], accuracies["bim"]) == (1.0, attacked)
    assert accuracies["noise"] == pytest.approx(NormalDist().cdf(margin / 0.25), abs=0.03)


def test_a_grid_learns_what_is_easy_and_its_table_is_by_depth_and_batch():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80) // 2 % 2
    images = 0.75 * torch.rand(80, 6, generator=generator) + 0.25 * labels[:, None]
    parts = split_train_test(images, labels)
    grid = DepthGrid((1, 2), (4, 8), width=8, epochs=5)
    grid_accuracies = measure_depth_grid(parts, grid, norm=True)
    assert grid_accuracies["clean"].shape == (2, 2)
    assert (grid_accuracies["clean"] > 0.7).all()
    assert (grid_accuracies["bim"] <= grid_accuracies["clean"]).all()
    plain = measure_depth_grid(parts, grid, norm=False)
    assert (plain["bim"] != grid_accuracies["bim"]).any()
    question = diagnosis.trainable_depth(
        None, images, labels, depths=(1,), batch_sizes=(4, 8), width=8, epochs=5
    )
    clean = grid_accuracies["clean"][0].tolist()
    for accuracy, size in zip(clean, (4, 8), strict=True):
        numbers = question.numbers
        assert numbers[f"batch norm, 1 layers, batches of {size}"] == pytest.approx(
            accuracy
        )
        assert numbers[f"deepest for batches of {size}"] == max_trainable_depth(size)
    shown = {panel.title: panel.series for panel in question.panels}
    titles = {"clean": "Clean", "noise": "In noise", "bim": "Attacked (BIM)"}
    for kind, title in titles.items():
        *lines, small, large = shown[f"{title}, batch norm"]
        assert [line.y[0] for line in lines] == grid_accuracies[kind][0].tolist()
        assert (small.x, large.x) == (
            (max_trainable_depth(4),) * 2,
            (max_trainable_depth(8),) * 2,
        )
        assert (small.name, large.y) == ("limit of 4", (0.0, 1.0))
        plainly = [line.y[0] for line in shown[f"{title}, no norm"]]
        assert plainly == plain[kind][0].tolist()
    limit = question.panels[-1].series[0]
    assert dict(zip(limit.x, limit.y, strict=True))[256.0] == max_trainable_depth(256)


def test_halves_hold_both_classes_of_data_where_they_take_turns():
    """Every other sample of the circles is of the same class."""
    data = load("spheres")
    batch = next(data.test.batches(torch.arange(100), batch_size=100, device=CPU))
    parts = split_train_test(batch.images, batch.labels)
    assert parts.labels.bincount().tolist() == [25, 25]
    assert parts.test_labels.bincount().tolist() == [25, 25]
    model = _perceptron(depth=2)
    answer = diagnosis.depth_pca(model, batch.images, batch.labels)
    assert [len(series.x) for series in answer.panels[0].series] == [25] * 4


def test_sorted_labels_are_split_between_both_halves():
    labels = torch.arange(30) // 10
    first, second = stratified_halves(labels)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(30))
    assert labels[first].bincount().tolist() == [5, 5, 5]


def test_trainable_depth_attacks_within_the_bounds_that_it_is_given():
    """Points of two Gaussians lie ten apart: a step of 0.1 changes no answer."""
    data = load("gaussians")
    batch = next(data.test.batches(torch.arange(200), batch_size=200, device=CPU))
    answer = diagnosis.trainable_depth(
        None,
        batch.images,
        batch.labels,
        threat=Linf(0.1, data.bounds),
        depths=(2,),
        batch_sizes=(8,),
        width=32,
        epochs=5,
    )
    attacked = [p for p in answer.panels if p.title.startswith("Attacked")]
    assert [panel.series[0].y[0] for panel in attacked] == [1.0, 1.0]


def test_a_batch_too_small_for_the_theory_is_refused_before_training():
    def explode(*given):
        raise AssertionError("trained")

    images, labels = torch.rand(8, 2), torch.arange(8) % 2
    progress = Quiet()
    progress.update = explode
    with pytest.raises(ValueError, match="batches of 4 or more"):
        diagnosis.trainable_depth(
            None, images, labels, depths=(1,), batch_sizes=(2,), progress=progress
        )


def test_one_layer_is_the_last_one():
    model = _perceptron(depth=3)
    images, labels = torch.rand(8, 2), torch.arange(8) % 2
    answer = diagnosis.depth_pca(model, images, labels, layers=1)
    assert [panel.title for panel in answer.panels] == ["Input", "At place 3 of 3"]
