"""Curves over training, made of the measurements of single steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advnorm.records.monitoring import (
    MonitoredStep,
    exponential_average,
    jumps,
    over_training,
    z_scores,
)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), st.floats(0.01, 1))
def test_the_average_is_its_closed_form(values, alpha):
    """Weights (1 - alpha)^(t - s) over their sum."""
    weights = (1 - alpha) ** np.arange(len(values))[::-1]
    closed = float(np.dot(weights, values) / weights.sum())
    assert exponential_average(values, alpha)[-1] == pytest.approx(closed, abs=1e-6)
    scores = np.array(z_scores(values))
    if np.std(values) > 1e-6:
        assert abs(scores.mean()) < 1e-6 and scores.std() == pytest.approx(1, 1e-6)


def test_steps_become_one_diagnosis_a_question():
    lines = [
        MonitoredStep(
            step=10 * i + 1,
            epoch=i / 5,
            numbers={
                "gradient_norm": 1.0 + i,
                "gradient_norm/mean": 0.5 * i,
                "hessian": -2.0,
                "mean/adversarial": float(i),
                "variance/adversarial": 1.0,
                "wasserstein/clean": 2.0,
                "wasserstein/adversarial": 4.0,
            },
        )
        for i in range(5)
    ]
    answers = {d.question: d for d in over_training(lines)}
    assert list(answers) == [
        "gradient_norm_over_training",
        "hessian_over_training",
        "moments_over_training",
        "wasserstein_over_training",
    ]
    gradient = answers["gradient_norm_over_training"]
    assert gradient.panels[0].series[0].y == (1, 2, 3, 4, 5) and gradient.panels[0].log
    assert gradient.panels[0].series[0].x == (1, 11, 21, 31, 41)
    assert gradient.numbers["mean"] == 3 and gradient.numbers["most"] == 5
    assert gradient.numbers["end"] == 5
    assert gradient.numbers["mean of norms"] == 1
    assert gradient.numbers["mean of norms, end"] == 2
    assert "mean of norms" not in answers["hessian_over_training"].numbers
    assert not answers["hessian_over_training"].panels[0].log  # it may be negative
    spread = answers["moments_over_training"].numbers
    assert spread["relative spread of the mean, adversarial"] == pytest.approx(2**0.5 / 2)
    assert spread["relative spread of the variance, adversarial"] == 0
    assert spread["jumps of the mean, adversarial"] == pytest.approx(1 / 2**0.5)
    assert spread["jumps of the variance, adversarial"] == 0
    distance = answers["wasserstein_over_training"]
    assert (
        distance.numbers["clean, end"] == 2 and distance.numbers["adversarial, mean"] == 4
    )
    assert over_training([]) == []


def test_the_peak_of_a_distance_is_of_the_second_half():
    values = (9.0, 8.0, 1.0, 3.0, 2.0)
    lines = [
        MonitoredStep(step=i, epoch=i, numbers={"wasserstein/clean": value})
        for i, value in enumerate(values, start=1)
    ]
    (diagnosis,) = over_training(lines)
    assert diagnosis.numbers == {"clean, mean": 4.6, "clean, end": 2.0, "clean, peak": 3.0}


def test_jumps_do_not_depend_on_level_or_scale_and_one_step_has_none():
    values = (3.0, 1.0, 4.0, 1.0, 5.0)
    assert jumps([2 - 3 * value for value in values]) == pytest.approx(jumps(values))
    smooth, rough = (1.0, 2.0, 3.0, 4.0), (1.0, 4.0, 2.0, 3.0)
    assert jumps(smooth) < jumps(rough)
    assert jumps([7.0]) == 0
