"""No question changes the model or the caller's random state."""

from contextlib import suppress

import pytest
import torch
from torch import nn

from advnorm import norms
from advnorm.diagnosis import QUESTIONS
from advnorm.diagnosis.common import frozen_eval
from advnorm.models import build
from advnorm.records import Diagnosis
from advnorm.threat import Linf

SHAPE = (1, 6, 6)
QUICK = {
    "statistics_gap": {"batch_size": 10},
    "hessian": {"steps": 3},
    "distances": {"steps": 2, "suite": "quick"},
    "pca": {"steps": 2, "suite": "quick"},
    "smoothness": {"points": 3},
    "surface": {"points": 5},
    "toy": {"seeds": 2, "samples": (20,), "epochs": 2},
    "branches": {"attack": "pgd-2"},
    "trainable_depth": {"depths": (2,), "batch_sizes": (4,), "width": 4, "epochs": 1},
    "input_dimension": {"factors": (1, 2), "network": "mlp+bn", "epochs": 1},
    "fooling_images": {"steps": 3},
    "source_target": {"steps": 3},
    "top_k": {"k": 2, "steps": 2},
    "minimal_examples": {"steps": 5, "count": 2},
    "tuned_norms": {
        "tuned_on": 24,
        "batch_size": 12,
        "attack": "pgd-1",
        "test_attack": "pgd-2",
        "training_samples": lambda count: (
            torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1)),
            torch.arange(count) % 3,
        ),
    },
}


def subject(norm):
    """Return a network with a gradient, a frozen parameter, modes mixed, and dropout."""
    norm_of = norms.NORMS[norm]()
    name, options = ("linear", {}) if norm == "batch" else ("mlp", {"width": 8, "depth": 2})
    model = build(name, shape=SHAPE, classes=3, norm=norm_of, options=options)
    last = list(model.modules())[-1]
    assert isinstance(last, nn.Linear)
    last.weight.grad = torch.ones_like(last.weight)
    last.bias.requires_grad_(False)
    model.train()
    next(iter(model.children())).eval()
    return model.append(nn.Dropout(0.5))


def snapshot(model):
    """Return all that a question could change."""
    return {
        "state": {key: value.clone() for key, value in model.state_dict().items()},
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "identity": [id(p) for p in model.parameters()],
        "requires": [p.requires_grad for p in model.parameters()],
        "training": [layer.training for layer in model.modules()],
        "track": [layer.track_running_stats for layer in norms.batch_norms(model)],
        "eps": [layer.eps for layer in norms.batch_norms(model)],
        "routes": [vars(layer).get("route") for layer in norms.routed_layers(model)],
        "fused": [layer.fused for layer in norms.routed_layers(model)],
        "hooks": [
            len(layer._forward_hooks) + len(layer._forward_pre_hooks)
            for layer in model.modules()
        ],
        "random": torch.random.get_rng_state(),
    }


def same(a, b):
    """Compare snapshots entry by entry."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("norm", ["mixture", "batch"])
@pytest.mark.parametrize("question", list(QUESTIONS))
def test_it_leaves_everything_as_it_was(question, norm):
    model = subject(norm)
    generator = torch.Generator().manual_seed(3)
    images = torch.rand(24, *SHAPE, generator=generator)
    labels = torch.arange(24) % 3
    with norms.route(model, domain="clean"):
        before, kept = snapshot(model), (images.clone(), labels.clone())
        answer = QUESTIONS[question](
            model, images, labels, threat=Linf(0.1), **QUICK.get(question, {})
        )
        after = snapshot(model)
    for key in before:
        assert same(before[key], after[key]), key
    assert same(list(kept), [images, labels])
    assert answer.question == question and answer.panels and answer.reading
    assert Diagnosis.model_validate_json(answer.model_dump_json()) == answer


@pytest.mark.parametrize("question", list(QUESTIONS))
def test_it_runs_in_double_precision_and_without_gradients_around(question):
    model = subject("batch").double()
    images, labels = torch.rand(24, *SHAPE).double(), torch.arange(24) % 3
    before, options = snapshot(model), QUICK.get(question, {})
    with torch.no_grad():
        QUESTIONS[question](model, images, labels, threat=Linf(0.1), **options)
        assert not torch.is_grad_enabled()
    assert same(before, snapshot(model))


class Stopped(Exception):
    pass


class Impatient:
    """Progress that stops the question at its first or second word."""

    def __init__(self, words):
        self.left = words

    def update(self, done, total, text):
        if not self.left:
            raise Stopped
        self.left -= 1


@pytest.mark.parametrize("words", [0, 1])
@pytest.mark.parametrize("question", sorted(set(QUESTIONS) - {"moments", "depth_pca"}))
def test_one_that_is_stopped_leaves_everything_as_it_was_too(question, words):
    model = subject("mixture")
    images, labels = torch.rand(24, *SHAPE), torch.arange(24) % 3
    before, options = snapshot(model), QUICK.get(question, {})
    with suppress(Stopped):
        QUESTIONS[question](
            model, images, labels, threat=Linf(0.1), progress=Impatient(words), **options
        )
    after = snapshot(model)
    for key in before:
        assert same(before[key], after[key]), key


class RecordingProgress:
    """Progress that remembers how far a question said that it is."""

    def __init__(self):
        self.shares = []

    def update(self, done, total, text):
        assert 0 <= done <= total and text
        self.shares.append(done / total)


ONE_PASS = {
    "moments",
    "depth_pca",
    "weights",
    "dead",
    "nearest_centroid",
}  # a part at a time, 256 or more
SLOWER = {"gradient_norm": {"loss": "adversarial"}, "toy": {"samples": (20, 30)}}


@pytest.mark.parametrize("question", sorted(set(QUESTIONS) - ONE_PASS))
def test_what_takes_long_says_how_far_it_is_before_the_end(question):
    torch.manual_seed(0)
    images, labels, recorded = (
        torch.rand(40, *SHAPE),
        torch.arange(40) % 3,
        RecordingProgress(),
    )
    model = build("linear", shape=SHAPE, classes=3, norm=norms.NORMS["batch"](), options={})
    options = {**QUICK.get(question, {}), **SLOWER.get(question, {})}
    if question == "trainable_depth":
        options["depths"] = (1, 2)
    QUESTIONS[question](
        model, images, labels, threat=Linf(0.1), progress=recorded, **options
    )
    assert any(0 < share < 1 for share in recorded.shares), recorded.shares


def test_a_model_at_rest_is_evaluated_and_frozen():
    model = subject("mixture")
    before = snapshot(model)
    with frozen_eval(model):
        assert not any(layer.training for layer in model.modules())
        assert not any(p.requires_grad for p in model.parameters())
    assert same(before, snapshot(model))
    with pytest.raises(ValueError, match="batch or running"), frozen_eval(model, "train"):
        pass


def test_a_change_would_be_seen():
    model = subject("mixture")
    before = snapshot(model)
    assert same(before, snapshot(model))
    model.eval()
    assert not same(before["training"], snapshot(model)["training"])
    torch.rand(1)
    assert not same(before["random"], snapshot(model)["random"])
    norms.batch_norms(model)[0].running_mean += 1
    assert not same(before["state"], snapshot(model)["state"])
