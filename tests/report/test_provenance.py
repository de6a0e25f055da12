"""The commands of a page are those that the command line understands."""

import shlex
from hashlib import sha256

import pytest

from advnorm.cli.settings import evaluation_settings
from advnorm.recipe import Recipe, override
from advnorm.report.groups import load_groups
from advnorm.report.provenance import provenance


def commands_of(run):
    ((member,),) = [group.members for group in load_groups([run])]
    return provenance(member)


@pytest.fixture
def run(maker):
    run = maker.run("a b")
    maker.train(run, epochs=2)
    maker.result(run, "clean", 900)
    maker.result(run, "pgd-20x2", 500, eps=8 / 255)
    maker.result(run, "pgd-20x2", 600, eps=0.1)
    maker.result(run, "fgsm", 600, eps=0.5, norm="l2")
    maker.result(run, "clean", 50, data="mnist-c:fog", other=True, n=70)
    return run


def test_digests_and_weights_are_those_of_the_run(run):
    origin = commands_of(run)
    assert origin.recipe == sha256((run.path / "recipe.yaml").read_bytes()).hexdigest()
    assert origin.weights == ("best",)


def test_training_comes_first_and_then_every_evaluation(run):
    first, *others = commands_of(run).commands.splitlines()
    path = str(run.path / "recipe.yaml")
    assert shlex.split(first) == ["advnorm", "train", path, "--out", "again/a b"]
    read = [shlex.split(line) for line in others]
    assert all(line[:3] == ["advnorm", "evaluate", "again/a b"] for line in read)
    specs = [
        override(Recipe(), evaluation_settings(line[4::2])).evaluation for line in read
    ]
    tested = [(s.data, s.conditions, s.threat.norm, s.threat.eps, s.samples) for s in specs]
    assert (None, ("pgd-20x2",), None, (8 / 255, 0.1), 1000) in tested
    assert (None, ("fgsm", "clean"), "l2", (0.5,), 1000) in tested
    assert ("mnist-c:fog", ("clean",), None, (), 70) in tested and len(tested) == 3


def test_an_adaptive_search_is_a_command_of_its_own(run, maker):
    layers = {"adapt.layers.hidden.1": "identity", "adapt.layers.0": "tanh"}
    settings = {"steps": 20, **layers, "adapt.draws": 5}
    maker.result(run, "pgd-20+adapt", 5, eps=0.1, n=70, settings=settings)
    lines = [shlex.split(line) for line in commands_of(run).commands.splitlines()]
    specs = [
        override(Recipe(), evaluation_settings(line[4::2])).evaluation for line in lines[1:]
    ]
    (adaptive,) = [spec for spec in specs if spec.adapt.layers]
    assert adaptive.adapt.layers == {"hidden.1": "identity", "0": "tanh"}
    assert (adaptive.adapt.draws, adaptive.conditions) == (5, ("pgd-20",))
    assert len(specs) == 4


def test_a_run_that_was_not_trained_is_evaluated_where_it_is(maker):
    run = maker.run("bare")
    maker.result(run, "clean", 5, n=9)
    (line,) = commands_of(run).commands.splitlines()
    assert shlex.split(line)[:3] == ["advnorm", "evaluate", str(run.path)]


def test_both_branches_are_asked_for(maker):
    plain, mixture = maker.branches()
    assert "evaluation.branch=worst" in commands_of(mixture).commands
    assert "evaluation.branch" not in commands_of(plain).commands
