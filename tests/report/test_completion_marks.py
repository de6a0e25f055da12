"""The mark of runs whose training was not finished, beside each of their numbers."""

import json

import pytest
from reading import drawings, page

from advnorm.records import Accuracy, Diagnosis, Epoch, MonitoredStep, TrainingProgress
from advnorm.report import comparison_rows, comparison_text
from advnorm.report.completion_marks import UNRECORDED, infer_progress

EPS = 8 / 255
EARLY = TrainingProgress(epochs=13, planned=400)
DONE = TrainingProgress(epochs=400, planned=400)


@pytest.fixture
def pair(maker):
    """Return an unfinished run that looks better, and a finished one."""
    early = maker.run("early", recipe={"epochs": 400})
    maker.train(early, epochs=14)  # from epoch 0
    done = maker.run("done", norm="none", recipe={"epochs": 2})
    maker.train(done, epochs=3)
    for run, level, training in ((early, 90, EARLY), (done, 80, DONE)):
        maker.result(run, "clean", level, n=100, training=training)
        curve = {
            10: Accuracy(correct=level - 10, n=100),
            20: Accuracy(correct=level - 30, n=100),
        }
        extra = {"training": training, "curve": curve}
        maker.result(run, "pgd-10..20", level - 30, n=100, eps=EPS, **extra)
        maker.examples(run, "pgd-10..20_linf_0.03137")
        answer = Diagnosis(
            question="dead",
            source="a paper",
            reading="Few are good.",
            numbers={"units": 3.0 + level},
            training=training,
        )
        run.write_diagnosis(answer)
    return [early, done]


def test_every_number_of_the_terminal_has_it(pair):
    lines = [" ".join(line.split()) for line in comparison_text(pair).splitlines()]
    assert "clean (n=100) 90.0% [82.6, 94.5] *1 80.0% [71.1, 86.7]" in lines
    numbers = [line for line in lines if line.startswith("pgd-10..20")]
    assert [line.count("*1") for line in numbers] == [1]
    assert lines[-1] == "*1 unfinished: 13 of 400 epochs"


def test_every_number_of_the_page_has_it(pair, tmp_path):
    report = page(pair, tmp_path)
    classes = [attrs.get("class", "") for tag, attrs in report.tags if tag == "small"]
    assert classes.count("unfinished") == 2 + 1 + 1  # two results, the cost, one answer
    legends = [
        a for tag, a in report.tags if tag == "span" and a.get("class") == "unfinished"
    ]
    assert len(legends) == 5, "each legend says it"
    assert "early, pgd-10..20 L∞ 8/255, unfinished: 13 of 400 epochs" in report.text
    assert "done, pgd-10..20 L∞ 8/255 " in report.text
    drawn = drawings(report)
    mark = "(unfinished: 13 of 400 epochs)"
    assert f"early 90.0% clean, 60.0% robust {mark}" in accuracy_text(
        drawn, "Clean against"
    )
    assert accuracy_text(drawn, "Training loss").count(mark) == 1
    assert f"90.0% {mark} at 0, 60.0% {mark} at 8/255" in accuracy_text(
        drawn, "pgd-10..20, L∞"
    )
    assert (
        f"80.0% {mark} after 10, 60.0% {mark} after 20"
        in drawn["pgd-10..20, L∞ 8/255, over steps"]
    )
    texts = [word.strip() for word in report.words]
    assert texts.count("13 of 400 epochs") == 1 + 1 + 1  # in scatter, radius and steps


def accuracy_text(drawn, title):
    return next(text for name, text in drawn.items() if name.startswith(title))


def test_an_unfinished_number_is_not_the_best_of_its_column(pair, tmp_path):
    bold = [row for row in page(pair, tmp_path).tags if row[0] == "strong"]
    text = (tmp_path / "report.html").read_text()
    assert "<strong>80.0% [71.1, 86.7]</strong>" in text
    assert "<strong>90.0%" not in text and bold


def test_a_mean_over_seeds_says_which_is_unfinished(maker, tmp_path):
    runs = [maker.run(f"r{seed}", seed=seed, recipe={"epochs": 400}) for seed in (0, 1)]
    maker.result(runs[0], "clean", 90, n=100, training=DONE, seed=0)
    maker.result(runs[1], "clean", 80, n=100, training=EARLY, seed=1)
    (row,) = comparison_rows(runs)
    assert row.cells["clean"].unfinished == ("seed 1: 13 of 400 epochs",)
    assert "*1 unfinished: seed 1: 13 of 400 epochs" in comparison_text(runs)
    assert "unfinished: seed 1: 13 of 400 epochs" in page(runs, tmp_path).text


def test_what_is_watched_in_an_unfinished_training_has_it(maker, tmp_path):
    run = maker.run("a", recipe={"epochs": 400})
    maker.train(run, epochs=3)
    for step in (1, 2):
        line = MonitoredStep(step=step, epoch=0.0, numbers={"gradient_norm": 1.0 + step})
        run.append_monitored(line)
    assert "unfinished: 2 of 400 epochs" in page([run], tmp_path).text


def epoch(number, *, best=False):
    return Epoch(
        epoch=number,
        step=10 * number,
        lr=0.1,
        eps=0.1,
        loss=1.0,
        train=Accuracy(correct=1, n=1),
        best=best,
        seconds=1.0,
    )


EPOCHS = [epoch(1, best=True), epoch(2, best=True), epoch(3)]


@pytest.mark.parametrize(
    "weights, epochs, planned, training",
    [
        ("state-00000030 sha256:0", EPOCHS, 3, TrainingProgress(epochs=3, planned=3)),
        ("state-00000020 sha256:0", EPOCHS, 3, TrainingProgress(epochs=2, planned=3)),
        (
            "state-00000023 sha256:0",
            EPOCHS,
            3,
            TrainingProgress(epochs=2, steps=3, planned=3),
        ),
        (
            "state-00000004 sha256:0",
            EPOCHS,
            3,
            TrainingProgress(epochs=0, steps=4, planned=3),
        ),
        ("best-00000020 sha256:0", EPOCHS, 3, TrainingProgress(epochs=3, planned=3)),
        ("best-00000010 sha256:0", EPOCHS, 3, TrainingProgress(epochs=1, planned=3)),
        ("best-00000020 sha256:0", EPOCHS, 400, TrainingProgress(epochs=3, planned=400)),
        ("given", EPOCHS, 3, None),
        ("best-00000020 sha256:0", [], 3, None),
    ],
)
def test_older_records_are_told_by_the_run_itself(weights, epochs, planned, training):
    assert infer_progress(weights, epochs, planned) == training


def test_an_older_record_of_which_nothing_is_known_says_so(maker, tmp_path):
    run = maker.run("a", recipe={"epochs": 400})
    maker.result(run, "clean", 90, n=100)
    path = run.path / "results" / "clean.json"
    record = json.loads(path.read_text())
    del record["training"]
    path.write_text(json.dumps(record))
    assert comparison_text([run]).endswith(f"*1 {UNRECORDED}")
    assert UNRECORDED in page([run], tmp_path).text
