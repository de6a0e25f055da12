"""Gradient rules against a plain Algorithm 1, and that nothing else changes."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from functools import partial
from threading import Barrier

import pytest
import torch
from algorithm1 import algorithm1, batch, network
from torch import nn
from torch.nn import functional as F

from advnorm import norms
from advnorm.gradients import (
    GRADIENTS,
    BatchObjective,
    apart,
    apart_sam,
    check_options,
    plain,
    sam,
)
from advnorm.objectives import CERTIFIED, OBJECTIVES, Adversary

SETTINGS = {
    "plain": {},
    "sam": {"rho": 0.1},
    "apart": {"eps": 0.2, "groups": 2},
    "apart_sam": {"eps": 0.2, "rho": 0.1, "groups": 2},
}


def gradient(rule, problem, **settings):
    """Return the gradient of a rule, parameter by parameter."""
    problem.model.zero_grad()
    rule(problem, **settings)
    return [p.grad.clone() for p in problem.model.parameters()]


def same(one, other, *, atol=1e-12):
    return all(
        torch.allclose(a, b, rtol=0, atol=atol) for a, b in zip(one, other, strict=True)
    )


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.3])
@pytest.mark.parametrize(
    ("m", "n", "groups"), [(12, 12, 1), (12, 12, 3), (12, 8, 1), (12, 8, 4), (12, 2, 1)]
)
def test_apart_is_algorithm_1(m, n, groups, rho, detached):
    model, (images, labels) = network(), batch(m)
    settings = {"eps": 0.2, "samples": n, "groups": groups, "detached": detached}
    problem = BatchObjective(model, images, labels)
    gradients = (
        gradient(apart_sam, problem, **settings, rho=rho)
        if rho
        else gradient(apart, problem, **settings)
    )
    expected = algorithm1(
        model,
        images,
        labels,
        eps=0.2,
        n_second=n,
        groups=groups,
        rho=rho,
        detached=detached,
    )
    assert same(gradients, expected, atol=1e-9)
    assert not same(gradients, gradient(plain, problem), atol=1e-3)  # the rule matters


@pytest.mark.parametrize(
    ("norm2d", "norm1d"),
    [(norms.BatchNorm, norms.BatchNorm), (norms.MixtureNorm, norms.MixtureNorm)],
)
def test_other_norms_of_one_domain_give_the_same_gradient(norm2d, norm1d):
    model, (images, labels) = network(), batch(12)
    name = "batch" if norm2d is norms.BatchNorm else "mixture"
    other = norms.convert(model, name)
    expected = gradient(apart, BatchObjective(model, images, labels), eps=0.2, groups=3)
    problem = BatchObjective(other, images, labels)
    other.zero_grad()
    apart(problem, eps=0.2, groups=3)
    gradients = [p.grad for p in other.parameters() if p.grad is not None]
    assert same(sorted(gradients, key=size), sorted(expected, key=size))


def size(tensor):
    return (tensor.numel(), tensor.sum().item())


def test_apart_of_eps_0_and_one_group_is_plain():
    model, (images, labels) = network(), batch(12)
    problem = BatchObjective(model, images, labels)
    assert same(gradient(apart, problem, eps=0.0), gradient(plain, problem))


def test_sam_of_rho_0_is_plain_and_apart_sam_then_is_apart():
    model, (images, labels) = network(), batch(12)
    problem = BatchObjective(model, images, labels)
    assert same(gradient(sam, problem, rho=0.0), gradient(plain, problem))
    assert same(
        gradient(apart_sam, problem, rho=0.0, eps=0.1), gradient(apart, problem, eps=0.1)
    )


def test_sam_is_the_gradient_at_weights_moved_by_rho_along_the_gradient():
    model, (images, labels) = network(), batch(12)
    gradients = gradient(sam, BatchObjective(model, images, labels), rho=0.3)
    moved = deepcopy(model)
    here = torch.autograd.grad(
        F.cross_entropy(model(images), labels), list(model.parameters())
    )
    length = torch.cat([g.flatten() for g in here]).norm()
    with torch.no_grad():
        for p, g in zip(moved.parameters(), here, strict=True):
            p += 0.3 * g / length
    loss = F.cross_entropy(moved(images), labels)
    assert same(gradients, torch.autograd.grad(loss, list(moved.parameters())))


@pytest.mark.parametrize("rule", SETTINGS)
@pytest.mark.parametrize("kind", [nn.BatchNorm2d, norms.BatchNorm])
def test_a_step_moves_running_statistics_as_one_plain_pass_and_nothing_else(rule, kind):
    one_d = nn.BatchNorm1d if kind is nn.BatchNorm2d else kind
    model, (images, labels) = network(norm2d=kind, norm1d=one_d), batch(12)
    twin, before = deepcopy(model), state(model)
    flags = [vars(layer).keys() for layer in model.modules()]
    GRADIENTS[rule](BatchObjective(model, images, labels), **SETTINGS[rule])
    twin(images)
    after = state(model)
    assert after.keys() == before.keys()
    for name, value in after.items():
        if "running" in name or "tracked" in name:
            assert torch.allclose(value, state(twin)[name], rtol=1e-13, atol=0)
        else:
            assert torch.equal(value, before[name])
    assert [vars(layer).keys() for layer in model.modules()] == flags
    assert all(
        layer.training and layer.track_running_stats for layer in norms.batch_norms(model)
    )


@pytest.mark.parametrize("rule", [name for name in SETTINGS if name != "plain"])
def test_an_error_in_the_second_pass_leaves_the_model_as_it_was(rule):
    model, (images, labels) = network(), batch(12)
    twin, calls = deepcopy(model), []

    def fails(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("planted")
        return OBJECTIVES["standard"](*arguments)

    with pytest.raises(RuntimeError, match="planted"):
        GRADIENTS[rule](BatchObjective(model, images, labels, fails), **SETTINGS[rule])
    assert all("forward" not in vars(layer) for layer in model.modules())
    twin(images)
    with torch.no_grad():
        assert torch.equal(model.eval()(images), twin.eval()(images))


@pytest.mark.parametrize("rule", SETTINGS)
def test_gradients_accumulate(rule):
    model, (images, labels) = network(), batch(24)
    parts = [
        BatchObjective(model, images[rows], labels[rows], scale=0.5) for rows in HALVES
    ]
    each = [gradient(GRADIENTS[rule], part, **SETTINGS[rule]) for part in parts]
    model.zero_grad()
    for part in parts:
        GRADIENTS[rule](part, **SETTINGS[rule])
    gradients = [p.grad for p in model.parameters()]
    assert same(gradients, [a + b for a, b in zip(*each, strict=True)])


HALVES = (slice(0, 12), slice(12, 24))


@pytest.mark.parametrize("rule", SETTINGS)
def test_the_scale_of_half_precision_scales_the_gradient_alone(rule):
    model, (images, labels) = network(), batch(12)
    problem = BatchObjective(model, images, labels)
    once = gradient(GRADIENTS[rule], problem, **SETTINGS[rule])
    loud = gradient(GRADIENTS[rule], replace(problem, scale=1024.0), **SETTINGS[rule])
    assert same([g / 1024 for g in loud], once)


@pytest.mark.parametrize("rule", SETTINGS)
@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_every_objective_is_attacked_once_a_step(rule, objective):
    model, (images, labels) = network(), batch(12)
    searches = []

    def search(logits_fn, clean, labels, goal):
        searches.append(len(clean))
        assert all("forward" not in vars(layer) for layer in model.modules())
        return clean + 0.1 * torch.sin(100 * clean)

    problem = BatchObjective(
        model, images, labels, OBJECTIVES[objective], Adversary(search)
    )
    gradients = gradient(GRADIENTS[rule], problem, **SETTINGS[rule])
    assert searches == ([] if objective in {"standard", *CERTIFIED} else [12])
    assert all(torch.isfinite(g).all() for g in gradients)
    if rule != "plain":
        assert not same(gradients, gradient(plain, problem), atol=1e-6)


def test_the_second_pass_takes_the_images_of_the_first():
    """With radii of 0 the gradient of an attack that never repeats itself is plain's."""
    model, (images, labels) = network(), batch(12)
    count = iter(range(100))

    def problem(first):
        def search(logits_fn, clean, labels, goal):
            return clean + 0.01 * (first + next(count))

        return BatchObjective(model, images, labels, OBJECTIVES["mixed"], Adversary(search))

    expected = gradient(plain, problem(0))
    for settings in ({"rule": apart, "eps": 0.0}, {"rule": sam, "rho": 0.0}):
        rule = settings.pop("rule")
        count = iter(range(100))
        assert same(gradient(rule, problem(0), **settings), expected)


def test_soft_labels_of_mixup():
    model, (images, labels) = network(), batch(12)
    soft = F.one_hot(labels, 3).double()
    settings = {"eps": 0.2, "samples": 8, "groups": 2}
    hard = gradient(apart, BatchObjective(model, images, labels), **settings)
    assert same(gradient(apart, BatchObjective(model, images, soft), **settings), hard)


def test_a_borrowed_norm_borrows_within_its_group():
    """Each group by itself, borrowed from its own clean rows; eps 0, so h is a mean."""
    model, (images, labels) = network(), batch(8)
    other = norms.convert(model, "borrowed")
    attacked = Adversary(lambda f, clean, labels, goal: clean * 0.9)
    mixed = OBJECTIVES["mixed"]
    whole = gradient(plain, BatchObjective(other, images, labels, mixed, attacked))
    parts = [
        gradient(plain, BatchObjective(other, images[r], labels[r], mixed, attacked))
        for r in (slice(0, 4), slice(4, 8))
    ]
    gradients = gradient(
        apart, BatchObjective(other, images, labels, mixed, attacked), eps=0.0, groups=2
    )
    expected = [w / 2 + (a + b) / 4 for w, a, b in zip(whole, *parts, strict=True)]
    assert same(gradients, expected)


def test_a_shared_layer_has_one_shift():
    """Sequential passes use each layer twice; the statistics gradient is the sum."""
    model, (images, labels) = network(), batch(12)
    adversary = Adversary(lambda f, clean, labels, goal: clean * 0.9)

    def sequential(*arguments):
        return OBJECTIVES["mixed"](*arguments, batching="sequential")

    with norms.statistics_gradient(model) as shifts:
        BatchObjective(model, images, labels, sequential, adversary).backward()
    each = []
    for x in (images, images * 0.9):
        with norms.statistics_gradient(model) as own:
            (F.cross_entropy(model(x), labels) / 2).backward()
        each.append([d.grad for shift in own.values() for d in shift])
    gradients = [d.grad for shift in shifts.values() for d in shift]
    assert same(gradients, [a + b for a, b in zip(*each, strict=True)])


class Pair:
    """Two ranks in threads of one process: their ``all_reduce`` waits for each other."""

    def __init__(self):
        self.barrier, self.boxes = Barrier(2), [[], []]

    def all_reduce(self, me, tensors):
        tensors = list(tensors)
        self.boxes[me] = [t.clone() for t in tensors]
        self.barrier.wait(20)
        sums = [a + b for a, b in zip(*self.boxes, strict=True)]
        self.barrier.wait(20)
        for tensor, total in zip(tensors, sums, strict=True):
            tensor.copy_(total)


def frozen(net, clean, labels, adversary):
    """Minimize clean cross-entropy, with norms that do not look at the batch."""
    with norms.freeze_statistics(net):
        return OBJECTIVES["standard"](net, clean, labels, adversary)


@pytest.mark.parametrize("rule", SETTINGS)
def test_ranks_add_up_to_the_whole(rule):
    model, (images, labels) = network(), batch(12)
    for layer in norms.batch_norms(model):
        layer.running_mean.uniform_(0.2, 0.6)
    settings = {**SETTINGS[rule], **({"groups": 1} if "apart" in rule else {})}
    run = partial(gradient, GRADIENTS[rule], **settings)
    expected, pair = run(BatchObjective(model, images, labels, frozen)), Pair()
    problems = [
        BatchObjective(
            deepcopy(model),
            images[me::2],
            labels[me::2],
            frozen,
            global_rows=12,
            all_reduce=partial(pair.all_reduce, me),
        )
        for me in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        for gradients in pool.map(run, problems):
            assert same(gradients, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rule", ["sam", "apart", "apart_sam"])
def test_autocast_is_near_single_precision(rule, dtype):
    model, (images, labels) = network(dtype=torch.float32), batch(12, dtype=torch.float32)
    problem = BatchObjective(model, images, labels)
    expected = gradient(GRADIENTS[rule], problem, **SETTINGS[rule])
    with torch.autocast("cpu", dtype=dtype):
        gradients = gradient(GRADIENTS[rule], problem, **SETTINGS[rule])
    one, other = (torch.cat([g.flatten() for g in x]) for x in (gradients, expected))
    assert torch.cosine_similarity(one, other, dim=0) > (
        0.999 if dtype == torch.float16 else 0.95
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"eps": -0.1}, "eps is a radius"),
        ({"rho": -1.0}, "rho is a radius"),
        ({"rho": float("nan")}, "rho is a radius"),
        ({"samples": 13, "batch_size": 12}, "13 samples of a batch of 12"),
        ({"samples": 0, "batch_size": 12}, "0 samples"),
        ({"groups": 5, "batch_size": 12}, "5 groups do not divide the 12 samples"),
        ({"groups": 5, "samples": 8, "batch_size": 12}, "5 groups do not divide the 8"),
        ({"groups": 0, "batch_size": 12}, "0 groups"),
        ({"groups": 12, "batch_size": 12}, "groups of one sample"),
    ],
)
def test_invalid_options_are_refused_in_a_sentence(settings, words):
    with pytest.raises(ValueError, match=words):
        check_options(**settings)


def test_a_model_without_batch_norm_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(49, 3)).double()
    with pytest.raises(ValueError, match="no batch norm"):
        apart(BatchObjective(model, *batch(4)))


def test_an_objective_that_misses_the_batch_norms_is_refused():
    model, (images, labels) = network(), batch(12)

    def around(net, clean, labels, adversary):
        logits = net[10](net[7](clean.flatten(1)[:, :24]))
        loss = F.cross_entropy(logits, labels)
        return OBJECTIVES["standard"](net, clean, labels, adversary)._replace(total=loss)

    with pytest.raises(ValueError, match="does not pass through"):
        apart(BatchObjective(model, images, labels, around))
