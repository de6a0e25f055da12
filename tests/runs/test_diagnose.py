"""Questions about a run: its own weights, data and threat, written beside the results."""

import pytest
import torch

from advnorm.diagnosis import QUESTIONS, hessian
from advnorm.norms import mode
from advnorm.recipe import override
from advnorm.records import Diagnosis, Run
from advnorm.runs import diagnose_run, load_trained, parse_questions
from advnorm.training import load_data, train


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a function that trains a tiny recipe with some changes, once each."""
    trained, folder = {}, tmp_path_factory.mktemp("runs")

    def of(tiny, *changes):
        if changes not in trained:
            recipe = override(tiny, ["epochs=1", *changes])
            trained[changes] = train(recipe, folder / str(len(trained))), recipe
        return trained[changes]

    return of


def test_the_answer_is_that_of_the_question_itself(tiny, runs):
    run, recipe = runs(tiny)
    questions = parse_questions(
        ["hessian"], ["hessian.steps=4", "hessian.loss=adversarial"]
    )
    (diagnosis,) = diagnose_run(run, recipe, questions, samples=12, device="cpu")
    data = load_data(recipe, root=None)
    model, weights, _ = load_trained(run, recipe, data, weights="best", warnings=[])
    rows = torch.arange(12)
    images, labels, _ = next(data.test.batches(rows, batch_size=12, device="cpu"))
    again = hessian(
        model.eval(),
        images,
        labels,
        threat=recipe.threat.build(),
        steps=4,
        loss="adversarial",
    )
    assert diagnosis.numbers == again.numbers and diagnosis.settings["n"] == 12
    assert (
        diagnosis.weights == weights and diagnosis.seconds > 0 and diagnosis.branch is None
    )
    assert Run.open(run.path).diagnoses() == [diagnosis]


def test_a_mixture_norm_is_diagnosed_on_the_branch_that_the_recipe_names(tiny, runs):
    changes = ["norm.name=mixture", "objective.name=mixed"]
    run, recipe = runs(tiny, *changes)
    questions = parse_questions(
        ["hessian"], ["hessian.steps=3", "hessian.statistics=running"]
    )
    numbers = []
    for branch in ("adversarial", "clean"):
        chosen = override(recipe, [f"evaluation.branch={branch}"])
        (diagnosis,) = diagnose_run(run, chosen, questions, samples=12, device="cpu")
        assert diagnosis.branch == branch and f"{branch} branch" in str(diagnosis)
        numbers.append(diagnosis.numbers)
    assert numbers[0] != numbers[1]


def test_double_precision_runs_are_diagnosed_in_double(tiny, runs):
    run, recipe = runs(tiny, "precision=float64")
    questions = parse_questions(["hessian"], ["hessian.steps=2"])
    (diagnosis,) = diagnose_run(run, recipe, questions, samples=8, device="cpu")
    assert diagnosis.numbers["largest"] > 0


def test_questions_that_do_not_apply_are_left_out_of_all_and_reported(tiny, runs):
    run, recipe = runs(tiny)
    questions = dict(parse_questions(["hessian"], ["hessian.steps=2"]))

    def refuses(*_, **__):
        raise ValueError("the model has no batch norm")

    questions = {"impossible": refuses, **questions}
    lines = []

    class Lines:
        def update(self, done, total, text):
            pass

        def line(self, text):
            lines.append(text)

    diagnosis = diagnose_run(run, recipe, questions, samples=8, skip=True, progress=Lines())
    assert [d.question for d in diagnosis] == ["hessian"]
    assert lines == ["impossible: not asked (the model has no batch norm)"]
    with pytest.raises(ValueError, match="no batch norm"):
        list(diagnose_run(run, recipe, questions, samples=8))


def test_fractions_and_lists_are_numbers():
    @QUESTIONS.register("a question of this test")
    def question(model, images, labels, *, radii: tuple[float, ...] = (1.0,)):
        return radii

    try:
        name = "a question of this test"
        questions = parse_questions([name], [f"{name}.radii=[1/4, 1/2]"])
        assert questions[name](None, None, None) == (0.25, 0.5)
    finally:
        del QUESTIONS._entries[name]


def test_a_diagnosis_prints_its_numbers_and_how_to_read_them():
    answer = Diagnosis(
        question="q",
        source="paper2020 Fig. 1",
        reading="Higher is sharper.",
        numbers={"a": 1.0, "longer": 0.25},
        settings={"n": 3},
    )
    text = "q (paper2020 Fig. 1; n=3)\n  a       1\n  longer  0.25\n  Higher is sharper."
    assert str(answer) == text


def test_the_model_of_the_run_is_diagnosed_in_evaluation_mode(tiny, runs):
    """With running statistics asked for, a batch norm in training mode would differ."""
    run, recipe = runs(tiny)
    seen = []

    def question(model, images, labels, **_):
        seen.append(model.training)
        with mode(model, "running"):
            model(images)
        return Diagnosis(question="q", source="s", reading="r")

    list(diagnose_run(run, recipe, {"q": question}, samples=8))
    assert seen == [False]
