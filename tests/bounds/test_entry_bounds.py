"""Backward bounds by patches equal those by whole maps, and faults in them are caught."""

from unittest.mock import patch

import pytest
import torch
from nets import settled
from torch import nn

from advnorm.bounds import entry_bounds, intermediate, margin_bounds, patches, rounding
from advnorm.bounds.backward import Backward
from advnorm.bounds.linear_forms import LinearForms
from advnorm.bounds.receptive_field import ReceptiveField
from advnorm.threat import L2, Linf

THREATS = [Linf(0.03), L2(0.15)]
SHAPE = (2, 13, 13)


class Block(nn.Module):
    """A residual block; the norm behind the sum cannot be folded."""

    def __init__(self, maps, out, *, stride=1, groups=1, skip=None):
        super().__init__()
        self.first = nn.Conv2d(maps, out, 3, stride, 1, groups=groups, bias=False)
        self.norm, self.last = nn.BatchNorm2d(out), nn.Conv2d(out, out, 3, padding=1)
        self.skip, self.end = skip or nn.Conv2d(maps, out, 1, stride), nn.BatchNorm2d(out)

    def forward(self, x):
        branch = self.last(torch.relu(self.norm(self.first(x))))
        return torch.relu(self.end(sum([branch, self.skip(x)])))


BLOCKS = {
    "identity": lambda: [Block(4, 4, skip=nn.Identity())],
    "strided": lambda: [Block(4, 4, stride=2, groups=2), Block(4, 3)],
    "average": lambda: [Block(4, 4, stride=2, skip=nn.AvgPool2d(3, 2, 1))],
    "average outside": lambda: [nn.AvgPool2d((2, 3), (2, 1), (1, 0)), Block(4, 4)],
    "max": lambda: [Block(4, 4, stride=2, skip=nn.MaxPool2d(3, 2, 1))],
    "max outside": lambda: [nn.MaxPool2d((2, 3), 1, (1, 0), (2, 1)), Block(4, 4)],
    "two in a row": lambda: [
        nn.Conv2d(4, 4, 2, 1, 1),
        nn.BatchNorm2d(4),
        Block(4, 4, stride=2),
    ],
    "leaky": lambda: [nn.Conv2d(4, 4, 2), nn.LeakyReLU(0.1), Block(4, 4)],
    "tanh": lambda: [nn.Conv2d(4, 4, 2), nn.Tanh(), Block(4, 4, stride=2)],
    "whole": lambda: [Block(4, 4), nn.ZeroPad2d(1), Block(4, 4)],
    "differing strides": lambda: [Block(4, 4, stride=2, skip=nn.Conv2d(4, 4, 7))],
}


def network(kind, dtype=torch.float64, seed=1):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(2, 4, 3, 1, 1), nn.ReLU(), *BLOCKS[kind]()]
    layers += [nn.Conv2d(layers[-1].last.out_channels, 4, 3, dilation=2), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))
    model(torch.rand(2, *SHAPE))
    return settled(model).to(dtype)


def task(dtype=torch.float64, count=3):
    torch.manual_seed(1)
    return torch.rand(count, *SHAPE, dtype=dtype), torch.arange(count) % 3


def whole_maps():
    """Bound all entries by whole maps, without patches."""
    return patch.object(intermediate, "_by_entries", intermediate._by_rows)


def difference(model, images, labels, threat):
    """Return the largest difference of margins by patches and by whole maps."""
    with torch.no_grad():
        by_patches = margin_bounds(model, images, labels, threat)
        with whole_maps():
            by_maps = margin_bounds(model, images, labels, threat)
    return float((by_patches - by_maps).abs().max())


@pytest.mark.parametrize("kind", BLOCKS)
def test_patches_give_the_margins_of_whole_maps(kind):
    for dtype, most in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        for threat in THREATS:
            assert difference(network(kind, dtype), *task(dtype, 2), threat) < most


@pytest.mark.parametrize("kind", BLOCKS)
def test_no_point_of_the_ball_is_below_the_margins(kind):
    model, (images, labels) = network(kind), task(count=2)
    with torch.no_grad():
        for threat in THREATS:
            margins = margin_bounds(model, images, labels, threat)
            for _ in range(30):
                step = threat.direction(torch.randn_like(images))
                logits = model(threat.project(images + threat.eps * step, images))
                attained = logits.gather(1, labels[:, None]) - logits
                assert (attained >= margins - 1e-12).all()


def test_an_image_has_the_margins_that_it_has_alone():
    model, (images, labels) = network("strided"), task()
    together = margin_bounds(model, images, labels, THREATS[0])
    for i in range(len(images)):
        alone = margin_bounds(model, images[i : i + 1], labels[i : i + 1], THREATS[0])
        torch.testing.assert_close(alone[0], together[i])


def test_patches_are_differentiable_in_the_weights():
    model, (images, labels) = network("strided"), task(count=1)
    grads = []
    for context in (torch.enable_grad(), whole_maps()):
        with context:
            margin_bounds(model, images, labels, THREATS[0]).sum().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
        model.zero_grad()
    torch.testing.assert_close(grads[0], grads[1])


# --- planted faults -------------------------------------------------------------------


def shifted_sum(true):
    """Align the branches of a sum with a wrong padding."""
    return lambda self, a, wide: true(self, a, wide).roll(int(self != wide), -1)


def stride_forgotten(true):
    return lambda self, window: true(self, window)._replace(stride=self.stride)


def padding_forgotten(true):
    return lambda self, window: true(self, window._replace(padding=(0, 0)))


def edges_kept(true):
    return lambda self, a, size, outputs: a


def bias_forgotten(true):
    return lambda kernel, *given: true(kernel._replace(bias=None), *given)


def lines_swapped(true):
    def wrong(lines, field, outputs):
        low, low_bias, high, high_bias = true(lines, field, outputs)
        return patches.Lines(high, high_bias, low, low_bias.expand_as(high))

    return wrong


def rounding_forgotten(true):
    return lambda self, index, a, here: 0.0


def first_sample_for_all(true):
    return lambda self, index: true(self, 0)


def branch_forgotten_in_a_check(true):
    """Take a sign for sure without what waits at other nodes: a stale mask."""

    def wrong(self):
        others, is_end = self.waiting, len(self.waiting) == 1
        last = max(others)
        self.waiting = {last: others[last]}
        lower = true(self)
        self.waiting = others
        return lower if is_end else lower + 1

    return wrong


def entries_not_kept_alike(true):
    def wrong(self, kept):
        before = self.outputs
        true(self, kept)
        self.outputs = type(before)(*(part[: len(kept)] for part in before))

    return wrong


def pasted_elsewhere(true):
    return lambda self, a, outputs, size: true(self, a, outputs, size).roll(1, -2)


def picked_entry_moved(true):
    return lambda picked, window, size: true(picked, window, size).clamp(max=0)


def average_of_fewer(true):
    def wrong(layer, *given):
        kernel = true(layer, *given)
        factor = 1.0 if isinstance(layer, nn.Conv2d) else 1.2
        return kernel._replace(weight=kernel.weight * factor)

    return wrong


def negatives_not_negated(true):
    return lambda rows, *given: true(
        LinearForms(rows.coefficients, rows.bias.abs()), *given
    )


FAULTS = [
    (ReceptiveField, "widened", shifted_sum, "strided"),
    (ReceptiveField, "before", stride_forgotten, "strided"),
    (ReceptiveField, "before", padding_forgotten, "strided"),
    (ReceptiveField, "inside", edges_kept, "two in a row"),
    (ReceptiveField, "pasted", pasted_elsewhere, "strided"),
    (patches, "through", bias_forgotten, "strided"),
    (patches, "cut_lines", lines_swapped, "strided"),
    (patches, "entrywise", negatives_not_negated, "strided"),
    (patches, "_places", picked_entry_moved, "max"),
    (patches, "kernel_of", average_of_fewer, "average"),
    (entry_bounds._Walk, "_error", rounding_forgotten, "strided"),
    (entry_bounds._Walk, "concretized", branch_forgotten_in_a_check, "strided"),
    (entry_bounds._Walk, "keep", entries_not_kept_alike, "strided"),
    (Backward, "of_sample", first_sample_for_all, "strided"),
]


def is_caught(kind):
    """Tell whether patches and whole maps differ, with checks or with much rounding."""
    model, (images, labels) = network(kind), task(count=2)
    if not difference(model, images, labels, THREATS[0]) < 1e-10:
        return True
    no_checks = patch.object(intermediate, "_may_drop", lambda graph: False)
    with patch.object(rounding, "UNITS", 2.0**30), no_checks:
        return not difference(model, images, labels, THREATS[0]) < 1e-10


def test_the_networks_of_the_faults_are_the_same_without_them():
    assert not any(is_caught(kind) for kind in {fault[-1] for fault in FAULTS})


@pytest.mark.parametrize(
    "owner, name, fault, kind", FAULTS, ids=[fault[2].__name__ for fault in FAULTS]
)
def test_a_fault_in_patches_is_caught(owner, name, fault, kind, monkeypatch):
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    assert is_caught(kind)
