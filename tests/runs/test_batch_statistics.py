"""A run evaluated with statistics of the test batch: recorded, cached, refused."""

import pytest

from advnorm.recipe import Recipe, override
from advnorm.report import write
from advnorm.runs import certify_run, evaluate_run
from advnorm.training import train

EVALUATION = "evaluation={conditions: [clean, pgd-3], batch_size: 20, threat: {eps: 0.1}}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    recipe = override(
        Recipe(),
        [
            "data={train: 96, test: 40}",
            "model.options={depth: 1, width: 8}",
            "objective.name=standard",
            "epochs=1",
            "batch_size=32",
            "validation={samples: 30, steps: 1}",
            EVALUATION,
        ],
    )
    return train(recipe, tmp_path_factory.mktemp("run") / "run"), recipe


def test_results_say_whose_statistics_and_which_batch_and_are_kept(trained):
    run, recipe = trained
    running = evaluate_run(run, recipe)
    changed = override(recipe, ["evaluation.statistics=median", "evaluation.malicious=0.1"])
    first = evaluate_run(run, changed)
    assert [r.condition for r in first] == [
        "clean+median=20+malicious=0.1",
        "pgd-3+median=20+malicious=0.1",
    ]
    assert {r.statistics for r in first} == {"median"}
    assert {r.accuracy.n for r in first} == {36}
    verdicts = run.verdicts(first[1].key)
    assert verdicts.accuracy() == first[1].accuracy
    assert [len(rows) for rows in verdicts.malicious] == [2, 2]
    assert set(verdicts.batches) == {0, 1}
    assert evaluate_run(run, changed) == first  # with its seconds: read, not run again
    fewer = evaluate_run(run, override(changed, ["evaluation.samples=20"]))
    assert {r.accuracy.n for r in fewer} == {18}
    assert evaluate_run(run, recipe) == running
    keys = {r.key for r in run.results()}
    assert {r.key for r in (*running, *first)} <= keys
    page = write([run], run.path / "report.html").read_text()
    assert "pgd-3+median=20+malicious=0.1" in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("samples=30", "30 samples do not fill batches"),
        ("certificate=ibp", "no certificates"),
        ("statistics=running", "set statistics to batch or median"),
        ("malicious=0.01", "0 of 20 rows"),
        ("conditions=[standard]", "name clean, noise"),
        ("malicious=1", "malicious"),
    ],
)
def test_refusals(trained, change, words):
    run, recipe = trained
    with pytest.raises(ValueError, match=words):
        base = ["evaluation.statistics=batch", "evaluation.malicious=0.2"]
        evaluate_run(run, override(recipe, [*base, f"evaluation.{change}"]))


def test_a_certificate_is_of_running_statistics(trained):
    run, recipe = trained
    changed = override(recipe, ["evaluation.statistics=batch"])
    (result,) = certify_run(run, changed, method="ibp")
    assert result.statistics == "running" and result.condition == "ibp"
