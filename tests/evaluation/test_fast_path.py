"""Searches pass through the folded model; the plain one gives every verdict."""

import pytest
import torch
from torch import nn

import advnorm
from advnorm import Linf
from advnorm.evaluation import engine


@pytest.mark.parametrize("norm", ["batch", "mixture", "dual"])
def test_verdicts_are_those_of_the_plain_model(trained, digits_test, norm, monkeypatch):
    changes = [f"norm.name={norm}", *(["objective.name=mixed"] if norm != "batch" else [])]
    model = trained("digits.pgd", *changes)
    images, labels = (t[:100] for t in digits_test)
    conditions = ["clean", "pgd-10x2", "apgd_ce-10", "fab_t-10"]
    call = lambda: advnorm.evaluate(  # noqa: E731
        model, images, labels, Linf(0.1), conditions=conditions
    )
    fast = call()
    monkeypatch.setattr(engine, "fast_logits", lambda *_: None)
    plain = call()
    assert [r.key for r in fast.results] == [r.key for r in plain.results]
    for key, verdicts in plain.verdicts.items():
        pairs = zip(verdicts.robust, fast.verdicts[key].robust, strict=True)
        assert sum(a != b for a, b in pairs) <= 1, key


def test_precision_is_recorded_and_verdicts_are_confirmed(trained, digits_test):
    model, threat = trained("digits.pgd"), Linf(0.1)
    images, labels = digits_test
    result = advnorm.evaluate(
        model,
        images,
        labels,
        threat,
        conditions=["clean", "pgd-20"],
        search_precision="bfloat16",
        keep="adversarial",
    )
    clean, attacked = result.results
    assert "precision" not in clean.settings
    assert attacked.settings["precision"] == "bfloat16"
    x, verdicts = result.adversarial[attacked.key], result.verdicts[attacked.key]
    with torch.no_grad():
        right = model.eval()(x).argmax(1) == labels
    assert right.tolist() == list(verdicts.robust)
    assert threat.contains(x, images).all()
    exact = advnorm.evaluate(model, images, labels, threat, conditions=["pgd-20"])
    differences = zip(exact.verdicts[attacked.key].robust, verdicts.robust, strict=True)
    assert sum(a != b for a, b in differences) <= 2
    assert "precision" not in exact.results[0].settings


@pytest.mark.parametrize("fooled_in", ["float32", "bfloat16"])
def test_a_success_of_the_rounded_model_alone_is_searched_again(monkeypatch, fooled_in):
    """A form of the model is replaced by one that is always fooled: nothing is lost."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    torch.manual_seed(0)
    images = torch.rand(40, 1, 2, 2)
    labels = model(images).argmax(1)
    call = lambda precision: advnorm.evaluate(  # noqa: E731
        model,
        images,
        labels,
        Linf(0.15),
        conditions=["pgd-10"],
        search_precision=precision,
    )
    exact, real = call("float32"), engine.fast_logits

    def planted(model, images, precision="float32"):
        fooled = lambda x: -10 * real(model, images)(x)  # noqa: E731
        return fooled if precision == fooled_in else real(model, images)

    monkeypatch.setattr(engine, "fast_logits", planted)
    (key,) = exact.verdicts
    assert 0 < sum(exact.verdicts[key].robust) < 40
    assert call(fooled_in).verdicts[key].robust == exact.verdicts[key].robust


def test_an_unknown_precision_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    images, labels = torch.rand(4, 1, 2, 2), torch.zeros(4, dtype=torch.long)
    with pytest.raises(ValueError, match="'float32' or 'bfloat16', not 'float16'"):
        advnorm.evaluate(model, images, labels, Linf(0.1), search_precision="float16")


def test_bfloat16_is_refused_where_the_model_cannot_be_folded():
    """Else the result would name a precision that no pass had."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    model[1].register_forward_hook(lambda *_: None)
    images, labels = torch.rand(6, 1, 2, 2), torch.arange(6) % 3
    with pytest.raises(ValueError, match=r"cannot be folded.*leave search_precision"):
        advnorm.evaluate(
            model,
            images,
            labels,
            Linf(0.1),
            conditions=["pgd-2"],
            search_precision="bfloat16",
        )
