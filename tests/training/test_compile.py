"""``compile: auto``: a trial decides once, and the run keeps to the decision."""

from functools import partial

import pytest
import torch
from torch._inductor import config as inductor

from advnorm.progress import Quiet
from advnorm.recipe import Recipe, RecipeError, from_yaml, override, to_yaml
from advnorm.records import CompileDecision, Run
from advnorm.training import build_experiment, compile_trial, train
from advnorm.training.compile_trial import decide, weigh
from advnorm.training.step import Stepper

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler

SMALL = override(
    Recipe(),
    [
        "data={name: digits, train: 96, test: 20}",
        "model.options={depth: 1, width: 6}",
        "batch_size=24",
        "attack.steps=2",
        "validation={samples: 10, steps: 1}",
        "epochs=2",
        "compile=auto",
    ],
)
LONG = ["epochs=100000"]  # so that a trial is worth its time


@pytest.fixture
def no_code_generator(monkeypatch):
    """Compile without C++: the graphs are traced for real, and run as they are."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    yield
    torch._dynamo.reset()


def experiment(*changes):
    return build_experiment(override(SMALL, changes), root=None, device="cpu")


class Clock:
    """Reads 0 when a step begins, and its length when it ends."""

    def __init__(self, *lengths):
        self.lengths, self.now, self.inside = iter(lengths), 0.0, False

    def __call__(self):
        self.inside = not self.inside
        self.now += 0.0 if self.inside else next(self.lengths)
        return self.now


# (steps, eager, compiled, compiling): what compiling saves against what it takes
@pytest.mark.parametrize(
    ("numbers", "compiles"),
    [
        ((100, 1.0, 0.5, 49.0), True),
        ((100, 1.0, 0.5, 50.0), False),  # the same: nothing is gained
        ((100, 1.0, 0.5, 51.0), False),
        ((10**6, 1.0, 1.0, 0.0), False),
        ((10**6, 1.0, 1.5, 0.0), False),
        ((1, 10.0, 1.0, 8.0), True),
    ],
)
def test_compiling_pays_where_it_saves_more_than_it_takes(numbers, compiles):
    steps, eager, compiled, compiling = numbers
    decision = weigh(steps, eager=eager, compiled=compiled, compiling=compiling)
    assert decision.compiles is compiles
    times = (decision.eager_step, decision.compiled_step, decision.compiling)
    assert times == (eager, compiled, compiling)


@pytest.mark.parametrize(("compile_seconds", "compiles"), [(3.5, True), (4.5, False)])
def test_the_trial_counts_the_steps_of_this_run(
    no_code_generator, compile_seconds, compiles
):
    """8 steps of 1 s, or of 0.5 s after compiling: 4 s are saved."""
    eager = [9.0, 1.0, 1.0, 1.0, 1.0]
    compiled = [compile_seconds + 0.5, 0.5, 0.5, 0.5, 0.5]
    decision = decide(experiment(), clock=Clock(*eager, *compiled))
    assert decision.compiles is compiles
    assert decision.eager_step == 1.0 and decision.compiled_step == 0.5
    assert decision.compiling == compile_seconds
    assert decision.reason.startswith("8 steps of 1 s")


def test_a_trial_leaves_no_trace(no_code_generator):
    trial = experiment(*LONG)
    before = {k: v.clone() for k, v in trial.model.state_dict().items()}
    state, training = torch.get_rng_state(), trial.model.training
    decision = decide(trial)
    assert decision.compiled_step is not None
    after = trial.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), state)
    assert trial.model.training == training
    assert all(p.grad is None and p.requires_grad for p in trial.model.parameters())
    assert not trial.optimizer.state


def test_a_short_training_is_not_tried():
    decision = decide(experiment())
    assert not decision.compiles and decision.compiled_step is None
    assert "all 8 steps take about" in decision.reason


def test_without_a_compiler_the_run_is_eager_and_says_so(monkeypatch):
    monkeypatch.setattr(inductor.cpp, "cxx", ("/nowhere/g++",))
    decision = decide(experiment(*LONG))
    assert not decision.compiles and decision.compiled_step is None
    assert "torch.compile failed" in decision.reason and "/nowhere/g++" in decision.reason
    assert "\n" not in str(decision)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["objective.name=ibp"], "bounds the traced graph"),
        (["gradient={name: apart}"], "replaces the batch norms' passes"),
        (["monitor.questions=[moments]"], "looks at the features"),
    ],
)
def test_where_compile_is_refused_auto_is_eager(changes, words):
    assert words in decide(experiment(*changes)).reason
    with pytest.raises(RecipeError):
        experiment(*changes, "compile=true")


def test_the_run_records_what_was_decided(tmp_path):
    run = train(SMALL, tmp_path / "run")
    assert run.compile_decision() == Run.open(run.path).compile_decision()
    assert run.compile_decision().compiles is False
    assert from_yaml(run.recipe_text()).compile == "auto"
    plain = train(override(SMALL, ["compile=false"]), tmp_path / "plain")
    assert plain.compile_decision() is None and not (plain.path / "compile.json").exists()


def test_auto_trains_bitwise_what_it_decided(tmp_path, fingerprint):
    auto = train(SMALL, tmp_path / "auto")
    eager = train(override(SMALL, ["compile=false"]), tmp_path / "eager")
    assert fingerprint(auto) == fingerprint(eager)


@pytest.mark.parametrize("compiles", [True, False])
def test_a_resumed_run_keeps_to_the_decision(
    no_code_generator, tmp_path, fingerprint, monkeypatch, compiles
):
    decision = CompileDecision(compiles=compiles, reason="as the test says")
    monkeypatch.setattr(compile_trial, "decide", lambda experiment: decision)
    compiled, original = [], torch.compile
    monkeypatch.setattr(torch, "compile", lambda m: compiled.append(1) or original(m))
    whole = train(SMALL, tmp_path / "whole")
    assert len(compiled) == compiles
    out = tmp_path / "run"
    train(override(SMALL, ["epochs=1"]), out)
    text = to_yaml(SMALL)
    (out / "recipe.yaml").write_text(text)

    def refuse(experiment):
        raise AssertionError("a resumed run does not try again")

    monkeypatch.setattr(compile_trial, "decide", refuse)
    torch._dynamo.reset()  # as in another process
    resumed = train(SMALL, out, resume=True)
    assert len(compiled) == 3 * compiles
    assert fingerprint(resumed) == fingerprint(whole)


def test_a_lost_decision_is_made_again_and_said(tmp_path):
    lines = []

    class Lines(Quiet):
        def line(self, text):
            lines.append(text)

    out = tmp_path / "run"
    train(override(SMALL, ["epochs=1"]), out)
    (out / "recipe.yaml").write_text(to_yaml(SMALL))
    (out / "compile.json").unlink()
    train(SMALL, out, resume=True, progress=Lines())
    assert any("has lost what compile: auto decided" in line for line in lines)
    assert Run.open(out).compile_decision() is not None


def test_a_damaged_decision_is_named(tmp_path):
    out = tmp_path / "run"
    train(override(SMALL, ["epochs=1"]), out)
    (out / "recipe.yaml").write_text(to_yaml(SMALL))
    (out / "compile.json").write_text('{"compiles": 3}')
    with pytest.raises(ValueError, match=r"compile\.json is damaged"):
        train(SMALL, out, resume=True)


@pytest.mark.slow
def test_a_real_trial_decides_by_what_it_measured():
    decision = decide(experiment(*LONG))
    steps = 100_000 * 4
    eager, compiled = decision.eager_step, decision.compiled_step
    assert compiled is not None and compiled > 0 and decision.compiling > 0
    saves = decision.compiling + steps * compiled < steps * eager
    assert decision.compiles == saves


def test_a_step_outside_of_a_run_is_eager_until_it_is_decided():
    undecided = experiment()
    assert Stepper(undecided).logits is undecided.model
