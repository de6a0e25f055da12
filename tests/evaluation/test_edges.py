"""The edges of what can be evaluated: radius 0, one sample, none, NaN, train mode."""

import pytest
import torch
from torch import nn

from advnorm import ranks
from advnorm.evaluation import (
    SUITES,
    audit,
    evaluate,
    parse_conditions,
    run_condition,
    transfer,
)
from advnorm.evaluation.perturbed_statistics import Perturbation, perturbed_statistics
from advnorm.threat import L2, THREATS, Linf


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_at_radius_0_the_accuracy_is_the_clean_one_and_nothing_is_attacked(
    five_classes, norm
):
    model, images, labels = five_classes
    passes = []
    model.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    wrong = torch.where(torch.arange(60) < 20, (labels + 1) % 5, labels)
    suites = [name for name in SUITES if name != "radii"]  # which look beyond the radius
    names = ["clean", "pgd-5x3", "pgd-1..10", "pgd-1..10+last", *suites]
    names += ["cw"] if norm == "l2" else []
    evaluation = evaluate(
        model, images, wrong, THREATS[norm](0), conditions=names, batch_size=60
    )
    assert {result.accuracy.correct for result in evaluation.results} == {40}
    assert passes == [False] * (1 + len(names)), "one look, and one pass a cell"
    for result in evaluation.results:
        assert all(a.correct == 40 for a in result.curve.values())
        assert result.threat is None or result.threat.eps == 0


@pytest.mark.parametrize("threat", [Linf(0.0), L2(0.0)])
def test_a_ball_of_radius_0_holds_its_centre_alone(threat):
    clean = torch.rand(3, 4)
    assert torch.equal(threat.project(torch.rand(3, 4), clean), clean)
    assert threat.contains(clean, clean).all()
    assert not threat.contains(clean * 0.9, clean).any()


@pytest.mark.parametrize("attack", ["clean", "noise", "fgsm", "pgd-2", "square-5"])
def test_logits_that_become_nan_after_the_first_samples_are_refused(attack):
    class Damaged(nn.Module):
        def forward(self, x):
            logits = torch.stack([x.sum(1), -x.sum(1)], 1)
            return torch.where(x[:, :1] > 0.9, torch.nan, logits)

    images = torch.full((20, 4), 0.5)
    images[15, 0] = 0.95
    shape = (20, 1, 2, 2) if attack == "square-5" else (20, 4)
    model = nn.Sequential(nn.Flatten(), Damaged())
    with pytest.raises(ValueError, match="NaN or infinite on valid images"):
        evaluate(
            model,
            images.view(shape),
            torch.zeros(20).long(),
            Linf(0.1),
            conditions=[attack],
        )


def test_a_model_that_is_nan_only_under_attack_is_no_robust_model():
    class Trap(nn.Module):
        def forward(self, x):
            logits = torch.stack([x.sum(1), -x.sum(1)], 1)
            return torch.where(x[:, :1] != 0.5, torch.nan, logits)

    images, labels = torch.full((5, 4), 0.5), torch.zeros(5).long()
    with pytest.raises((ValueError, FloatingPointError), match=r"NaN|not finite"):
        evaluate(Trap(), images, labels, Linf(0.1), conditions=["pgd-2"])


def test_a_single_layer_in_train_mode_is_refused_by_name():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    images, labels = torch.rand(5, 4), torch.zeros(5).long()
    settings = {"threat": Linf(0.1), "conditions": ["clean"]}
    assert evaluate(model, images, labels, train_mode="refuse", **settings).results
    model[1].train()
    with pytest.raises(ValueError, match=r"train mode \(layer '1'\)"):
        evaluate(model, images, labels, train_mode="refuse", **settings)
    assert evaluate(model, images, labels, **settings).results and model[1].training


def test_no_batches_are_no_verdicts():
    (condition,) = parse_conditions(["pgd-1..5"], [Linf(0.1)], (0.0, 1.0))
    verdicts = run_condition(nn.Linear(4, 2), [], condition, total=0)
    assert verdicts.accuracy().n == 0
    assert [a.n for a in verdicts.accuracies(condition.counts).values()] == [0, 0, 0]


@pytest.mark.parametrize("name", ["pgd-3", "pgd-1..5", "quick", "apgd_t-3", "fab_t-3"])
def test_one_sample_is_enough(name):
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    image = torch.rand(1, 6)
    label = model.eval()(image).argmax(1)
    (result,) = evaluate(model.train(), image, label, Linf(1e-6), conditions=[name]).results
    assert result.accuracy.n == result.accuracy.correct == 1


@pytest.mark.parametrize(
    ("names", "shape", "words"),
    [
        (["pgd-5", "standard"], (12,), "standard: Square Attack"),
        (
            ["pgd-5", "square-20"],
            (12,),
            "square-20: Square Attack needs images of channels",
        ),
        (["pgd-5", "squarex2"], (12,), "squarex2: Square Attack needs images of channels"),
        (["pgd-5", "strong"], (12,), "strong: Square Attack needs images of channels"),
        (["pgd-5", "cw"], (3, 2, 2), "cw: cw searches l2 balls only, not linf"),
    ],
)
def test_what_cannot_attack_is_refused_before_anything_runs(names, shape, words):
    model, passes = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), []
    model.register_forward_hook(lambda *settings: passes.append(1))
    with pytest.raises(ValueError, match=words):
        evaluate(
            model, torch.rand(4, *shape), torch.arange(4) % 3, Linf(0.1), conditions=names
        )
    assert not passes


def test_a_model_that_changes_its_images_in_place_is_refused():
    class Careless(nn.Linear):
        def forward(self, x):
            return super().forward(x.sub_(0.5).flatten(1))

    with pytest.raises(ValueError, match="in place"):
        evaluate(Careless(12, 3), torch.rand(4, 12), torch.arange(4) % 3, Linf(0.1))


def test_a_group_of_the_caller_does_not_deal_out_the_samples(five_classes, monkeypatch):
    """Each rank may have images of its own, and only one of them may ask."""
    model, images, labels = five_classes
    alone = evaluate(model, images, labels, Linf(0.1), conditions=["clean", "pgd-3"])
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    evaluation = evaluate(model, images, labels, Linf(0.1), conditions=["clean", "pgd-3"])
    assert evaluation.verdicts == alone.verdicts
    assert ranks.size() == 2


def test_an_evaluation_writes_to_nothing_that_has_not_moved():
    """A buffer may share its memory, and a graph may wait for the weights."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    model.register_buffer("mean", torch.tensor([0.5]).expand(4, 4))
    images, labels = torch.rand(6, 1, 4, 4), torch.arange(6) % 3
    loss = model(images).square().sum()
    evaluate(model, images, labels, Linf(0.1), conditions=["pgd-2"])
    loss.backward()
    assert model[1].weight.grad is not None


CALLS = {
    "audit": lambda *samples: audit(
        *samples, Linf(0.1), checks=["dynamic", "zero_gradients", "false_robustness"]
    ).model_copy(update={"seconds": 0.0}),
    "transfer": lambda model, *samples: transfer(
        {"a": model}, {"a": model, "b": model}, *samples, Linf(0.1), attack="pgd-3"
    ).model_copy(update={"seconds": 0.0}),
    "perturbed_statistics": lambda *samples: perturbed_statistics(
        *samples, radii=[0.0, 0.4], what=Perturbation(direction="adversarial")
    ),
}
"""What a model of one's own is given to, beside an evaluation."""


def normalized():
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("integers", [torch.int32, torch.uint8, torch.int64])
def test_a_model_made_in_inference_mode_and_any_labels_do(call, integers):
    model, images, labels = normalized(), torch.rand(24, 1, 2, 2), torch.arange(24) % 3
    expected = CALLS[call](model, images, labels)
    with torch.inference_mode():
        network = normalized()
        network.load_state_dict(model.state_dict())
        assert CALLS[call](network, images, labels.to(integers)) == expected
    assert CALLS[call](network, images, labels.to(integers)) == expected
    assert all(p.is_inference() and p.requires_grad for p in network.parameters())


@pytest.mark.parametrize("call", CALLS)
def test_all_samples_are_judged_in_a_group_of_the_callers_own(call, monkeypatch):
    model, images, labels = normalized(), torch.rand(24, 1, 2, 2), torch.arange(24) % 3
    expected = CALLS[call](model, images, labels)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    assert CALLS[call](model, images, labels) == expected


@pytest.mark.parametrize("call", CALLS)
def test_labels_that_do_not_fit_are_one_sentence(call):
    with pytest.raises(ValueError, match=r"labels reach from 1 to 3, but the model has 3"):
        CALLS[call](normalized(), torch.rand(24, 1, 2, 2), torch.arange(24) % 3 + 1)


class Learning(nn.Module):
    """Takes a step on its own weights before it answers, and moves them."""

    def __init__(self):
        super().__init__()
        self.net = normalized()

    def forward(self, x):
        with torch.enable_grad():
            loss = -self.net(x.detach()).log_softmax(1).amax(1).mean()
            (gradient,) = torch.autograd.grad(loss, self.net[2].weight)
        self.net[2].weight.data.sub_(0.1 * gradient)
        return self.net(x)


def test_a_model_that_learns_in_a_prediction_is_refused_but_can_be_audited():
    model, images, labels = Learning(), torch.rand(24, 1, 2, 2), torch.arange(24) % 3
    before = model.net[2].weight.clone()
    for call in (evaluate, lambda m, *a, **k: transfer({"a": m}, {"a": m}, *a, **k)):
        with pytest.raises(ValueError, match="gradients of its own weights"):
            call(model, images, labels, Linf(0.1))
    record = audit(model, images, labels, Linf(0.1))
    assert "dynamic" in record.flagged and len(record.checks) > 20
    assert torch.equal(model.net[2].weight, before)
    assert all(p.requires_grad for p in model.parameters())
