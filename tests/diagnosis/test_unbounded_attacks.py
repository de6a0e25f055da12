"""Images made by unbounded attacks, with the confidences that the network has in them."""

import pytest
import torch
from torch import nn

from advnorm import diagnosis
from advnorm.diagnosis.pictures import picture
from advnorm.models import PerImageStandardize, build
from advnorm.norms import NORMS
from advnorm.threat import Linf


def linear(classes=3, features=9, scale=4.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(features, classes))
    with torch.no_grad():
        model[1].weight.mul_(scale)
    return model


def tensor(shown):
    return torch.tensor(shown.channels)


def margin(model, image, target):
    softmax = model(image[None]).softmax(1)[0]
    others = [p for i, p in enumerate(softmax.tolist()) if i != target]
    return float(softmax[target].detach()) - max(others)


def test_pictures_hold_what_they_are_given():
    assert picture("v", torch.tensor([1.0, 2.0])).channels == (((1.0, 2.0),),)
    assert picture("g", torch.eye(2)).channels == (((1.0, 0.0), (0.0, 1.0)),)
    colour = picture("c", torch.rand(3, 2, 2))
    assert len(colour.channels) == 3
    mean = picture("m", torch.stack([torch.zeros(2, 2), torch.ones(2, 2)]), signed=True)
    assert mean.channels == (((0.5, 0.5), (0.5, 0.5)),) and mean.signed


def test_fooling_images_have_the_margin_that_is_written_below():
    model, images = linear(), torch.rand(4, 1, 3, 3)
    answer = diagnosis.fooling_images(model, images, torch.zeros(4).long(), steps=30)
    (panel,) = answer.panels
    margins = []
    for target, shown in enumerate(panel.pictures):
        image = tensor(shown)
        assert image.min() >= 0 and image.max() <= 1
        margins.append(margin(model, image, target))
        assert shown.label == f"{target} ({margins[-1]:.0%})"
    assert answer.numbers["mean margin"] == pytest.approx(sum(margins) / 3, rel=1e-4)
    assert answer.numbers["finished"] == sum(m >= 0.9 for m in margins) / 3
    few = diagnosis.fooling_images(model, images, torch.zeros(4).long(), steps=1)
    assert few.numbers["finished"] == 0 and few.numbers["mean steps"] == 1
    wide = diagnosis.fooling_images(
        model, images, torch.zeros(4).long(), steps=30, threat=Linf(0.1, (-1.0, 1.0))
    )
    assert min(tensor(shown).min() for shown in wide.panels[0].pictures) < 0


def test_the_grid_has_the_images_on_its_diagonal():
    model, images = linear(scale=9.0), torch.rand(8, 1, 3, 3)
    labels = torch.tensor([2, 0, 1, 0, 2, 1, 0, 0])
    answer = diagnosis.source_target(model, images, labels, steps=60, step_size=0.1)
    assert [panel.title for panel in answer.panels] == [f"From class {k}" for k in range(3)]
    distances, margins = [], []
    for source, first in ((0, 1), (1, 2), (2, 0)):
        row = answer.panels[source].pictures
        torch.testing.assert_close(tensor(row[source]), images[first])
        assert row[source].label == f"{source} (as it is)"
        for target in {0, 1, 2} - {source}:
            image = tensor(row[target])
            margins.append(margin(model, image, target))
            assert row[target].label == f"{target} ({margins[-1]:.0%})"
            distances.append(float((image - images[first]).norm()))
    assert answer.numbers["mean L2 distance"] == pytest.approx(sum(distances) / 6, rel=1e-4)
    assert answer.numbers["mean margin"] == pytest.approx(sum(margins) / 6, rel=1e-4)


def test_minimal_examples_are_at_the_distance_of_the_boundary():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight[:] = torch.tensor([[2.0, 1, -1, 0], [0.0, -1, 1, 2]])
        model[1].bias.zero_()
    images = 0.5 + 0.02 * torch.rand(3, 1, 2, 2)
    images[2] = 0.5 - 0.02 * torch.rand(1, 2, 2)
    labels = torch.tensor([0, 0, 0])
    labels[:] = model(images).argmax(1)
    labels[1] = 1 - labels[1]  # classified wrong: not shown
    kappa = 0.3
    answer = diagnosis.minimal_examples(model, images, labels, steps=200, confidence=kappa)
    assert answer.settings["n"] == 2 and len(answer.panels[0].pictures) == 4
    difference = model[1].weight[0] - model[1].weight[1]
    expected = []
    for row in (0, 2):
        gap = (model(images[row : row + 1])[0] @ torch.tensor([1.0, -1.0])).abs()
        expected.append(float(((gap + kappa) / difference.norm()).detach()))
    mean = sum(expected) / 2
    assert answer.numbers["mean L2 distance"] == pytest.approx(mean, rel=0.03)
    shown = answer.panels[0].pictures
    torch.testing.assert_close(tensor(shown[0]), images[0])
    assert float((tensor(shown[1]) - images[0]).norm()) == pytest.approx(
        expected[0], rel=0.05
    )
    sure = [float(model(tensor(shown[i])[None]).softmax(1).max().detach()) for i in (1, 3)]
    assert answer.numbers["mean confidence"] == pytest.approx(sum(sure) / 2, rel=1e-5)
    assert answer.numbers["found"] == 1
    with pytest.raises(ValueError, match="no image is classified correctly"):
        diagnosis.minimal_examples(model, images[:1], 1 - labels[:1])
    far = diagnosis.minimal_examples(
        model, images[:1], labels[:1], steps=2, confidence=50.0
    )
    assert far.numbers["found"] == 0 and far.panels[0].pictures[1].label == "none found"


def test_the_mean_is_of_the_examples_that_were_found():
    """In the box the margin is from -3 to 5: a lead of 3.5 is out of reach one way."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight[:] = torch.tensor([[2.0, 1, -1, 0], [0.0, -1, 1, 2]])
        model[1].bias[:] = torch.tensor([1.0, 0.0])
    images = torch.tensor([[0.6, 0.6, 0.5, 0.5], [0.2, 0.2, 0.7, 0.7]]).view(2, 1, 2, 2)
    labels = model(images).argmax(1)
    assert labels.tolist() == [0, 1]
    answer = diagnosis.minimal_examples(model, images, labels, steps=300, confidence=3.5)
    _, _, start, moved = answer.panels[0].pictures
    assert [shown.label[:4] for shown in answer.panels[0].pictures[1::2]] == [
        "none",
        "0 (9",
    ]
    length = float((tensor(moved) - tensor(start)).norm())
    assert answer.numbers["found"] == 0.5
    assert answer.numbers["mean L2 distance"] == pytest.approx(length, rel=1e-3)
    sure = float(model(tensor(moved)[None]).softmax(1)[0, 0].detach())
    assert answer.numbers["mean confidence"] == pytest.approx(sure, rel=1e-4)


def test_one_class_has_no_other_to_turn_into():
    with pytest.raises(ValueError, match="two classes or more"):
        diagnosis.source_target(
            nn.Linear(4, 2), torch.rand(3, 4), torch.zeros(3).long(), steps=2
        )


def per_image(seed=0):
    """Return a linear model behind the standardization of each image."""
    torch.manual_seed(seed)
    options = {"start": "normal"}
    network = build(
        "linear",
        shape=(1, 3, 3),
        classes=3,
        norm=NORMS["none"](),
        standardize=PerImageStandardize(),
        options=options,
    )
    with torch.no_grad():
        network.classifier.weight.mul_(4)
    return network


def test_in_normalized_space_steps_are_not_rescaled_and_predictions_saturate():
    """galloway2019, J.1: Per-img is clipped to [-1, 1], that is, behind its first layer."""
    model, images = per_image(), torch.rand(6, 1, 3, 3)
    ball = Linf(0.1, (-1.0, 1.0))
    options = {"steps": 40, "confidence": 0.99, "threat": ball}
    labels = torch.arange(6) % 3
    answer = diagnosis.fooling_images(model, images, labels, space="normalized", **options)
    plain = diagnosis.fooling_images(model[1:], images, labels, **options)
    assert answer.numbers == plain.numbers  # the same as without the layer
    rescaled = diagnosis.fooling_images(model, images, labels, **options)
    assert answer.numbers["final margin"] != pytest.approx(
        rescaled.numbers["final margin"], abs=1e-3
    )
    for target, shown in enumerate(answer.panels[0].pictures):
        assert tensor(shown).abs().max() <= 1
        reached = margin(model[1:], tensor(shown), target)
        assert shown.label == f"{target} ({reached:.0%})"


def test_the_final_margin_is_after_all_steps():
    model, images = linear(), torch.rand(4, 1, 3, 3)
    labels = torch.arange(4) % 3
    options = {"steps": 30, "step_size": 0.05}
    early = diagnosis.fooling_images(model, images, labels, confidence=0.2, **options)
    late = diagnosis.fooling_images(model, images, labels, confidence=0.9999, **options)
    assert early.numbers["mean steps"] < 30 == late.numbers["mean steps"]
    assert early.numbers["final margin"] == late.numbers["mean margin"]


def test_distances_in_normalized_space_are_in_pixels():
    model = per_image()
    images, labels = torch.rand(3, 1, 3, 3) * 0.5, torch.arange(3)
    ball = Linf(0.1, (-3.0, 3.0))
    options = {"steps": 1, "step_size": 0.1, "confidence": 0.9999, "threat": ball}
    answer = diagnosis.source_target(model, images, labels, space="normalized", **options)
    deviations = images.flatten(1).std(1, correction=0)  # by which the layer divides
    scale = deviations.double().mean()  # each pair took one step of 0.1
    assert answer.numbers["mean L2 distance"] == pytest.approx(0.1 * float(scale), rel=1e-4)
    with pytest.raises(ValueError, match="models that standardize first"):
        diagnosis.source_target(linear(), images, labels, space="normalized")
