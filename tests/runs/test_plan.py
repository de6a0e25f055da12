"""What a recipe costs, against counts by hand and against real models."""

import sys

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from advnorm import cli
from advnorm.objectives import OBJECTIVES
from advnorm.recipe import Recipe, RecipeError, override
from advnorm.recipes import RECIPES, find
from advnorm.runs import operation_counter
from advnorm.runs.devices import DEVICES, Device
from advnorm.runs.plan import SETS, plan, table
from advnorm.training import build_model
from advnorm.training.user_inputs import passed_in_python

MLP = ["model={name: mlp, options: {depth: 1, width: 10}}", "batch_size=8"]
FORWARD = 2 * (64 * 10 + 10 * 10)  # digits: 64 pixels, 10 hidden, 10 classes
FIRST = 2 * 64 * 10  # the first layer's share


def plan_of(*changes):
    return plan(override(Recipe(), [*MLP, "attack.steps=3", *changes]))


# A pass of an attack is forward and backward to the input; a training pass is forward,
# backward to the weights, and to the inputs of all layers but the first.
ATTACK = 3 * 2 * FORWARD
TRAIN = 3 * FORWARD - FIRST


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("standard", TRAIN),
        ("pgd", ATTACK + TRAIN),
        ("mixed", ATTACK + 2 * TRAIN),
        ("alp", ATTACK + 2 * TRAIN),
        ("trades", FORWARD + ATTACK + 2 * TRAIN),
    ],
)
def test_a_step_by_hand(objective, expected):
    cost = plan_of(f"objective.name={objective}", "norm.name=none")
    assert cost.forward == FORWARD
    assert cost.step == 8 * expected


@pytest.mark.parametrize(
    ("rule", "second"),
    [
        ("{name: sam}", 1),
        ("{name: apart, groups: 2}", 1),
        ("{name: apart_sam, samples: 4}", 0.5),
    ],
)
def test_a_second_pass_by_hand(rule, second):
    """SAM and APART: one more pass over all or some samples, no second attack."""
    cost = plan_of("norm.name=batch", f"gradient={rule}")
    assert cost.step == 8 * (ATTACK + TRAIN + second * TRAIN)


def test_parameters_epochs_and_state_by_hand():
    cost = plan_of("norm.name=none", "data.train=100", "optimizer.name=adam")
    assert cost.parameters == 64 * 10 + 10 + 10 * 10 + 10
    assert cost.steps_per_epoch == 12 and cost.epoch == 12 * cost.step
    assert cost.state == 4 * 4 * cost.parameters  # weight, gradient, two moments
    for name, momentum, copies in (("sgd", 0, 2), ("sgd", 0.9, 3), ("rmsprop", 0.9, 4)):
        other = plan_of(
            f"optimizer={{name: {name}, momentum: {momentum}}}", "norm.name=none"
        )
        assert other.state == 4 * copies * other.parameters


FIVE = ["norm.name=none", "data.train=40"]  # steps an epoch


def test_epochs_of_crown_ibp_cost_what_they_do():
    """Clean up to epoch 1, by both bounds until epoch 3, by intervals alone from there."""
    ramp = "{kind: ramp, first: 1, last: 3, start: %d, stop: %d}"
    cost = plan_of(
        *FIVE,
        "epochs=5",
        f"threat.schedule={ramp % (0, 1)}",
        f"objective={{name: crown_ibp, beta_schedule: {ramp % (1, 0)}}}",
    )
    clean, both, ibp = (
        plan_of(*FIVE, f"objective={objective}")
        for objective in ("{name: standard}", "{name: crown_ibp, beta: 0.5}", "{name: ibp}")
    )
    assert clean.step < ibp.step < both.step
    assert cost.training == 6 * clean.step + 9 * both.step + 10 * ibp.step
    assert cost.epoch == cost.training // 5
    assert cost.step == both.step and cost.activations == both.activations


def test_a_bound_that_gains_weight_later_is_counted():
    """At epoch 0 beta is 0, from epoch 1 on 1; in between there are gradients of both."""
    rises = "objective={name: crown_ibp, beta_schedule: {kind: ramp, last: 1}}"
    crown, both, ibp = (
        plan_of(*FIVE, f"objective={objective}")
        for objective in (
            "{name: crown_ibp}",
            "{name: crown_ibp, beta: 0.5}",
            "{name: ibp}",
        )
    )
    assert ibp.step < crown.step < both.step
    cost = plan_of(*FIVE, "epochs=2", rises)
    assert cost.training == ibp.step + 4 * both.step + 5 * crown.step


def test_steps_without_a_radius_or_with_shorter_attacks_by_hand():
    radius = plan_of(*FIVE, "epochs=2", "threat.schedule={kind: ramp, first: 0.5, last: 1}")
    assert radius.training == 8 * (10 * TRAIN + 7 * ATTACK)  # not at 0, 0.2 and 0.4
    shorter = plan_of(*FIVE, "epochs=2", "attack.steps_schedule={kind: ramp, last: 2}")
    lengths = [1, 1, 1, 1, 1, 2, 2, 2, 2, 3]  # of 0, 0.3, ... 2.7, to the nearest
    assert shorter.training == 8 * (10 * TRAIN + sum(lengths) * 2 * FORWARD)
    assert shorter.step == 8 * (TRAIN + ATTACK)


@pytest.mark.parametrize(
    "objective",
    [
        "{name: mixed, gamma_schedule: {kind: ramp, last: 2, start: 1, stop: 0}}",
        "{name: mixed_kl, beta_schedule: {kind: ramp, last: 1}}",
    ],
)
def test_a_weight_of_what_is_computed_anyway_changes_no_cost(objective):
    cost = plan_of(*FIVE, "epochs=3", f"objective={objective}")
    name = objective[1:].partition(",")[0]
    assert cost.training == 15 * plan_of(*FIVE, f"objective={{{name}}}").step


def test_schedules_of_rates_and_later_epochs_change_no_epoch():
    schedule = "optimizer.schedule={kind: cosine, end: 4}"
    cost = plan_of(*FIVE, "epochs=4", schedule, "norm.freeze_epochs=1", "data.mixup=1")
    assert cost.training == 4 * cost.epoch == 20 * cost.step == 20 * plan_of(*FIVE).step


def test_the_table_says_what_is_an_average():
    even = override(Recipe(), [*MLP, *FIVE, "epochs=2"])
    text = table(even, DEVICES)
    assert "\none step  " in text and "\none epoch  " in text
    uneven = override(even, ["threat.schedule={kind: ramp, last: 1}"])
    text, planned = (
        table(uneven, {"made": Device(1e-9, 1e-9, memory=1, source="")}),
        plan(uneven),
    )
    assert planned.training == 10 * planned.step - 8 * 10 * 2 * FORWARD
    assert "\nthe longest step " in text and "\none epoch on average " in text
    hours = planned.training / (0.4e3 * 3600)
    assert f"{hours / 2:.4f} h" in text and f"{hours:.3f} h" in text


def test_a_part_of_one_sample_is_refused_as_in_training():
    with pytest.raises(RecipeError, match="a batch of 8 passes by 1 at a time"):
        plan_of("optimizer.accumulate=8", "norm.name=batch")


def test_hours_by_hand():
    device = Device(single=10.0, half=20.0, memory=1, source="made up")
    assert device.hours(3600 * 10e12, half=False) == pytest.approx(1 / 0.4)
    assert device.hours(3600 * 10e12, half=True) == pytest.approx(0.5 / 0.4)


def test_a_network_in_memory_is_planned_with_converted_norms():
    layers = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten()
    model = torch.nn.Sequential(*layers, torch.nn.Linear(144, 10))
    recipe, before = override(Recipe(), ["norm.apply=convert"]), torch.get_rng_state()
    with passed_in_python(recipe, model, None) as own:
        plans = [plan(override(own, [f"norm.name={name}"])) for name in ("group", "none")]
    assert [each.parameters for each in plans] == [40 + 8 + 1450, 40 + 1450]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(not parameter.is_meta for parameter in model.parameters())


def test_a_convolution_by_hand_and_by_a_real_model():
    """The small CNN: 16 maps of 4x4 on 13x13 places, 32 of 4x4x16 on 10x10, 100, 10."""
    recipe = override(find("mnist.pgd_small"), ["norm.name=none", "attack.steps=2"])
    by_hand = 13 * 13 * 16 * 16 + 10 * 10 * 32 * 16 * 16 + 3200 * 100 + 100 * 10
    assert plan(recipe).forward == 2 * by_hand
    digits = override(recipe, ["data.name=digits", "data.size=28"])
    from advnorm.training import load_data

    model = build_model(digits, load_data(digits, root=None)).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, 1, 28, 28))
    assert counter.get_total_flops() == 2 * by_hand


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_every_objective_is_counted(objective):
    cost = plan_of(f"objective.name={objective}", "norm.name=none")
    assert cost.step >= 8 * TRAIN and cost.activations > 0


@pytest.mark.parametrize(
    "changes",
    [
        ["objective.name=pgd", "gradient={name: apart, groups: 2}"],
        ["objective.name=mixed_kl", "norm.name=dual"],
        ["objective.name=crown_ibp", "norm.name=none"],
    ],
)
def test_what_is_remembered_of_a_shape_changes_no_count(changes, monkeypatch):
    deep = ["model={name: mlp, options: {depth: 4, width: 10}}", "data.size=9", *changes]
    remembered = plan_of(*deep)
    monkeypatch.setattr(operation_counter, "_key", lambda func, args, kwargs: None)
    assert plan_of(*deep) == remembered


def test_a_remembered_result_is_as_new():
    """Shape, strides, kind and memory of its own; views and scalars are told apart."""
    x = torch.empty(2, 3, 4, 4, device="meta").contiguous(memory_format=torch.channels_last)
    with operation_counter.OperationCounter() as counter:
        one, two = x + 1, x + 1
        whole, real = (x.int().contiguous() + y for y in (1, 1.0))
        pooled = [F.max_pool2d(x, 2, return_indices=True) for _ in range(2)]
        shared = [torch.ops.aten._unsafe_view(whole, (6, 16)) for _ in range(2)]
    assert two.stride() == x.stride() == one.stride() and counter.flops == 0
    assert two.untyped_storage()._cdata != one.untyped_storage()._cdata
    assert (whole.dtype, real.dtype) == (torch.int32, torch.float32)
    assert [t.dtype for t in pooled[1]] == [torch.float32, torch.int64]
    assert [t.shape for t in pooled[1]] == [t.shape for t in pooled[0]]
    assert {t.untyped_storage()._cdata for t in shared} == {whole.untyped_storage()._cdata}


def test_more_steps_cost_the_same_each():
    steps = [plan_of(f"attack.steps={k}").step for k in (1, 2, 7)]
    assert steps[2] - steps[0] == 6 * (steps[1] - steps[0]) > 0


def test_a_batch_twice_as_large_keeps_twice_as_much():
    one, two = plan_of("batch_size=8"), plan_of("batch_size=16")
    assert 1.9 < two.activations / one.activations <= 2.0
    assert plan_of("precision=bfloat16").activations == pytest.approx(one.activations / 2)


def test_nothing_is_allocated():
    """A model of 10^13 weights is planned."""
    cost = plan_of("model.options.width=1000000", "model.options.depth=11")
    assert cost.parameters > 10**13


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_can_be_planned(name):
    recipe = find(name)
    assert recipe.data.name in SETS
    cost = plan(recipe)
    assert cost.step > cost.forward * recipe.batch_size > 0
    assert all(device in table(recipe, DEVICES) for device in DEVICES)


def test_the_command_names_the_devices(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["advnorm", "plan", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, capsys.readouterr()

    code, output = call("digits.pgd", "--device", "v100")
    assert code == 0 and "v100" in output.out and "a100" not in output.out
    code, output = call("digits.pgd", "--device", "v1000")
    assert code == 2 and "v100" in output.err
