"""Tilt against angles by hand, autograd, and classifiers that torch.optim trained."""

from math import atan, degrees, sqrt

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from advnorm import diagnosis, norms
from advnorm.data import load
from advnorm.data.toy import gaussian_points
from advnorm.diagnosis.first_layer import effective_weights
from advnorm.diagnosis.linear_descent import LinearClassifier
from advnorm.diagnosis.tilt import CONSTANTS, initial_classifier, retrain
from advnorm.diagnosis.toy import BAYES, ToyOptions, _train, measure_angles
from advnorm.models import PerImageStandardize, Standardize, build

# Means (-1, 0) and (1, 0): the centroids differ along the first axis. Variances 4 and 1.
POINTS = torch.tensor(
    [[-1 + a, b] for a in (-sqrt(3), sqrt(3)) for b in (-1.0, 1.0)]
    + [[1 + a, b] for a in (-sqrt(3), sqrt(3)) for b in (-1.0, 1.0)]
)
LABELS = torch.tensor([0] * 4 + [1] * 4)


def by_hand(eps=1e-12, gamma=(1.0, 1.0)):
    """Return a model whose boundary between the classes has the weights (1, 1)."""
    model = nn.Sequential(nn.BatchNorm1d(2, eps=eps), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].running_var[:] = torch.tensor([1.0, 0.01])
        model[0].weight[:] = torch.tensor(gamma)
        model[1].weight[:] = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    return model


def lines(answer):
    return {series.name: series.y for series in answer.panels[0].series}


def test_angles_by_hand():
    answer = diagnosis.tilt(by_hand(), POINTS, LABELS)
    assert answer.numbers["this model, tracked"] == pytest.approx(
        degrees(atan(10)), abs=1e-3
    )
    assert answer.numbers["this model, batch"] == pytest.approx(degrees(atan(2)), abs=1e-3)
    for c, tracked, batch in zip(
        CONSTANTS,
        lines(answer)["this model, tracked"],
        lines(answer)["this model, batch"],
        strict=True,
    ):
        assert tracked == pytest.approx(degrees(atan(sqrt((1 + c) / (0.01 + c)))), abs=1e-3)
        assert batch == pytest.approx(degrees(atan(sqrt((4 + c) / (1 + c)))), abs=1e-3)
    assert answer.panels[0].series[0].x == pytest.approx((-5, -4, -3, -2, -1, 0))


def test_the_scale_of_batch_norm_counts():
    answer = diagnosis.tilt(by_hand(gamma=(10.0, 1.0)), POINTS, LABELS)
    assert answer.numbers["this model, tracked"] == pytest.approx(45, abs=1e-3)


def test_hidden_units_are_averaged_and_have_no_norm_before():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])  # 90 and 0 degrees
    answer = diagnosis.tilt(model, POINTS, LABELS)
    assert answer.numbers["this model"] == pytest.approx(45, abs=1e-3)
    assert not any(name.startswith("this") for name in lines(answer))


@pytest.mark.parametrize("norm", ["batch", "mixture", "dual", "none"])
def test_directions_are_the_slopes_of_the_logits(norm):
    torch.manual_seed(2)
    standardize = Standardize(mean=(0.3, 0.5), std=(0.2, 0.7))
    model = build(
        "linear",
        shape=(2, 2, 2),
        classes=3,
        norm=norms.NORMS[norm](),
        standardize=standardize,
    )
    for layer in norms.batch_norms(model):
        layer.running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
        layer.running_var.uniform_(0.1, 2, generator=torch.Generator().manual_seed(2))
    images = torch.rand(7, 2, 2, 2)
    x = images[:1].clone().requires_grad_()
    model.eval()
    expected = [torch.autograd.grad(model(x)[0, k], x)[0].flatten() for k in range(3)]
    directions = effective_weights(model.train(), images)
    torch.testing.assert_close(directions, torch.stack(expected), rtol=1e-4, atol=1e-5)


def test_images_standardized_by_themselves_show_the_weights_as_they_are():
    model = nn.Sequential(PerImageStandardize(), nn.Flatten(), nn.Linear(4, 2))
    directions = effective_weights(model, torch.rand(3, 1, 2, 2))
    assert torch.equal(directions, model[2].weight.detach())


@pytest.mark.parametrize("c", [1e-5, 0.1])
def test_training_anew_is_that_of_torch_optim(c):
    data = load("digits").test
    images, labels = data.images[:80].float() / 255, data.labels[:80]
    pair, epochs = (3, 7), 50
    angles = retrain(images, labels, pair, (c,), seed=4)
    kept = (labels == 3) | (labels == 7)
    x, y = images[kept].flatten(1).double(), (labels[kept] == 7).double()
    centroid = x[y == 1].mean(0) - x[y == 0].mean(0)
    start = initial_classifier(x.shape[1], 4, x)

    def train(norm):
        linear = nn.Linear(x.shape[1], 1).double()
        with torch.no_grad():
            linear.weight[0], linear.bias[0] = start
        model = nn.Sequential(norm, linear).train()
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
        for _ in range(epochs):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
            optimizer.step()
        return linear.weight.detach()[0]

    def degrees_of(w):
        cosine = (w @ centroid).abs() / w.norm() / centroid.norm()
        return float(torch.rad2deg(torch.arccos(cosine)))

    assert angles.plain == pytest.approx(degrees_of(train(nn.Identity())), abs=1e-4)
    norm = nn.BatchNorm1d(x.shape[1], eps=c, affine=False).double()
    w = train(norm)
    tracked = w / (norm.running_var + c).sqrt()
    batch = w / (x.var(0, correction=0) + c).sqrt()
    assert angles.by_constant["tracked"] == [pytest.approx(degrees_of(tracked), abs=1e-4)]
    assert angles.by_constant["batch"] == [pytest.approx(degrees_of(batch), abs=1e-4)]


def test_bad_questions_are_one_sentence():
    images = torch.rand(4, 1, 3, 3)
    labels = torch.tensor([0, 0, 1, 1])
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2, 2))
    with pytest.raises(ValueError, match="is a Conv2d"):
        diagnosis.tilt(convolution, images, labels)
    with pytest.raises(ValueError, match="no images of class 5"):
        diagnosis.tilt(nn.Linear(9, 2), images.flatten(1), labels, pair=(0, 5))
    pooled = nn.Sequential(nn.MaxPool2d(3), nn.Flatten(), nn.Linear(1, 2))
    with pytest.raises(ValueError, match="has 1 inputs, the images have 9 values"):
        diagnosis.tilt(pooled, images, labels)
    with pytest.raises(ValueError, match="has 2 classes"):
        diagnosis.tilt(nn.Linear(9, 2), images.flatten(1), labels + 1, pair=(1, 2))


def test_weights_are_the_directions_as_pictures():
    answer = diagnosis.weights(by_hand(), POINTS, LABELS)
    centroid, tracked, batch = answer.panels[0].pictures
    assert centroid.channels == (((pytest.approx(2.0), pytest.approx(0.0)),),)
    assert tracked.channels[0][0] == pytest.approx((1.0, 10.0), rel=1e-4)
    assert batch.channels[0][0] == pytest.approx((0.5, 1.0), rel=1e-4)
    assert tracked.label == "tracked, 84.3 degrees" and tracked.signed
    (deviation,) = answer.panels[1].pictures
    assert deviation.channels[0][0] == pytest.approx((2.0, 1.0)) and not deviation.signed


def test_filters_are_shown_where_there_is_no_linear_layer_first():
    model = nn.Sequential(nn.Conv2d(3, 5, 2), nn.Flatten(), nn.Linear(5 * 4, 2))
    images = torch.rand(4, 3, 3, 3)
    images[:, 0, 0, 0] = 0.5
    answer = diagnosis.weights(model, images, torch.zeros(4, dtype=torch.int64), count=4)
    assert len(answer.panels[0].pictures) == 4
    shown = torch.tensor(answer.panels[0].pictures[2].channels)
    torch.testing.assert_close(shown, model[0].weight[2].detach())
    assert answer.numbers["values without deviation"] == pytest.approx(1 / 27)


def test_the_toy_is_that_of_torch_optim():
    toy, seed = ToyOptions(samples=60, epochs=30), 3
    angles = measure_angles(toy, [0, seed])
    x, labels = gaussian_points(60, seed=seed)

    def train(norm):
        linear = nn.Linear(2, 1).double()
        with torch.no_grad():
            linear.weight[0], linear.bias[0] = initial_classifier(2, seed, x)
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
        for _ in range(30):
            optimizer.zero_grad()
            logits = linear(norm(x))[:, 0]
            F.binary_cross_entropy_with_logits(logits, labels.double()).backward()
            optimizer.step()
        return linear.weight.detach()[0]

    def tilted(w):
        return degrees(atan(abs(float(w[1] / w[0]))))

    assert float(angles.plain[1]) == pytest.approx(tilted(train(nn.Identity())), abs=1e-6)
    norm = nn.BatchNorm1d(2, affine=False).double()
    w = train(norm) / (x.var(0, correction=0) + 1e-5).sqrt()
    assert float(angles.normalized[1]) == pytest.approx(tilted(w), abs=1e-6)


def test_the_toy_ends_near_the_bayes_boundary_with_many_samples():
    covariance = torch.tensor([[1.0, 0.05], [0.05, 0.01]], dtype=torch.float64)
    w = torch.linalg.solve(covariance, torch.tensor([10.0, 0.0], dtype=torch.float64))
    assert degrees(atan(abs(float(w[1] / w[0])))) == pytest.approx(BAYES, abs=0.01)
    angles = measure_angles(ToyOptions(samples=2000, epochs=1000, scale=0.0), [0, 1])
    assert (angles.plain < 5).all() and (angles.normalized - 78.7).abs().max() < 6


def test_small_steps_of_an_epoch_add_up_to_those_of_the_whole_batch():
    points, labels = (value[None] for value in gaussian_points(40, seed=0))
    start = LinearClassifier(torch.ones(1, 2).double(), torch.zeros(1).double())
    moved = {}
    for size, epochs in ((10, 3), (0, 12)):  # 4 steps an epoch, or one
        toy = ToyOptions(samples=40, epochs=epochs, lr=1e-6, batch_size=size)
        for norm in (True, False):
            line = _train(toy, points, 2.0 * labels - 1, start, norm=norm)
            moved[norm, size] = (line.weight - start.weight) / 1e-6
    torch.testing.assert_close(moved[False, 10], moved[False, 0], rtol=1e-3, atol=1e-5)
    assert (moved[True, 10] - moved[True, 0]).abs().max() > 1e-3  # statistics of ten


def test_points_of_the_toy_are_those_of_the_data_set():
    images, labels = gaussian_points(1000, seed=2)
    train = load("gaussians", seed=2).train
    assert torch.equal(train.images, images.float()) and torch.equal(train.labels, labels)
    assert torch.equal(gaussian_points(10, seed=2)[0], images[:10])


def test_the_toy_as_a_question():
    answer = diagnosis.toy(None, None, None, seeds=2, samples=(50,), epochs=5)
    names = [series.name for series in answer.panels[0].series]
    assert names == [
        "batch norm, 50 samples",
        "no norm, 50 samples",
        "published, batch norm",
        "Bayes-optimal",
    ]
    plain, expected = measure_angles(ToyOptions(50, epochs=5), range(2))
    assert answer.panels[0].series[0].y == pytest.approx(sorted(expected.tolist()))
    assert answer.numbers == {
        "batch norm, 50 samples: mean": pytest.approx(float(expected.mean())),
        "batch norm, 50 samples: smallest": pytest.approx(min(expected.tolist())),
        "batch norm, 50 samples: largest": pytest.approx(max(expected.tolist())),
        "no norm, 50 samples: mean": pytest.approx(float(plain.mean())),
    }
