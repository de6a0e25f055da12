"""Validation during training: when it runs, at which radius, by which verdicts."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from advnorm.bounds import ibp_margins, input_box, trace
from advnorm.data import Batch
from advnorm.evaluation import certificate_condition, run_condition
from advnorm.recipe import Recipe, override
from advnorm.threat import Linf
from advnorm.training import NotFiniteError, train
from advnorm.training.build import build_experiment
from advnorm.training.stop import Stop
from advnorm.training.validate import validate


def test_validation_after_every_kth_epoch_and_after_the_last(tiny, tmp_path):
    run = train(override(tiny, ["epochs=5", "validation.every=2"]), tmp_path / "run")
    seen = [epoch.epoch for epoch in run.epochs() if epoch.validation_clean]
    assert seen == [2, 4, 5]


def test_the_recorded_rate_and_radius_are_those_of_the_epochs_last_step(tiny, tmp_path):
    changes = [
        "optimizer.schedule={kind: ramp, last: 3}",
        "threat.schedule={kind: ramp, last: 3}",
    ]
    run = train(override(tiny, changes), tmp_path / "run")
    for epoch in run.epochs():  # three steps an epoch; the last begins at epoch - 1/3
        assert epoch.lr == pytest.approx(0.05 * (epoch.epoch - 1 / 3) / 3)
        assert epoch.eps == pytest.approx(0.1 * (epoch.epoch - 1 / 3) / 3)


def test_validation_attacks_at_the_full_radius(tiny, monkeypatch):
    from advnorm.training import validate as module

    seen = []
    original = module.run_condition
    monkeypatch.setattr(
        module,
        "run_condition",
        lambda m, b, cell, **k: (seen.append(cell), original(m, b, cell, **k))[1],
    )
    validate(build_experiment(tiny, root=None, device="cpu"), Stop())
    assert [cell.name for cell in seen] == ["clean", "pgd-2", "apgd_dlr-20"]
    assert [cell.threat.eps for cell in seen[1:]] == [0.1, 0.1]


def test_validation_that_meets_nan_names_the_last_good_checkpoint(
    tiny, tmp_path, monkeypatch
):
    from advnorm.attacks import NonFiniteGradientError
    from advnorm.training import validate as module

    def judge(*args, **settings):
        raise NonFiniteGradientError("planted")

    monkeypatch.setattr(module, "run_condition", judge)
    with pytest.raises(NotFiniteError, match=r"planted.*The last good checkpoint is"):
        train(tiny, tmp_path / "run")


class Samples:
    """The two images of the test: a margin within rounding, and a large one."""

    images, labels = torch.tensor([[0.6, 0.3999998], [0.9, 0.1]]), torch.zeros(2).long()

    def __len__(self):
        return len(self.images)

    def batches(self, order, *, batch_size, device):
        yield Batch(self.images[order], self.labels[order], order)


def test_a_margin_within_rounding_is_not_certified_by_a_validation():
    """The logits are the pixels: at eps 0.1 the margin is a few units in the last place."""
    model, threat, samples = nn.Sequential(nn.Linear(2, 2)), Linf(0.1), Samples()
    model[0].weight.data, model[0].bias.data = torch.eye(2), torch.zeros(2)
    box = input_box(samples.images, threat)
    with torch.no_grad():
        margins, _ = ibp_margins(trace(model.eval()), box, samples.labels)
    assert (margins[:, 1] > 0).all(), "without rounding both would be certified"
    experiment = SimpleNamespace(
        recipe=override(Recipe(), ["validation.robust=ibp"]),
        data=SimpleNamespace(validation=samples),
        model=model,
        threat=threat,
        device=torch.device("cpu"),
    )
    validated = validate(experiment, SimpleNamespace(check=lambda: None))
    batches = samples.batches(torch.arange(2), batch_size=2, device=None)
    condition = certificate_condition("ibp", threat)
    expected = run_condition(model, batches, condition, total=2)
    assert validated.clean.robust == (True, True)
    assert validated.robust.robust == expected.robust == (False, True)
