"""What the forward of a user's own model may do, and what is refused by name."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from advnorm import evaluate
from advnorm.bounds import (
    METHODS,
    certify,
    crown_ibp_margins,
    input_box,
    is_certified,
    margin_bounds,
    trace,
)
from advnorm.threat import L2, Linf

ORDER = ["ibp", "crown-ibp", "crown"]


class ForwardModel(nn.Module):
    """A module whose forward is a function of itself and the images."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.way = forward
        for name, part in parts.items():
            if isinstance(part, Tensor):
                self.register_buffer(name, part)
            else:
                self.add_module(name, part)

    def forward(self, x):
        return self.way(self, x)


def made(forward, *, seed=0, **parts) -> nn.Module:
    torch.manual_seed(seed)
    ready = (Tensor, nn.Module)
    parts = {name: p if isinstance(p, ready) else p() for name, p in parts.items()}
    return ForwardModel(forward, **parts).double().eval()


def linear(inputs, outputs=3):
    return lambda: nn.Linear(inputs, outputs)


# --- one image alone ------------------------------------------------------------------

MIXING = {
    "rows": lambda s, x: s.two(s.one(x.view(-1, 3)).relu().view(-1, 10)),
    "mean": lambda s, x: s.end((x - x.mean(0, keepdim=True)).flatten(1)),
    "first": lambda s, x: s.end((x + x[:1]).flatten(1)),
    "batch": lambda s, x: s.end(torch.cat([x, x], -3)[: len(x)].flatten(1)),
    "mean of all": lambda s, x: s.end(x.flatten(1) + x.mean()),
    "constant": lambda s, x: s.end((x + s.rows).flatten(1)),
    "mean that broadcasts": lambda s, x: s.end((x - x.mean(0)).flatten(1)),
    "one of them": lambda s, x: s.end((x + x[0]).flatten(1)),
    "turned": lambda s, x: s.end(x[[1, 0, 2, 3]].flatten(1)),
    "crossed": lambda s, x: s.end(x.reshape(-1, x.size(0)).transpose(0, 1)),
    "their number": lambda s, x: s.end(x.flatten(1) / x.size(0)),
    "noise": lambda s, x: s.end(x.flatten(1) + torch.randn(6)),
    "noise in a buffer": lambda s, x: s.end(x.flatten(1) + s.noise.normal_()),
}
PARTS = {
    "one": linear(3, 5),
    "two": linear(10),
    "end": linear(6),
    "rows": torch.rand(4, 2, 3),
    "noise": torch.rand(6),
}


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_samples_is_refused_whatever_their_number(name, count):
    model = made(MIXING[name], **PARTS)
    images, labels = torch.rand(count, 2, 3).double(), torch.zeros(count, dtype=torch.int64)
    for method in ORDER:
        for ask in (margin_bounds, is_certified):  # with gradients, and without
            with pytest.raises(NotImplementedError):
                ask(model, images, labels, Linf(0.1), method=method)


def test_squeeze_is_fine_until_it_takes_the_only_sample():
    model = made(lambda s, x: s.end(x.flatten(1)).squeeze(), end=linear(6))
    images, labels = torch.rand(3, 2, 3).double(), torch.tensor([0, 1, 2])
    assert margin_bounds(model, images, labels, Linf(0.1)).shape == (3, 3)
    with pytest.raises(NotImplementedError, match=r"squeeze.*3 rows of 1"):
        margin_bounds(model, images[:1], labels[:1], Linf(0.1))


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (torch.full((2, 6), float("nan")), torch.tensor([0, 1]), "nan"),
        (torch.full((2, 6), 200.0), torch.tensor([0, 1]), "from 200 to 200"),
        (torch.full((2, 6), -0.1), torch.tensor([0, 1]), "-0.1"),
        (torch.rand(2, 6), torch.tensor([0]), "2 images"),
        (torch.rand(2, 6), torch.tensor([[0, 1]]), "2 images"),
    ],
)
def test_images_beyond_the_bounds_and_too_few_labels_are_refused(images, labels, words):
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    for ask in (margin_bounds, certify, is_certified):
        with pytest.raises(ValueError, match=words):
            ask(model, images, labels, Linf(0.1), method="ibp")


def test_images_of_whole_numbers_are_those_of_floating_point():
    model = made(lambda s, x: s.end((x / 255).flatten(1)), end=linear(4)).float()
    images = torch.tensor([[0, 3, 250, 255]], dtype=torch.uint8)
    for threat in (Linf(8, (0, 255)), L2(8, (0, 255))):
        for method in METHODS:
            rest_of_call = torch.tensor([0]), threat
            margins = margin_bounds(model, images, *rest_of_call, method=method)
            torch.testing.assert_close(
                margins, margin_bounds(model, images.float(), *rest_of_call, method=method)
            )


@pytest.mark.parametrize("threat", [Linf(0.0), Linf(1e-9), L2(1e-9), L2(3e-6)])
def test_an_image_beyond_the_bounds_by_rounding_has_the_set_of_the_nearest_one(threat):
    model = made(lambda s, x: s.end(x), end=linear(4))
    images = torch.tensor([[-1e-15, 0.5, 1 + 1e-15, -2e-15]]).double()
    labels = torch.tensor([0])
    for method in METHODS:
        margins = margin_bounds(model, images, labels, threat, method=method)
        expected = margin_bounds(model, images.clamp(0, 1), labels, threat, method=method)
        assert torch.equal(margins, expected)
    box = input_box(images, threat)
    assert (box.radius >= 0).all()


@pytest.mark.parametrize(
    ("dtype", "limits"),
    [
        (torch.float16, (0.1, 0.9)),
        (torch.float32, (-1024.3, 3071.7)),
        (torch.float32, (-1, 2)),
    ],
)
def test_images_on_the_bounds_as_their_type_rounds_them_are_inside(dtype, limits):
    model = nn.Sequential(nn.Linear(4, 3)).to(dtype)
    images = torch.tensor([[*limits, *limits]], dtype=dtype, requires_grad=True)
    margins = margin_bounds(
        model, images, torch.tensor([0]), Linf(0.0, limits), method="ibp"
    )
    assert margins.isfinite().all()


class RereadingModel(nn.Module):
    """Reads a value again that a layer after dropout has overwritten."""

    def __init__(self, dropout):
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 3)
        self.dropout, self.relu = dropout, nn.ReLU(inplace=True)

    def forward(self, x):
        h = self.one(x)
        return self.two(h - 0.5 * self.relu(self.dropout(h)))


@pytest.mark.parametrize(
    "dropout",
    [nn.Dropout(), nn.Dropout1d(), nn.Dropout2d(), nn.Identity(), None],
    ids=lambda layer: type(layer).__name__,
)
def test_a_value_overwritten_behind_dropout_is_refused(dropout):
    wrapped = dropout or made(lambda s, x: F.dropout(x, 0.1, s.training))
    model = RereadingModel(wrapped).eval()
    with pytest.raises(NotImplementedError, match="in place"):
        is_certified(model, torch.rand(2, 4), torch.tensor([0, 1]), Linf(0.1))


# --- constants ------------------------------------------------------------------------


@pytest.mark.parametrize("threat", [Linf(0.1), L2(0.3)], ids=["linf", "l2"])
@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x: s.end(((x - s.mean) / s.std).flatten(1)),
        lambda s, x: s.end((x - s.mean).flatten(1)),
        lambda s, x: s.end((s.std * x).flatten(1)),
    ],
    ids=["standardized", "moved", "scaled"],
)
def test_a_grey_image_made_colourful_by_constants_is_bounded_exactly(forward, threat):
    parts = {"mean": torch.tensor([0.4, 0.5, 0.6]), "std": torch.tensor([0.2, 0.25, 0.3])}
    parts = {name: value.view(1, 3, 1, 1) for name, value in parts.items()}
    model = made(forward, end=linear(12), **parts)
    images, labels = (
        torch.rand(5, 1, 2, 2).double() * 0.3 + 0.35,
        torch.tensor([0, 1, 2, 0, 1]),
    )
    x = images.clone().requires_grad_()
    for wrong in range(3):
        margin = model(x).gather(1, labels[:, None])[:, 0] - model(x)[:, wrong]
        (slope,) = torch.autograd.grad(margin.sum(), x)
        size = slope.flatten(1).norm(1 if threat.name == "linf" else 2, dim=1)
        least = margin.detach() - threat.eps * size
        for method in ("crown-ibp", "crown"):
            margins = margin_bounds(model, images, labels, threat, method=method)[:, wrong]
            torch.testing.assert_close(margins, least, msg=method)
        margins = margin_bounds(model, images, labels, threat, method="ibp")[:, wrong]
        assert (margins <= least + 1e-9).all()


SAME = {
    "a view by a size": (
        lambda s, x: s.end((x * s.scale.view(1, x.shape[1], 1)).flatten(1)),
        lambda s, x: s.end((x * s.scale.view(1, 2, 1)).flatten(1)),
    ),
    "a part by a size": (
        lambda s, x: s.end((x + s.many[:, : x.size(1)]).flatten(1)),
        lambda s, x: s.end((x + s.many[:, :2]).flatten(1)),
    ),
    "a mask": (
        lambda s, x: s.end((x * (s.many[:, :2] > 0.5)).flatten(1)),
        lambda s, x: s.end((x * (s.many[:, :2] > 0.5).double()).flatten(1)),
    ),
    "in place": (
        lambda s, x: _in_place(s.end(x.flatten(1))).relu(),
        lambda s, x: (2 * (s.end(x.flatten(1)) + 1) + 0.5).relu(),
    ),
    "an axis": (
        lambda s, x: s.end(torch.cat([x[:, :1], x[:, 1:]], axis=1).flatten(1)),
        lambda s, x: s.end(x.flatten(1)),
    ),
    "named input": (
        lambda s, x: torch.relu(input=s.end(x.flatten(1))),
        lambda s, x: s.end(x.flatten(1)).relu(),
    ),
}


def _in_place(h):
    h += 1
    h *= 2
    return h.add_(0.25, alpha=2)


@pytest.mark.parametrize("name", SAME)
def test_other_spellings_have_the_same_bounds(name):
    parts = {"end": linear(6), "scale": torch.rand(2), "many": torch.rand(1, 5, 3)}
    one, other = (made(forward, **parts) for forward in SAME[name])
    images, labels = torch.rand(3, 2, 3).double(), torch.tensor([0, 1, 2])
    torch.testing.assert_close(one(images), other(images))
    for method in METHODS:
        margins = [
            margin_bounds(m, images, labels, Linf(0.1), method=method) for m in (one, other)
        ]
        torch.testing.assert_close(*margins, msg=method)


def test_pooling_functions_take_their_settings_in_torchs_order():
    parts = {"end": linear(9)}
    forwards = [
        lambda s, x: s.end(torch.max_pool2d(x, 2, 2, 0, 1, True).flatten(1)),
        lambda s, x: s.end(F.max_pool2d(x, 2, 2, 0, 1, ceil_mode=True).flatten(1)),
    ]
    one, other = (made(forward, **parts) for forward in forwards)
    images, labels = torch.rand(3, 1, 5, 5).double(), torch.tensor([0, 1, 2])
    for method in METHODS:
        margins = [
            margin_bounds(m, images, labels, Linf(0.1), method=method) for m in (one, other)
        ]
        torch.testing.assert_close(*margins)


def test_a_trace_leaves_nothing_in_the_model():
    model = made(lambda s, x: s.end(x.flatten(1) - torch.tensor([0.5])), end=linear(6))
    images, labels = torch.rand(3, 2, 3).double(), torch.tensor([0, 1, 2])
    before = set(vars(model))
    first = margin_bounds(model, images, labels, Linf(0.0), method="ibp")
    assert set(vars(model)) == before
    logits = model(images).detach()
    torch.testing.assert_close(first, logits.gather(1, labels[:, None]) - logits)


# --- refusals -------------------------------------------------------------------------

REFUSED = {
    "product": (lambda s, x: s.end((x * x).flatten(1)), "mul"),
    "quotient": (lambda s, x: s.end((x / (x + 1)).flatten(1)), "truediv"),
    "rounded": (
        lambda s, x: s.end(torch.div(x, 2, rounding_mode="floor").flatten(1)),
        "div",
    ),
    "device": (lambda s, x: s.end(x.flatten(1).to(x.device)), "device"),
    "elu": (lambda s, x: s.end(s.elu(x.flatten(1))), r"'elu'.*alpha > 0"),
    "softplus": (lambda s, x: s.end(s.soft(x.flatten(1))), r"'soft'.*beta > 0"),
    "divisor": (lambda s, x: s.end(s.pool(x[:, None]).flatten(1)), r"'pool'.*divisor"),
    "sequence": (lambda s, x: s.last(x), r"logits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_place_and_the_reason(name):
    forward, words = REFUSED[name]
    parts = {
        "end": linear(2 if name == "divisor" else 6),
        "last": linear(3),
        "elu": nn.ELU(-0.5),
        "soft": nn.Softplus(beta=-1, threshold=1),
        "pool": nn.AvgPool2d((2, 2), stride=1, divisor_override=-3),
    }
    model = made(forward, **parts)
    images, labels = torch.rand(3, 2, 3).double(), torch.tensor([0, 1, 2])
    for method in ("crown-ibp", "crown"):
        with pytest.raises((NotImplementedError, ValueError), match=words):
            margin_bounds(model, images, labels, Linf(0.1), method=method)


def test_linear_bounds_refuse_dropout_at_work():
    layers = [nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3)]
    model = nn.Sequential(*layers).train()
    box = input_box(torch.rand(4, 6), Linf(0.01), with_clean=True)
    with pytest.raises(NotImplementedError, match=r"'1' \(Dropout\).*at random"):
        crown_ibp_margins(trace(model), box, torch.tensor([0, 1, 2, 0]))
    layers[1].p = 0.0
    assert crown_ibp_margins(trace(model), box, torch.tensor([0, 1, 2, 0])).lower.shape == (
        4,
        3,
    )


# --- no image at all ------------------------------------------------------------------


@pytest.mark.parametrize(
    "norm", [nn.GroupNorm(1, 2), nn.InstanceNorm2d(2), nn.LayerNorm(6)]
)
def test_a_batch_without_a_right_answer_needs_no_certificate(norm):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 1), norm, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(18, 3)).eval()
    images = torch.rand(5, 1, 6, 6)
    labels = model(images).argmax(1)
    labels[-1] = (labels[-1] + 1) % 3
    results = evaluate(model, images, labels, Linf(0.01), conditions=["clean", "fgsm"], certificate="ibp", batch_size=4)  # fmt: skip
    assert results.results[0].accuracy.correct == 4
    for method in METHODS:
        assert margin_bounds(
            model, images[:0], labels[:0], Linf(0.1), method=method
        ).shape == (
            0,
            3,
        )


TAILS = [(), (nn.Identity(),), (nn.Flatten(), nn.Dropout())]


@pytest.mark.parametrize("tail", TAILS[1:], ids=["identity", "flatten"])
def test_what_hands_the_logits_on_has_no_part_in_margins(tail):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)]
    models = [nn.Sequential(*layers, *end).eval() for end in ((), tail)]
    images, labels = torch.rand(5, 8), torch.tensor([0, 1, 0, 1, 0])
    for method in METHODS:
        margins = [
            margin_bounds(m, images, labels, Linf(0.1), method=method) for m in models
        ]
        torch.testing.assert_close(*margins)


def test_maps_that_are_flattened_to_logits_are_bounded():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout()]
    model, images = nn.Sequential(*layers).eval().double(), torch.rand(4, 1, 5, 5).double()
    labels = torch.tensor([0, 1, 2, 0])
    logits = model(images).detach()
    for method in METHODS:
        margins = margin_bounds(model, images, labels, Linf(0.0), method=method)
        torch.testing.assert_close(margins, logits.gather(1, labels[:, None]) - logits)


@pytest.mark.parametrize("tail", TAILS, ids=["linear", "identity", "flatten"])
def test_terms_that_cancel_out_in_the_last_layer_count_in_the_slack(tail):
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2), *tail]
    model = nn.Sequential(*layers).eval()
    with torch.no_grad():
        plain = certify(model, torch.rand(3, 8), torch.tensor([0, 1, 0]), Linf(0.1)).slack
        model[0].bias += 300
        model[2].bias -= model[2].weight.sum(1) * 300
        shifted = certify(model, torch.rand(3, 8), torch.tensor([0, 1, 0]), Linf(0.1)).slack
    assert (shifted > 100 * plain).all()
