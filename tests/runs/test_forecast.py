"""Times of this machine: counts against real calls and by hand, and the kept calibration."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from advnorm import cli
from advnorm.data import Batch
from advnorm.evaluation import parse_conditions, run_condition
from advnorm.recipe import Recipe, override
from advnorm.runs import forecast as forecasts
from advnorm.runs.devices import DEVICES
from advnorm.runs.forecast import (
    Accuracies,
    Calibration,
    CallCost,
    Machine,
    calibrate,
    forecast,
    stopwatch,
    store,
    table,
)
from advnorm.runs.forecast.calibration import Timing, digest, folder
from advnorm.runs.forecast.workload import Piece, pieces
from advnorm.runs.plan import table as plan_table
from advnorm.threat import Linf

TINY = override(
    Recipe(),
    [
        "data={name: digits, train: 100, test: 50}",
        "model.options={depth: 1, width: 6}",
        "batch_size=20",
        "epochs=3",
        "attack.steps=4",
        "validation={samples: 30, steps: 2, every: 2}",
        "evaluation={conditions: [clean, pgd-5x2], threat: {eps: 0.1}, batch_size: 20}",
    ],
)
MACHINE = Machine(
    processor="A", cores=2, device="cpu", threads=1, torch="2.10", advnorm="0.1"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def of(recipe=TINY, **changes):
    """Make a calibration up; every cost has numbers of its own."""
    work = {
        "clean": CallCost(row=1.0),
        "pgd linf float32": CallCost(row_step=1.0),
        "apgd_dlr linf float32": CallCost(call=7.0),
        "ibp linf 0.1": CallCost(call=3.0, row=2.0),
        "crown-ibp linf 0.1": CallCost(row=4.0),
        "crown linf 0.1": CallCost(row=8.0),
    }
    fields = {
        "recipe": digest(recipe),
        "machine": MACHINE,
        "start": 1000.0,
        "load": 50.0,
        "save": 100.0,
        "steps": {"attacked": CallCost(call=2.0, step=0.5), "clean": CallCost(call=0.25)},
        "work": work,
        "unmeasured": {},
    }
    return Calibration(**fields | changes)


# What a call costs


@given(
    *(st.floats(0, 10).filter(lambda x: x == 0 or x > 1e-3) for _ in range(3)),
    st.floats(1e-3, 10),
)
@settings(max_examples=40, deadline=None)
def test_a_fit_of_exact_times_predicts_other_sizes(call, row, step, row_step):
    real = CallCost(call=call, row=row, step=step, row_step=row_step)
    sizes = [(n, p) for n in (4, 64) for p in (3, 12)]
    fitted = CallCost.fit([Timing(n, p, real.seconds(n, p)) for n, p in sizes])
    for rows, passes in ((1, 1), (250, 300), (64, 40)):
        expected = real.seconds(rows, passes)
        assert fitted.seconds(rows, passes) == pytest.approx(expected, rel=1e-2, abs=1e-2)


def test_a_fit_of_noise_is_never_negative():
    noisy = [Timing(1, 1, 2.0), Timing(8, 1, 1.0), Timing(1, 4, 1.5), Timing(8, 4, 0.5)]
    fitted = CallCost.fit(noisy)
    assert min(fitted.model_dump().values()) >= 0 and fitted.seconds(100, 100) > 0


def test_one_timing_without_passes_is_a_cost_of_a_call():
    assert CallCost.fit([Timing(32, 0, 0.5)]).seconds(32, 0) == pytest.approx(0.5)


# How often


def condition(name, eps=0.1):
    (parsed,) = parse_conditions([name], [Linf(eps)], (0.0, 1.0), shape=(1, 8, 8))
    return parsed


def test_pieces_of_an_attack_by_hand():
    """45 images in batches of 20, 80% classified correctly, half robust; PGD drops none."""
    work = list(pieces(condition("pgd-5x2"), 45, 20, Accuracies(0.8, 0.5)))
    assert work == [
        Piece("clean", 20, 1, 2),
        Piece("pgd linf float32", 16, 15, 2),
        Piece("pgd linf float32", 10, 15, 2),
        Piece("clean", 5, 1, 1),
        Piece("pgd linf float32", 4, 15, 1),
        Piece("pgd linf float32", 2.5, 15, 1),
    ]


def test_pieces_of_a_suite_by_hand():
    """The first attack breaks what breaks, after a tenth of its steps."""
    work = list(pieces(condition("standard"), 100, 100, Accuracies(0.9, 0.5)))
    assert work == [
        Piece("clean", 100),
        Piece("apgd_ce linf float32", pytest.approx(50 + 4), 300),
        Piece("apgd_t linf float32", 50, 2700),
        Piece("fab_t linf float32", 50, 2700),
        Piece("square linf float32", 50, 5000),
    ]


def test_a_certificate_and_a_radius_of_0_by_hand():
    assert list(pieces(condition("crown"), 10, 20, Accuracies(0.5, 0.0))) == [
        Piece("clean", 10),
        Piece("ibp linf 0.1", 5),
        Piece("crown-ibp linf 0.1", 5),
        Piece("crown linf 0.1", 5),
    ]
    assert list(pieces(condition("pgd-5", eps=0), 10, 20, Accuracies())) == [
        Piece("clean", 10)
    ]


class Counting(nn.Module):
    """Counts the images of passes with and without a gradient; it cannot be folded."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(64, 10)
        self.gradients = self.plain = 0
        self.linear.register_forward_hook(self.count)

    def count(self, layer, inputs, output):
        if torch.is_grad_enabled() and inputs[0].requires_grad:
            self.gradients += len(output)
        else:
            self.plain += len(output)

    def forward(self, x):
        return self.linear(x.flatten(1))


@pytest.mark.parametrize(
    "name", ["fgsm", "bim-4", "pgd-5", "pgd-5x3", "apgd_ce-6", "apgd_dlr-5x2", "apgd_t-4"]
)
def test_counts_are_those_of_real_calls(name):
    """Of 20 images 12 are classified correctly, and the ball is too small to break any."""
    model, images = Counting(), torch.rand(20, 1, 8, 8)
    labels = model(images).argmax(1)
    labels[12:] = (labels[12:] + 1) % 10
    model.gradients = 0
    parsed = condition(name, eps=1e-6)
    batch = [
        Batch(images[a:b], labels[a:b], torch.arange(a, b)) for a, b in ((0, 10), (10, 20))
    ]
    verdicts = run_condition(model, batch, parsed, total=20)
    assert sum(verdicts.robust) == 12
    attacks = [p for p in pieces(parsed, 20, 10, Accuracies(0.6, 0.6)) if p.work != "clean"]
    assert attacks
    counted = sum(p.rows * p.passes * p.calls for p in attacks)
    assert 3 * model.gradients == pytest.approx(counted)


# Counts times costs


def test_training_by_hand():
    """3 epochs of 5 steps with 4 attack steps, validated after epoch 2 and the last."""
    recipe = override(TINY, ["data.validation=0.5"])  # fewer than samples: 50
    expected_steps = 3 * 5 * (2.0 + 0.5 * 4)
    validated = 30 + (30 + 30 * 6) + (30 + 7)  # clean, pgd-2, apgd_dlr
    result = forecast(recipe, of(recipe))
    assert result.steps == expected_steps
    assert result.validation == 2 * validated
    assert result.other == 1000 + 3 * 100
    assert result.training == expected_steps + 2 * validated + 1300


def test_kinds_of_steps_have_their_own_costs():
    ramp = override(TINY, ["threat.schedule={kind: ramp, first: 1, last: 2}"])
    result = forecast(ramp, of(ramp))
    clean, attacked = 6, 9  # radius 0 also at the first step of epoch 1
    assert result.steps == clean * 0.25 + attacked * 4.0


def test_attacks_that_grow_longer_count_each_of_their_steps():
    recipe = override(TINY, ["attack.steps_schedule={kind: ramp, last: 2}"])
    lengths = [1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4]  # of 0, 0.4, 0.8, ... 4
    expected = 15 * 2.0 + 0.5 * sum(lengths)
    assert forecast(recipe, of(recipe)).steps == pytest.approx(expected)


def test_evaluation_and_certificates_by_hand():
    result = forecast(TINY, of(), Accuracies(0.5, 0.25))
    assert result.evaluation == {
        "clean": 50.0,
        "pgd-5x2_linf_0.1": 50 + (25 + 12.5) * 15,
    }
    assert result.evaluated == 50 + sum(result.evaluation.values())
    assert result.certificates == {
        "ibp_linf_0.1": 50 + 3 * 3 + 25 * 2,
        "crown-ibp_linf_0.1": 50 + 3 * 3 + 25 * (2 + 4),
        "crown_linf_0.1": 50 + 3 * 3 + 25 * (2 + 4 + 8),
    }


def test_the_first_call_of_a_piece_counts_once():
    costs = of().work | {"clean": CallCost(row=1.0, first=9.0)}
    result = forecast(TINY, of(work=costs), Accuracies(0, 0))
    assert result.evaluation == {"clean": 59.0, "pgd-5x2_linf_0.1": 50.0}


def test_what_was_not_timed_is_a_question_mark_with_a_reason():
    costs = {k: v for k, v in of().work.items() if not k.startswith("crown ")}
    calibration = of(work=costs, unmeasured={"crown linf 0.1": "no rule for Softsign"})
    recipe = override(TINY, ["evaluation.conditions=[clean, fgsm]"])
    result = forecast(recipe, calibration)
    assert result.evaluation["fgsm_linf_0.1"] is None and result.evaluated is None
    text = table(result, calibration, Accuracies())
    assert "? crown linf 0.1: no rule for Softsign" in text
    assert "? fgsm linf float32: not in the calibration" in text
    assert "100% of the samples are classified correctly, 100% also under attack" in text


# The kept calibration


@pytest.mark.parametrize(
    "change",
    [
        "name=other",
        "epochs=7",
        "attack.steps=9",
        "threat.eps=0.2",
        "data.train=50",
        "evaluation.samples=10",
        "evaluation.conditions=[clean]",
        "validation.samples=5",
        "optimizer.lr=0.5",
    ],
)
def test_what_is_counted_needs_no_other_calibration(change):
    assert digest(override(TINY, [change])) == digest(TINY)


@pytest.mark.parametrize(
    "change",
    [
        "model.options={depth: 2, width: 6}",
        "norm.name=none",
        "data.size=16",
        "data.augment=crop_flip",
        "objective.name=trades",
        "gradient.name=sam",
        "batch_size=10",
        "precision=float64",
        "attack.precision=bfloat16",
        "optimizer.name=adam",
        "compile=true",
        "threat.norm=l2",
        "evaluation.batch_size=10",
    ],
)
def test_what_changes_a_pass_needs_its_own(change):
    assert digest(override(TINY, [change])) != digest(TINY)


def test_a_stored_calibration_is_read_back():
    path = store(of())
    assert path.is_relative_to(folder())
    assert forecasts.load(TINY, MACHINE) == (of(), "")
    assert forecasts.load(override(TINY, ["norm.name=none"]), MACHINE) == (None, "")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"threads": 2}, "threads 1, now 2"),
        ({"torch": "2.11"}, "torch 2.10, now 2.11"),
        ({"processor": "B"}, "processor A, now B"),
        ({"device": "cuda:0"}, "device cpu, now cuda:0"),
        ({"advnorm": "9", "cores": 8}, "cores 2, now 8; advnorm 0.1, now 9"),
    ],
)
def test_another_machine_is_recognized(changed, words):
    store(of())
    calibration, problem = forecasts.load(TINY, MACHINE.model_copy(update=changed))
    assert calibration is None
    assert problem == (
        f"the calibration is outdated ({words}): measure this machine again with "
        "--calibrate"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"recipe": 3}',
        of().model_dump_json().replace('"start":1000.0', '"start":-1').encode(),
        of().model_dump_json().replace('"start":1000.0', '"start":"NaN"').encode(),
        of().model_dump_json().replace('"load"', '"lode"').encode(),
    ],
)
def test_a_damaged_calibration_is_named_and_not_used(content):
    path = store(of())
    path.write_bytes(content)
    calibration, problem = forecasts.load(TINY, MACHINE)
    assert calibration is None
    assert str(path) in problem and "--calibrate" in problem and "\n" not in problem


def test_a_calibration_under_the_name_of_another_is_not_used():
    other = override(TINY, ["norm.name=none"])
    store(of(other)).rename(folder() / f"{digest(TINY)}.json")
    assert "of another recipe" in forecasts.load(TINY, MACHINE).problem


# The command


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["advnorm", "plan", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0, capsys.readouterr()


CHANGES = [
    "--set=data={name: digits, train: 100, test: 50}",
    "--set=model.options={depth: 1, width: 6}",
    "--set=batch_size=20",
    "--set=evaluation={conditions: [clean, pgd-5, square-20], threat: {eps: 0.1}}",
]


def changed_recipe():
    from advnorm.recipes import find

    return override(find("digits.pgd"), [c.removeprefix("--set=") for c in CHANGES])


def test_without_a_calibration_plan_says_what_it_always_said(monkeypatch, capsys):
    code, output = call(monkeypatch, capsys, "digits.pgd", *CHANGES)
    assert code == 0 and output.out == plan_table(changed_recipe(), DEVICES) + "\n"


def test_plan_calibrates_once_and_then_predicts(monkeypatch, capsys):
    monkeypatch.setattr(stopwatch, "PATIENCE", 0.02)
    monkeypatch.setattr(stopwatch, "LONG", 0.05)
    code, output = call(monkeypatch, capsys, "digits.pgd", *CHANGES, "--calibrate")
    assert code == 0 and "\ntraining  " in output.out and "pgd-5_linf_0.1" in output.out
    code, again = call(monkeypatch, capsys, "digits.pgd", *CHANGES, "--set=epochs=300")
    assert code == 0 and "\ntraining  " in again.out and "?" not in again.out
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        code, other = call(monkeypatch, capsys, "digits.pgd", *CHANGES)
    finally:
        torch.set_num_threads(threads)
    assert code == 0 and "\ntraining  " not in other.out
    assert f"outdated (threads {threads}, now {threads + 1})" in other.out


def test_a_calibration_leaves_the_random_state_and_times_every_part(monkeypatch):
    monkeypatch.setattr(stopwatch, "PATIENCE", 0.02)
    monkeypatch.setattr(stopwatch, "LONG", 0.05)
    before = torch.get_rng_state()
    recipe = override(TINY, ["threat.schedule={kind: ramp, first: 1, last: 2}"])
    calibration = calibrate(recipe, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert set(calibration.steps) == {"clean", "attacked"}
    result = forecast(recipe, calibration)
    assert not result.reasons and result.training and result.evaluated
    assert all(result.certificates.values()) and len(result.certificates) == 3


def test_a_model_without_certificates_is_planned_with_the_reason(monkeypatch):
    monkeypatch.setattr(stopwatch, "PATIENCE", 0.02)
    monkeypatch.setattr(stopwatch, "LONG", 0.05)
    recipe = override(TINY, ["threat={norm: l0, eps: 3}", "evaluation.threat.eps=3"])
    calibration = calibrate(recipe, device="cpu")
    result = forecast(recipe, calibration)
    assert result.certificates == {} and result.training and result.evaluated


@pytest.mark.parametrize("text", ["0.9", "0.5,0.9", "1.2,1", "a,b", "0.9,-0.1", "nan,0"])
def test_accuracies_that_cannot_be_are_refused(monkeypatch, capsys, text):
    code, output = call(monkeypatch, capsys, "digits.pgd", f"--accuracy={text}")
    assert code == 2 and "write the clean accuracy, a comma" in output.err
