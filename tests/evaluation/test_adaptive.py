"""Adaptive evaluations: the search passes something else, the verdict is the model's."""

import re

import pytest
import torch
from torch import nn

import advnorm
from advnorm import Linf
from advnorm.evaluation import Adaptation, engine
from advnorm.evaluation.checks.layer_signs import LayerSigns, layer_signs
from advnorm.evaluation.checks.proposals import propose
from advnorm.recipe import override
from advnorm.records import Run
from advnorm.runs import evaluate_run
from advnorm.training import train


class Round(nn.Module):
    """Eight levels; no gradient."""

    def forward(self, x):
        return (7 * x).round() / 7


def network(classes=4):
    """Return a network whose classes are about equally frequent."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, classes))
    with torch.no_grad():
        net[1].bias.copy_(-0.5 * net[1].weight.sum(1))
        net[3].bias.zero_()
    return net


@pytest.fixture
def samples():
    torch.manual_seed(1)
    images = torch.rand(48, 1, 8, 8)
    return images, network()(images).argmax(1)


def robust(result):
    (verdicts,) = result.verdicts.values()
    return verdicts.robust


def test_a_slot_breaks_what_a_quantizer_hides(samples):
    images, labels = samples
    masked, threat = nn.Sequential(Round(), network()), Linf(0.05)
    arguments = {"conditions": ["pgd-10"], "keep": "adversarial"}
    result = advnorm.evaluate(
        masked, images, labels, threat, adapt={"0": "identity"}, **arguments
    )
    (record,) = result.results
    assert record.key == "pgd-10+adapt_linf_0.05"
    assert record.settings["adapt.layers.0"] == "identity"
    base = advnorm.evaluate(masked[1], images, labels, threat, **arguments).results[0]
    assert record.accuracy.fraction <= base.accuracy.fraction + 0.1
    x = result.adversarial[record.key]
    with torch.no_grad():
        right = masked(x).argmax(1) == labels
    assert tuple(right.tolist()) == robust(result)
    assert threat.contains(x, images).all()


def test_verdicts_depend_neither_on_batch_size_nor_on_order(samples):
    images, labels = (samples[0].double(), samples[1])
    masked = nn.Sequential(Round(), network()).double()
    adapt = Adaptation({"0": "identity"}, draws=3, noise=0.01)

    def run(rows, batch_size):
        return advnorm.evaluate(
            masked,
            images[rows],
            labels[rows],
            Linf(0.03),
            conditions=["bim-5", "apgd_t-5"],
            batch_size=batch_size,
            adapt=adapt,
        ).verdicts

    whole, few = run(slice(None), 48), run(slice(None), 7)
    assert whole == few
    assert 0 < sum(whole["bim-5+adapt_linf_0.03"].robust) < 48
    flipped = run(torch.arange(47, -1, -1), 48)
    own = whole["bim-5+adapt_linf_0.03"].robust  # bim has no random start
    assert flipped["bim-5+adapt_linf_0.03"].robust == own[::-1]


def test_an_adapted_model_is_not_folded(trained, digits_test, monkeypatch):
    """The folded form has no slots: a surrogate must have its effect."""
    model, (images, labels) = trained("digits.pgd"), digits_test
    monkeypatch.setattr(engine, "fast_logits", lambda *_: 1 / 0)
    images, labels = images[:40], labels[:40]
    names = (n for n, m in model.named_modules() if type(m).__name__ == "BatchNorm")
    name = next(names)
    plain = {"threat": Linf(0.1), "conditions": ["pgd-10"]}
    wrong = advnorm.evaluate(model, images, labels, **plain, adapt={name: lambda x: -x})
    right = advnorm.evaluate(model, images, labels, **plain, adapt={name: nn.Identity()})
    assert sum(robust(wrong)) > sum(robust(right)) + 3
    with pytest.raises(ZeroDivisionError):
        advnorm.evaluate(model, images, labels, **plain)


def test_a_slot_in_the_place_of_a_sound_layer_loses_nothing(trained, digits_test):
    """``identity`` behind a linear surrogate of itself is the layer's own gradient."""
    model, (images, labels) = trained("digits.pgd"), digits_test
    (name, layer), *_ = (
        (n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear)
    )
    call = lambda adapt: advnorm.evaluate(  # noqa: E731
        model, images, labels, Linf(0.15), conditions=["pgd-20"], adapt=adapt
    )
    weight, bias = layer.weight.detach(), layer.bias
    own = lambda x: nn.functional.linear(x, weight, bias)  # noqa: E731
    pairs = zip(robust(call(None)), robust(call({name: own})), strict=True)
    assert sum(a != b for a, b in pairs) <= 1


def test_a_surrogate_model_is_searched_and_the_model_answers(samples):
    images, labels = samples
    net = network()
    cut = lambda x: net(x.detach())  # noqa: E731
    call = lambda adapt, model: advnorm.evaluate(  # noqa: E731
        model, images, labels, Linf(0.05), conditions=["pgd-10"], adapt=adapt
    )
    with pytest.raises(ValueError, match="follows gradients, and none reaches"):
        call(None, cut)
    searched, plain = call(Adaptation(model=net), cut), call(None, net)
    (by,) = (verdicts.by for verdicts in plain.verdicts.values())
    (through,) = (verdicts.by for verdicts in searched.verdicts.values())
    broken = [b == "pgd-10" for b in by]
    assert any(broken) and [b == "pgd-10" for b in through] == broken
    result = call(Adaptation(model=network()), cut)
    assert result.results[0].settings["adapt.model"] == "Sequential"


def test_a_loss_of_ones_own_and_by_name(samples):
    images, labels = samples
    scaled = nn.Sequential(network(), nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        scaled[1].weight.copy_(1e6 * torch.eye(4))
    seen = []

    def loss(logits, labels):
        seen.append(len(labels))
        wrong = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
        return wrong - logits.gather(1, labels[:, None]).squeeze(1)

    numbers = {}
    for name, chosen in (("own", loss), ("margin", "margin"), ("none", None)):
        numbers[name] = advnorm.evaluate(
            scaled,
            images,
            labels,
            Linf(0.02),
            conditions=["pgd-10"],
            adapt=Adaptation(loss=chosen) if chosen else None,
        ).results[0]
    assert seen
    assert numbers["own"].accuracy == numbers["margin"].accuracy
    assert numbers["own"].settings["adapt.loss"] == "loss"
    assert numbers["margin"].settings["adapt.loss"] == "margin"


@pytest.mark.parametrize(
    ("adapt", "options", "words"),
    [
        ({"0": "identity"}, {"statistics": "batch"}, "are not combined: leave one"),
        ({"0": "identity", "layer": "tanh"}, {}, "no layer 'layer'"),
        (3, {}, "adapt is a int: give"),
        (
            Adaptation(model=nn.Flatten()),
            {},
            r"returns shape \(16, 64\), the model \(16, 4\)",
        ),
        (Adaptation(loss=lambda z, y: z.sum()), {}, r"the loss returns shape \(\)"),
        (Adaptation(loss="dlr"), {"conditions": ["apgd_ce-5"]}, "no attack here takes a"),
        ({"0": "identity"}, {"search_precision": "bfloat16"}, "has no adaptive slots"),
        ({"0": "identity"}, {"radii": True}, "radii are not searched adaptively"),
    ],
)
def test_what_does_not_fit_is_one_sentence(samples, adapt, options, words):
    model = nn.Sequential(Round(), network())
    settings = {"conditions": ["pgd-2"], **options}
    with pytest.raises(ValueError, match=words) as refusal:
        advnorm.evaluate(model, *samples, Linf(0.1), adapt=adapt, **settings)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"draws": 0}, "draws is a whole number from 1"),
        ({"draws": True}, "draws is a whole number from 1"),
        ({"noise": 0.1}, "noise is averaged over draws"),
        ({"noise": -1.0, "draws": 2}, "noise is a deviation"),
        ({"loss": "marginn"}, "no loss 'marginn': did you mean 'margin'"),
    ],
)
def test_a_setting_out_of_range_is_one_sentence(settings, words):
    with pytest.raises(ValueError, match=words):
        Adaptation(**settings)


class Flaky(nn.Module):
    """Adds noise to the logits in each pass."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        logits = self.net(x)
        return logits + 0.3 * logits.std() * torch.randn_like(logits)


@pytest.mark.parametrize("name", ["pgd-2..4", "ibp"])
def test_conditions_without_draws_are_refused(samples, name):
    with pytest.raises(ValueError, match=r"draws|certificate"):
        advnorm.evaluate(
            Flaky(), *samples, Linf(0.1), conditions=[name], adapt=Adaptation(draws=4)
        )


def test_several_attacks_on_a_randomized_model_leave_the_worst_candidate(samples):
    images, labels = samples
    call = lambda name: advnorm.evaluate(  # noqa: E731
        Flaky(),
        images,
        labels,
        Linf(0.02),
        conditions=["clean", name],
        adapt=Adaptation(draws=12),
    )
    result = call("quick")
    clean, attacked = result.results
    assert attacked.draws.mean < clean.draws.mean - 0.05
    assert attacked.draws.low <= attacked.draws.mean <= attacked.draws.high
    rows = result.sample_table()
    assert {row["frequency"] for row in rows} <= {number / 12 for number in range(13)}
    assert call("quick").verdicts == result.verdicts  # whatever torch's own state is
    assert f"of {12} draws" in str(result)


def test_a_run_records_an_adaptive_search_and_continues_it(tiny, tmp_path):
    run = train(override(tiny, ["epochs=1"]), tmp_path / "run")
    base = ["evaluation.conditions=[clean, pgd-3]", "evaluation.threat.eps=0.1"]
    adapt = "evaluation.adapt.layers={BatchNorm: identity}"

    def evaluated(*changes):
        return evaluate_run(run, override(tiny, ["epochs=1", *base, *changes]))

    plain = evaluated("evaluation.samples=12")[-1]
    few = evaluated(adapt, "evaluation.samples=6", "evaluation.batch_size=3")[-1]
    assert few.key == "pgd-3+adapt_linf_0.1"
    more = evaluated(adapt, "evaluation.samples=12", "evaluation.batch_size=6")[-1]
    verdicts = Run.open(run.path).verdicts(more.key)
    assert len(verdicts.samples) == 12
    assert more.fingerprint == few.fingerprint != plain.fingerprint
    assert Run.open(run.path).result(plain.key) == plain
    assert any(key.startswith("adapt.layers.") for key in more.settings)
    with pytest.raises(ValueError, match="adapt are not combined"):
        evaluated(adapt, "evaluation.statistics=batch")


def test_an_audit_names_the_layer_and_the_line(samples):
    masked = nn.Sequential(Round(), network())
    audit = advnorm.audit(masked, *samples, Linf(0.05), checks=["masking_layers"])
    assert audit.flagged == ("masking_layers",)
    assert audit.proposal == "advnorm.evaluate(..., adapt={'0': 'identity'})"
    assert audit.proposal in str(audit)
    evaluate = lambda *_, adapt: advnorm.evaluate(  # noqa: E731
        masked, *samples, Linf(0.05), conditions=["pgd-5"], adapt=adapt
    )
    result = eval(audit.proposal, {"advnorm": type("", (), {"evaluate": evaluate})})
    assert sum(robust(result)) < 40


class Detached(nn.Module):
    def forward(self, x):
        return x.detach().clone()


class Decoy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Negated(nn.Module):
    def forward(self, x):
        return Decoy.apply(x)


class Winners(nn.Module):
    def forward(self, x):
        return x * (x >= x.flatten(1).topk(8).values[:, -1].view(-1, 1, 1, 1))


class Dropping(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.2, training=True)


class Functional(nn.Module):
    """Rounds between its layers."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x):
        return Round()(self.inner(x))


@pytest.mark.parametrize(
    ("layer", "sign", "name"),
    [
        (Round(), "jumps", "0"),
        (Winners(), "wrong", "0"),
        (Detached(), "cut", "0"),
        (Negated(), "wrong", "0"),
        (Dropping(), "random", "0"),
        (Functional(), "jumps", "0"),
        (nn.Sequential(nn.Identity(), Round()), "jumps", "0.1"),
        (nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.ReLU()), "", ""),
        (nn.MaxPool2d(3, 1, 1), "", ""),
        (nn.Sequential(nn.BatchNorm2d(1), nn.Softplus()), "", ""),
    ],
)
def test_signs_of_single_layers(samples, layer, sign, name):
    torch.manual_seed(0)
    model = nn.Sequential(layer, network()).eval()
    signs = layer_signs(model, samples[0])
    assert [(s.name, s.sign) for s in signs] == ([(name, sign)] if sign else [])


@pytest.mark.parametrize(
    ("signs", "flagged", "proposal"),
    [
        ([], ["saturated_loss"], r"conditions=\['apgd-100'\], adapt=.*loss='margin'"),
        ([], ["randomized"], r"Adaptation\(draws=20\)"),
        ([], ["batch_dependent"], r"statistics='batch', batch_size=len\(images\)"),
        ([], ["rugged_scores"], r"draws=20, noise=threat\.eps / 4"),
        ([], ["grad_mode_dependent"], r"model=network\).*without what the flags name"),
        ([], ["more_steps_help"], "^$"),
        ([], ["wrong_gradients"], "make the step in forward a layer"),
        (
            [LayerSigns("a.b", "Code", "jumps", False)],
            [],
            "'a.b': surrogate}.*differentiable",
        ),
        (
            [LayerSigns(f"{n}", "Step", "cut", True) for n in range(4)],
            [],
            r"adapt={'Step': 'identity'}",
        ),
    ],
)
def test_the_proposal_follows_from_the_findings(signs, flagged, proposal):
    assert re.search(proposal, propose(signs, flagged))
