"""The mean corruption error, against its definition written out."""

import numpy as np
import pytest

from advnorm.records import Accuracy, Environment, Result, Run, TrainingProgress, Verdicts
from advnorm.report import corruption_errors


def make(path, errors, *, data=None, n=40, weights="best"):
    """Make a run whose corruption ``name`` at ``severity`` has so many errors."""
    run = Run.create(path, "name: a\n", Environment.here(device="cpu", threads=1))
    generator = np.random.default_rng(len(str(path)))
    for (name, severity), wrong in errors.items():
        robust = np.arange(n) >= wrong
        generator.shuffle(robust)
        result = Result(
            condition="clean" if data else f"corruption-{name}-{severity}",
            kind="clean" if data else "corruption",
            corruption=name,
            severity=None if data == "mnist-c" else severity,
            accuracy=Accuracy(correct=int(robust.sum()), n=n),
            data=f"{data}:{name}" + (f":{severity}" if data == "cifar10-c" else "")
            if data
            else "digits",
            other=bool(data),
            weights=weights,
            seed=0,
            seconds=1.0,
        )
        run.write_result(result)
        run.write_verdicts(result.key, Verdicts(robust=tuple(map(bool, robust))))
    return run


FOG = {("fog", s): 2 * s for s in range(1, 6)}
SNOW = {("snow", s): 10 for s in range(1, 6)}


def test_without_a_baseline_it_is_the_mean_error(tmp_path):
    (error,) = corruption_errors(make(tmp_path / "a", FOG | SNOW))
    assert error.by == pytest.approx({"fog": 30 / 200, "snow": 50 / 200})
    assert error.mean == pytest.approx(0.2) and error.n == 40
    assert "mean corruption error (corruptions, 2 corruptions): 20.0% [" in str(error)


def test_with_a_baseline_it_is_the_mean_of_ratios_of_sums(tmp_path):
    run = make(tmp_path / "a", FOG | SNOW)
    base = make(tmp_path / "b", {key: 20 for key in FOG} | {key: 4 for key in SNOW})
    (error,) = corruption_errors(run, base)
    assert error.by == pytest.approx({"fog": 30 / 100, "snow": 50 / 20})
    assert error.mean == pytest.approx((0.3 + 2.5) / 2) and error.normalized
    (itself,) = corruption_errors(run, run)
    assert itself.mean == pytest.approx(1) and itself.half == pytest.approx(0, abs=1e-12)


def test_the_interval_is_that_of_a_bootstrap_over_samples(tmp_path):
    run = make(tmp_path / "a", {k: 3 * v for k, v in FOG.items()} | SNOW, n=200)
    base = make(
        tmp_path / "bb", {key: 90 for key in FOG} | {key: 60 for key in SNOW}, n=200
    )
    for other in (None, base):
        (error,) = corruption_errors(run, other)
        own, reference = (
            {
                name: np.mean(
                    [
                        1.0 - np.array(r.verdicts(f"corruption-{name}-{s}").robust)
                        for s in range(1, 6)
                    ],
                    axis=0,
                )
                for name in ("fog", "snow")
            }
            for r in (run, other or run)
        )
        generator, means = np.random.default_rng(0), []
        for _ in range(4000):
            rows = generator.integers(0, 200, 200)
            ratios = [
                own[name][rows].mean() / (reference[name][rows].mean() if other else 1)
                for name in own
            ]
            means.append(np.mean(ratios))
        assert error.half == pytest.approx(1.96 * np.std(means), rel=0.08)


def test_published_files_count_by_kind_and_identity_does_not(tmp_path):
    run = make(tmp_path / "a", {("fog", 1): 4, ("identity", 1): 0}, data="mnist-c")
    (error,) = corruption_errors(run)
    assert error.kind == "mnist-c" and error.by == {"fog": 0.1}
    run = make(tmp_path / "b", FOG, data="cifar10-c")
    (error,) = corruption_errors(run)
    assert error.kind == "cifar10-c" and error.by == pytest.approx({"fog": 0.15})


def test_verdicts_beyond_the_samples_of_a_result_do_not_count(tmp_path):
    run = make(tmp_path / "a", FOG)
    for result in run.results():
        few = run.verdicts(result.key).first(10).accuracy()
        run.write_result(result.model_copy(update={"accuracy": few}))
    (error,) = corruption_errors(run)
    fractions = [result.accuracy.fraction for result in run.results()]
    assert error.n == 10 and error.mean == pytest.approx(1 - np.mean(fractions))


def test_a_corruption_without_all_its_severities_does_not_count(tmp_path):
    run = make(tmp_path / "a", FOG | {("snow", 1): 40})
    assert list(corruption_errors(run)[0].by) == ["fog"]
    assert corruption_errors(make(tmp_path / "b", {("snow", 1): 40})) == []


def test_what_cannot_be_compared_is_one_sentence(tmp_path):
    run = make(tmp_path / "a", FOG | SNOW)
    with pytest.raises(ValueError, match="no results for snow"):
        corruption_errors(run, make(tmp_path / "b", FOG))
    with pytest.raises(ValueError, match="different numbers of samples"):
        corruption_errors(run, make(tmp_path / "c", FOG | SNOW, n=50))
    with pytest.raises(ValueError, match="makes no error on fog"):
        corruption_errors(run, make(tmp_path / "d", {key: 0 for key in FOG} | SNOW))


def test_an_unfinished_run_has_its_mark(tmp_path):
    run, early_training = (
        make(tmp_path / "run", FOG),
        TrainingProgress(epochs=13, planned=400),
    )
    (plain,) = corruption_errors(run)
    for result in run.results():
        run.write_result(result.model_copy(update={"training": early_training}))
    (early,) = corruption_errors(run)
    assert str(early) == f"{plain} (unfinished: 13 of 400 epochs)"
    assert str(corruption_errors(run, run)[0]).endswith(
        " (baseline unfinished: 13 of 400 epochs)"
    )
