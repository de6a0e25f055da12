"""The audit's rules, its records, and flags that an evaluation sees by itself."""

from math import comb

import pytest
import torch
from torch import nn

import advnorm
from advnorm.evaluation import audit, evaluate
from advnorm.evaluation.checks import significance
from advnorm.records import (
    Accuracy,
    Audit,
    Check,
    Environment,
    Result,
    Run,
    ThreatRecord,
    with_flags,
)
from advnorm.threat import Linf

LINF = ThreatRecord(norm="linf", eps=0.1)


def linear(seed=0, n=40):
    """Return a linear model of images with the labels that it gives them."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    images = torch.rand(n, 1, 8, 8)
    return model, images, model(images).argmax(1)


def detached(model):
    class Detached(nn.Module):
        def forward(self, x):
            return model(x.detach())

    return Detached()


def test_the_order_of_two_attacks_is_the_exact_sign_test():
    """Against the binomial sum: k of n that only one attack breaks, each with chance 1/2."""
    orders = set()
    for k in range(13):
        for other in range(13):
            n = k + other
            suspect = torch.tensor([False] * k + [True] * other + [True, False])
            trusted = torch.tensor([True] * k + [False] * other + [True, False])
            p = sum(comb(n, i) for i in range(k, n + 1)) / 2**n
            assert significance.clearly_lower(suspect, trusted) is (n > 0 and p < 0.01), (
                k,
                other,
            )
            orders.add(p < 0.01)
    assert orders == {True, False}


def test_a_share_is_doubted_only_where_its_whole_interval_is_above_the_limit():
    for n in (5, 50, 500):
        for count in range(n + 1):
            low, _ = Accuracy(correct=count, n=n).interval
            assert significance.exceeds(count, n, 0.05) is (low > 0.05)
    assert not significance.exceeds(1, 1, 0.5), "one sample proves nothing"


class Band(nn.Module):
    """Wrong only where the mean pixel is in a narrow band: long steps jump over it."""

    def forward(self, x):
        margin = 50 * ((x.flatten(1).mean(1) - 0.54).abs() - 0.01)
        return torch.stack([margin, -margin], 1)


def test_a_larger_radius_that_breaks_less_is_flagged():
    images, labels = 0.5 + 0.01 * torch.rand(60, 1, 8, 8), torch.zeros(60).long()
    record = audit(Band(), images, labels, Linf(0.05), checks=["not_monotone_in_eps"])
    assert record.flagged == ("not_monotone_in_eps",), record
    model, images, labels = linear()
    sound = audit(model, images, labels, Linf(0.05), checks=["not_monotone_in_eps"])
    assert sound.flagged == ()


def test_a_model_with_masked_gradients_is_broken_by_a_surrogate():
    model, images, labels = linear(n=60)
    masked = nn.Sequential(model, nn.Softmax(1), Times(1e6))
    names = ["transfer_stronger"]
    record = audit(masked, images, labels, Linf(0.1), checks=names, surrogate=model)
    assert record.flagged == ("transfer_stronger",), record
    assert (
        audit(model, images, labels, Linf(0.1), checks=names, surrogate=model).flagged == ()
    )


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def test_standardized_images_are_refused_or_with_wide_bounds_flagged():
    model, images, labels = linear()
    standardized = (images - images.mean()) / images.std()
    with pytest.raises(ValueError, match="look standardized"):
        audit(model, standardized, labels, Linf(0.1))
    names = ["standardization_outside"]
    record = audit(model, standardized, labels, Linf(0.1, bounds=(-2, 2)), checks=names)
    assert record.flagged == ("standardization_outside",)
    assert audit(model, images, labels, Linf(0.1), checks=names).flagged == ()


def test_everything_is_put_back():
    class Moving(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.norm = nn.Linear(64, 10), nn.BatchNorm1d(64)

        def forward(self, x):
            self.norm.train()
            return self.net(self.norm(x.flatten(1))) + 0.1 * torch.rand(())

    model, (_, images, labels) = Moving(), linear()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    record = audit(model, images, labels, Linf(0.1), checks=["dynamic", "randomized"])
    assert set(record.flagged) == {"dynamic", "randomized"}
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_an_audit_is_the_same_again_and_survives_json():
    model, images, labels = linear()
    one, two = (audit(model, images, labels, Linf(0.05), seed=3) for _ in range(2))
    assert one.model_copy(update={"seconds": 0.0}) == two.model_copy(
        update={"seconds": 0.0}
    )
    assert Audit.model_validate_json(one.model_dump_json()) == one
    assert str(one).count("\n") == len(one.checks) + 2


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"threat": 0.1}, r"threat is Linf\(8/255\) or L2\(0.5\)"),
        ({"threat": [Linf(0.1), Linf(0.2)]}, "give one threat here, not 2"),
        ({"threat": Linf(0)}, "needs a radius"),
        ({"checks": ["randomised"]}, "did you mean 'randomized'"),
        ({"suite": ["apgd"], "checks": ["false_robustness"]}, None),
    ],
)
def test_mistakes_are_one_sentence(settings, words):
    model, images, labels = linear()
    settings = {"threat": Linf(0.1)} | settings
    if words is None:
        assert audit(model, images, labels, **settings).suite == ("apgd",)
        return
    with pytest.raises(ValueError, match=words):
        audit(model, images, labels, **settings)


def test_vectors_are_audited_without_square():
    model, data = nn.Linear(6, 3), torch.rand(30, 6)
    record = audit(model, data, model(data).argmax(1), Linf(0.05))
    assert "square-500" not in record.suite
    assert {c.name for c in record.checks if c.status == "not run"} == {
        "black_box_stronger",
        "transfer_stronger",
    }


def test_an_evaluation_flags_what_it_sees_by_itself():
    model, images, labels = linear()
    soft = nn.Sequential(model, nn.Softmax(1))
    evaluation = evaluate(soft, images, labels, Linf(0.05), conditions=["clean", "pgd-2"])
    clean, robust = evaluation.results
    assert clean.flags == () and len(robust.flags) == 1
    assert "softmax_output" in robust.flags[0]
    text = str(evaluation)
    line, below = text.splitlines()[2], " ".join(text.split())
    assert line.endswith(f"{robust.accuracy} !1") and f"!1 {robust.flags[0]}" in below
    sound = evaluate(model, images, labels, Linf(0.05), conditions=["clean", "pgd-2"])
    assert all(result.flags == () for result in sound.results)


def test_gradients_that_are_not_there_are_not_followed():
    model, images, labels = linear()
    with pytest.raises(ValueError, match="cuts the graph"):
        evaluate(detached(model), images, labels, Linf(0.05), conditions=["clean", "pgd-2"])
    evaluation = evaluate(
        detached(model), images, labels, Linf(0.05), conditions=["square-20"]
    )
    assert any("unavailable_gradients" in flag for flag in evaluation.results[0].flags)
    assert evaluate(
        detached(model), images, labels, Linf(0.05), conditions=["clean"]
    ).results


def make_run(path):
    machine = Environment.here(device="cpu", threads=1)
    return Run.create(path, "name: x\n", machine)


def result(**changed):
    values = {"condition": "pgd-10", "kind": "attack", "threat": LINF}
    more = {
        "accuracy": Accuracy(correct=1, n=2),
        "data": "d",
        "weights": "best sha256:1",
        "seed": 0,
        "seconds": 0.0,
    }
    return Result(**values | more | changed)


def make_audit(status="flagged", **changed):
    check = Check(name="randomized", status=status, says="two passes differ")
    values = {"threat": LINF, "n": 2, "clean": Accuracy(correct=2, n=2), "checks": (check,)}
    return Audit(**values | {"weights": "best sha256:1"} | changed)


def test_an_audit_flags_the_results_that_it_concerns_and_a_better_one_takes_it_back(
    tmp_path,
):
    run = make_run(tmp_path / "run")
    own = result(flags=("doubtful by itself",))
    others = (result(condition="clean", threat=None), result(condition="x", weights="w"))
    for each in (own, *others):
        run.write_result(each)
    run.write_audit(make_audit())
    flags = {r.condition: r.flags for r in run.results()}
    assert flags["pgd-10"] == ("doubtful by itself", "audit, randomized: two passes differ")
    assert flags["clean"] == () and flags["x"] == ()
    run.write_audit(make_audit("passed"))
    assert run.result(own.key).flags == ("doubtful by itself",)


def test_an_audit_is_about_attacks_of_its_norm_and_not_about_certificates(tmp_path):
    run = make_run(tmp_path / "run")
    others = {
        "smaller": LINF.model_copy(update={"eps": 0.01}),
        "none": LINF.model_copy(update={"eps": 0.0}),
        "l2": ThreatRecord(norm="l2", eps=LINF.eps),
        "var": ThreatRecord(norm="var", eps=LINF.eps),
    }
    for name, threat in others.items():
        run.write_result(result(condition=name, threat=threat))
    run.write_result(result(condition="ibp", kind="certificate"))
    run.write_audit(make_audit())
    assert [r.condition for r in run.results() if r.flags] == ["smaller"]


def test_flags_of_a_probe_stay_until_an_audit_speaks():
    probed = result(flags=("audit, randomized: two passes differ",))
    assert with_flags(probed, []) == probed
    assert with_flags(probed, [make_audit("passed", weights="others")]) == probed
    assert with_flags(probed, [make_audit("passed")]).flags == ()


def test_an_audit_of_a_branch_concerns_that_branch_and_the_worst():
    flags = make_audit(branch="adversarial")
    seen = {b: flags.concerns(result(branch=b)) for b in ("adversarial", "worst", "clean")}
    assert seen == {"adversarial": True, "worst": True, "clean": False}
    assert not flags.concerns(result())


def test_the_module_is_the_function():
    assert advnorm.audit is audit


def test_a_buffer_that_a_pass_puts_in_anew_is_noticed_and_put_back():
    class Drifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linear()[0]
            self.register_buffer("mean", torch.zeros(1))

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean().view(1)
            return self.inner(x)

    model, (_, images, labels) = Drifting(), linear()
    before = model.mean
    record = audit(model, images, labels, Linf(0.1), checks=["dynamic"])
    assert [check.status for check in record.checks] == ["flagged"]
    assert model.mean is before and float(before) == 0
