"""Validation during training: when it runs, and at which radius."""

import pytest

from advnorm.recipe import override
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
        assert epoch.rate == pytest.approx(0.05 * (epoch.epoch - 1 / 3) / 3)
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
