"""The front door takes data as people have it, with the verdicts of plain tensors."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import advnorm
from advnorm.evaluation import perturbed_statistics, transfer
from advnorm.threat import L2, Linf


@pytest.fixture
def problem():
    """Return a network, images, and the labels that it gives most of them."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(27, 4)).eval()
    images = torch.rand(20, 3, 3, 3)
    labels = model(images).argmax(1)
    labels[:3] = (labels[:3] + 1) % 4
    return model, images, labels


@pytest.fixture
def loader(problem):
    return DataLoader(TensorDataset(*problem[1:]), batch_size=6)


def test_a_loader_and_a_data_set_have_the_verdicts_of_their_tensors(problem, loader):
    expected = advnorm.evaluate(*problem, Linf(0.1)).verdicts
    for data in (loader, loader.dataset, list(loader.dataset)):
        result = advnorm.evaluate(problem[0], data, threat=Linf(0.1))
        assert result.verdicts == expected


def test_every_function_of_the_front_door_takes_a_loader(problem, loader):
    model, images, labels = problem
    checks = ["randomized", "stateful"]
    record = advnorm.audit(model, loader, threat=Linf(0.1), checks=checks)
    plain = advnorm.audit(model, images, labels, Linf(0.1), checks=checks)
    assert record.checks == plain.checks and record.n == 20
    proofs = advnorm.certify(model, loader, threat=Linf(0.1))
    expected = advnorm.certify(model, images, labels, Linf(0.1))
    assert torch.equal(proofs.margins, expected.margins)
    both = {"a": model}
    matrix = transfer(both, both, loader, None, Linf(0.1), attack="fgsm")
    expected = transfer(both, both, images, labels, Linf(0.1), attack="fgsm")
    assert matrix.accuracies == expected.accuracies
    (answer,) = advnorm.diagnose(model, loader, None, Linf(0.1), ["gradient_norm"])
    (expected,) = advnorm.diagnose(model, images, labels, Linf(0.1), ["gradient_norm"])
    assert answer.model_dump(exclude={"seconds"}) == expected.model_dump(
        exclude={"seconds"}
    )


def test_perturbed_statistics_take_a_loader(loader, problem):
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(27), nn.Linear(27, 4)).eval()
    assert perturbed_statistics(model, loader, radii=[0.1]) == perturbed_statistics(
        model, *problem[1:], radii=[0.1]
    )


def test_without_an_adversary_no_threat_is_needed(problem):
    names = ["clean", "noise-0.1", "corruption-fog-1"]
    result = advnorm.evaluate(*problem, conditions=names)
    expected = advnorm.evaluate(*problem, Linf(0.1), conditions=names)
    assert result.verdicts == expected.verdicts
    assert [r.accuracy.n for r in result.results] == [20] * 3


@pytest.mark.parametrize("name", ["fgsm", "strong", "crown"])
def test_a_condition_that_needs_a_threat_says_so(problem, name):
    with pytest.raises(ValueError, match=f"{name} needs a threat: pass one, such as"):
        advnorm.evaluate(*problem, conditions=["clean", name])


@pytest.mark.parametrize("call", [advnorm.audit, advnorm.certify])
def test_a_missing_threat_is_one_sentence(problem, call):
    with pytest.raises(ValueError, match="a threat is missing: pass one, such as"):
        call(*problem)


@pytest.mark.parametrize("call", [advnorm.evaluate, advnorm.audit])
@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.1)], ids=str)
def test_a_threat_in_the_place_of_labels_says_how_to_name_it(problem, loader, call, threat):
    with pytest.raises(ValueError, match=r"third argument is labels, .*threat=L"):
        call(problem[0], loader, threat)


@pytest.mark.parametrize("call", [advnorm.evaluate, advnorm.audit])
def test_bytes_and_channels_that_come_last_are_refused_with_the_way_out(call):
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 4)).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    labels, way_out = [0] * 9, r"images.permute\(0, 3, 1, 2\)"
    with pytest.raises(ValueError, match=f"divide by 255, and put .*{way_out}"):
        call(model, pixels, labels, Linf(0.1))
    with pytest.raises(
        ValueError, match=rf"not take images of shape \(8, 8, 3\).*{way_out}"
    ):
        call(model, pixels / 255, labels, Linf(0.1))
    with pytest.raises(ValueError, match=r"divide by 255$"):
        call(model, pixels.transpose(0, 3, 1, 2), labels, Linf(0.1))
    with pytest.raises(ValueError, match=r"not take images of shape \(3, 9, 9\)"):
        call(model, np.zeros((9, 3, 9, 9)), labels, Linf(0.1))
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    fine = {"checks": ["randomized"]} if call is advnorm.audit else {}
    assert call(model, images, labels, Linf(0.1), **fine)


def test_an_error_of_the_model_itself_stays_as_it_is(problem):
    def broken(images):
        raise RuntimeError("the license has run out")

    with pytest.raises(RuntimeError, match="the license has run out"):
        advnorm.evaluate(broken, *problem[1:], Linf(0.1))


def test_a_split_of_a_named_data_set_is_taken_as_it_is():
    split = advnorm.data.load("digits").test.take(torch.arange(12))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    images, labels = split.images.float() / 255, split.labels
    expected = advnorm.evaluate(model, images, labels, Linf(0.1)).verdicts
    assert advnorm.evaluate(model, split, threat=Linf(0.1)).verdicts == expected
