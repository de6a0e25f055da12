"""Models and samples as people have them: they work, or one sentence says what to do."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from advnorm.evaluation import audit, evaluate, transfer
from advnorm.evaluation.checks.auditor import ALL_CHECKS
from advnorm.threat import L2, Linf


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


@pytest.fixture
def images():
    return torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def numbers(evaluation):
    return [(r.key, r.accuracy.correct) for r in evaluation.results]


class Output(NamedTuple):
    logits: torch.Tensor
    loss: None = None


@dataclass
class OutputRecord:
    """As the models of transformers return it: the loss comes first."""

    loss: None
    logits: torch.Tensor


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: lambda x: model(x),
        lambda model: lambda x: {"logits": model(x)},
        lambda model: lambda x: Output(model(x)),
        lambda model: lambda x: OutputRecord(loss=None, logits=model(x)),
        lambda model: lambda x: (model(x), x),
        lambda model: lambda x: [model(x)],
        lambda model: partial(torch.func.functional_call, model, {}),
    ],
    ids=["function", "dict", "named tuple", "object", "tuple", "list", "partial"],
)
def test_functions_and_outputs_with_logits_are_evaluated_as_the_model_is(
    wrap, model, images
):
    labels = model(images).argmax(1)
    plain = numbers(evaluate(model, images, labels, Linf(0.1)))
    assert numbers(evaluate(wrap(model), images, labels, Linf(0.1))) == plain
    assert audit(wrap(model), images, labels, Linf(0.1), checks=["randomized"]).n == 20


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (lambda y: ("a", y), "tuple"),
        (lambda y: (), "tuple"),
        (lambda y: {"a": y}, "dict"),
        (lambda y: None, "NoneType"),
    ],
)
def test_an_output_without_logits_is_one_sentence(output, kind, model, images):
    labels = model(images).argmax(1)
    with pytest.raises(ValueError, match=rf"returns a {kind} without logits.*lambda"):
        evaluate(lambda x: output(model(x)), images, labels, Linf(0.1))


@pytest.mark.parametrize("what", [3, "resnet", None])
def test_what_is_no_model_is_one_sentence(what, images):
    with pytest.raises(ValueError, match=r"the model is a \w+: give a torch.nn.Module"):
        evaluate(what, images, torch.zeros(20).long(), Linf(0.1))


def test_a_class_in_the_place_of_a_model_is_one_sentence(images):
    with pytest.raises(ValueError, match="the class Linear: make one"):
        evaluate(nn.Linear, images, torch.zeros(20).long(), Linf(0.1))


@pytest.mark.parametrize(
    "kind",
    [
        list,
        np.asarray,
        lambda y: np.asarray(y).astype(np.uint16),
        lambda y: y.to(torch.uint16),
        lambda y: y.to(torch.int8),
    ],
    ids=["list", "numpy", "numpy uint16", "uint16", "int8"],
)
def test_labels_of_any_integers_and_images_of_numpy_work(kind, model, images):
    labels = model(images).argmax(1)
    plain = numbers(evaluate(model, images, labels, Linf(0.1)))
    labels_of_kind = kind(labels.tolist() if kind is list else labels)
    assert numbers(evaluate(model, images.numpy(), labels_of_kind, Linf(0.1))) == plain
    assert (
        audit(model, images.numpy(), labels_of_kind, Linf(0.1), checks=["randomized"]).n
        == 20
    )
    matrix = transfer({"a": model}, {"a": model}, images.numpy(), labels_of_kind, Linf(0.1))
    assert matrix.clean[0].n == 20


@pytest.mark.parametrize("asked", [evaluate, audit])
def test_labels_that_are_no_classes_are_refused(asked, model, images):
    for labels in (torch.ones(20, dtype=torch.bool), torch.ones(20), np.ones(20, bool)):
        with pytest.raises(ValueError, match="labels are class indices"):
            asked(model, images, labels, Linf(0.1))
    with pytest.raises(ValueError, match="20 images but 5 labels"):
        asked(model, images, torch.zeros(5).long(), Linf(0.1))
    with pytest.raises(ValueError, match=r"labels are a tensor, .* not dict"):
        asked(model, images, {"a": 1}, Linf(0.1))


@pytest.mark.parametrize("kind", [Linf, L2])
@pytest.mark.parametrize("eps", [True, torch.tensor(True), np.bool_(True)])
def test_true_is_no_radius(kind, eps):
    with pytest.raises(ValueError, match="eps is a radius"):
        kind(eps)


@pytest.mark.parametrize("kind", [Linf, L2])
@pytest.mark.parametrize("eps", [-0.1, torch.nan, torch.inf, "8/255", [], [0.1, 0.2]])
def test_what_is_no_radius_is_refused_by_the_threat(kind, eps):
    with pytest.raises(ValueError, match="eps is a radius"):
        kind(eps)


@pytest.mark.parametrize(
    "bounds",
    [((0, 0, 0), (1, 1, 1)), (torch.zeros(3), torch.ones(3)), 1.0, "01", (0, 0.5, 1)],
)
def test_bounds_are_two_numbers(bounds, model, images):
    with pytest.raises(ValueError, match=r"bounds are two numbers|low < high"):
        evaluate(model, images, torch.zeros(20).long(), Linf(0.1, bounds=bounds))


def test_a_whole_audit_of_a_function_asks_every_check(model, images):
    labels = model(images).argmax(1)
    record = audit(lambda x: model(x), images, labels, Linf(0.1), suite=["apgd_ce-2"])
    assert [check.name for check in record.checks] == list(ALL_CHECKS)
    assert "stateful" not in record.flagged
