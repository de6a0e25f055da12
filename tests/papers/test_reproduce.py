"""One artefact from its jobs to its record: shared runs, no work twice, ratios, failures."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_recipe

from advnorm.papers import (
    ARTEFACTS,
    Artefact,
    Job,
    Workspace,
    artefact_names,
    record_path,
    reproduce,
)
from advnorm.papers import jobs as papers_jobs
from advnorm.papers.artefact import seeded
from advnorm.papers.claims import Claim, above, more
from advnorm.papers.jobs import run_job
from advnorm.papers.numbers import (
    CLEAN,
    AnswerNumber,
    DifferenceNumber,
    EpochNumber,
    MeanNumber,
    ResultNumber,
    TransferNumber,
)
from advnorm.papers.reproduce import _tasks, gather, with_claims
from advnorm.progress import Quiet
from advnorm.recipe import override
from advnorm.records import (
    Diagnosis,
    LedgerEntry,
    Published,
    Reproduction,
    Run,
    read_record,
)
from advnorm.runs import transfer_runs
from advnorm.studies import cached_answers, trained_runs
from advnorm.studies.trained_runs import run_name, seconds_of
from advnorm.training import load_data, loop

TINY = tiny_recipe.TINY.replace(epochs=2)
FGSM = ResultNumber("fgsm", eps=0.1)
NUMBERS = {"clean": CLEAN, "fgsm": FGSM, "loss": EpochNumber("loss")}


@pytest.fixture
def tiny(monkeypatch):
    """Enter an artefact of two rows that share a run, and one of its own."""
    jobs = [
        Job("one", TINY, NUMBERS),
        Job("same", override(TINY, ["name=other", "evaluation.conditions=[clean]"]), {}),
        Job("two", override(TINY, ["norm.name=none"]), NUMBERS),
    ]
    entry = Artefact(
        "here/table1",
        "Tiny",
        lambda scale: jobs,
        {"one": {"clean": Published(value=1.0)}},
        (Claim("it learns", (above("one", "clean", 0),)),),
    )
    monkeypatch.setitem(ARTEFACTS._entries, entry.name, entry)
    return entry


def run_names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "runs").iterdir())


def test_rows_share_runs_and_nothing_is_done_twice(tiny, tmp_path, monkeypatch):
    record = reproduce("here/table1", Workspace(tmp_path), scale="full", seeds=3)
    assert len(run_names(tmp_path)) == 6  # two runs, three seeds
    assert record.runs["one"] == record.runs["same"]
    for number, name in enumerate(record.runs["one"]):
        run = Run.open(tmp_path / "runs" / name)
        ours = record.rows["one"]
        assert ours["clean"].values[number] == 100 * run.result("clean").accuracy.fraction
        assert ours["loss"].values[number] == run.epochs()[-1].loss
    assert record.rows["one"]["clean"].published.value == 1.0
    assert record.rows["two"]["clean"].published is None
    assert record.claims[0].verdict == "holds"
    text = record_path(tmp_path, "here/table1", "full").read_text()
    assert Reproduction.model_validate_json(text) == record
    monkeypatch.setattr(trained_runs, "train", None)  # it would fail
    again = reproduce("here/table1", Workspace(tmp_path), scale="full", seeds=3)
    assert again.rows == record.rows


def test_an_interrupted_run_is_gone_on_with(tmp_path):
    job = Job("one", TINY, NUMBERS)
    whole = run_job(job, tmp_path / "whole")
    half = run_job(job, tmp_path / "cut")
    path = tmp_path / "cut" / half.run
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text(lines[0])
    newest = max((path / "checkpoints").glob("state-*.json"))
    newest.unlink()
    again = run_job(job, tmp_path / "cut")
    assert again.numbers == whole.numbers
    assert again.seconds > half.seconds


def test_a_run_that_fails_is_named_and_the_rest_is_there(tiny, tmp_path, monkeypatch):
    bad = Job("bad", override(TINY, ["data.train=100000"]), NUMBERS)
    wrong = Job("wrong", TINY, {"clean": ResultNumber("no-such-result")})
    jobs = [bad, wrong, *tiny.jobs("full")[2:]]
    monkeypatch.setitem(ARTEFACTS._entries, tiny.name, replace(tiny, jobs=lambda _: jobs))
    record = reproduce("here/table1", Workspace(tmp_path), scale="full")
    assert set(record.failed) == {"bad, seed 0", "wrong, seed 0"}
    assert "training samples" in record.failed["bad, seed 0"]
    assert "there are: clean, fgsm_linf_0.1" in record.failed["wrong, seed 0"]
    assert set(record.rows) == {"two"}


def test_rows_as_ratios_to_a_baseline(tiny, tmp_path, monkeypatch):
    plain = reproduce("here/table1", Workspace(tmp_path), scale="full", seeds=2)
    ratio = replace(tiny, relative_to="one")
    monkeypatch.setitem(ARTEFACTS._entries, tiny.name, ratio)
    result = reproduce("here/table1", Workspace(tmp_path), scale="full", seeds=2)
    assert result.rows["one"] == plain.rows["one"]
    pairs = zip(
        plain.rows["two"]["loss"].values, plain.rows["one"]["loss"].values, strict=True
    )
    assert result.rows["two"]["loss"].values == tuple(a / b for a, b in pairs)


def test_a_difference_of_two_results(tmp_path):
    numbers = {**NUMBERS, "gap": DifferenceNumber(CLEAN, FGSM)}
    result = run_job(Job("one", TINY, numbers), tmp_path).numbers
    assert result["gap"] == result["clean"] - result["fgsm"] > 0


def test_what_is_monitored_answers_as_a_question_does(tmp_path):
    monitored = override(TINY, ["monitor={questions: [gradient_norm], every: 1}"])
    expected = {"norm": AnswerNumber("gradient_norm_over_training", "mean")}
    questions = ("gradient_norm_over_training",)
    result = run_job(Job("one", monitored, expected), tmp_path, shown=questions)
    looks = Run.open(tmp_path / result.run).monitored()
    norms = [look.numbers["gradient_norm"] for look in looks]
    assert result.numbers["norm"] == pytest.approx(sum(norms) / len(norms))
    assert [panel.title for panel in result.panels] == ["Gradient norm over training"]


def test_a_kept_record_is_checked_by_the_claims_of_now(tiny):
    record = [ledger_entry("one", seed, clean=50.0 + seed) for seed in (0, 1, 2)]
    old = gather(tiny, "full", 3, record, {})
    claims = (Claim("it is perfect", (above("one", "clean", 99),)),)
    now = replace(tiny, claims=claims, published={"one": {"clean": Published(value=2.0)}})
    new = with_claims(now, old)
    assert [(claim.text, claim.verdict) for claim in old.claims] == [("it learns", "holds")]
    assert [claim.verdict for claim in new.claims] == ["does not hold"]
    assert new.rows["one"]["clean"].values == old.rows["one"]["clean"].values
    assert new.rows["one"]["clean"].published.value == 2.0
    assert with_claims(tiny, new) == old
    smoke = with_claims(tiny, old.model_copy(update={"scale": "smoke"}))
    assert [claim.verdict for claim in smoke.claims] == ["cannot be told"]


def test_a_ratio_to_nothing_is_not_a_number(tiny):
    ratio = replace(tiny, relative_to="one")
    zero = ledger_entry("one", 0, fgsm=0.0)
    both = [zero, zero.model_copy(update={"row": "two"})]
    record = gather(ratio, "full", 1, both, {})
    assert str(record.rows["two"]["fgsm"].values) == "(nan,)"


def test_jobs_of_one_row_fill_its_columns(tiny, tmp_path, monkeypatch):
    rates = {"0.1": TINY, "0.2": override(TINY, ["optimizer.lr=0.2"])}
    jobs = [
        Job("one", recipe, {rate: EpochNumber("loss")}) for rate, recipe in rates.items()
    ]
    monkeypatch.setitem(ARTEFACTS._entries, tiny.name, replace(tiny, jobs=lambda _: jobs))
    record = reproduce("here/table1", Workspace(tmp_path), scale="full", seeds=2)
    assert record.columns == ("0.1", "0.2")
    assert [len(cell.values) for cell in record.rows["one"].values()] == [2, 2]
    assert len(set(record.runs["one"])) == 4


def test_the_training_accuracy_is_read_in_percent(tmp_path):
    result = run_job(Job("one", TINY, {"training": EpochNumber("train")}), tmp_path)
    last = Run.open(tmp_path / result.run).epochs()[-1]
    assert result.numbers["training"] == 100 * last.train.fraction


def test_a_mean_of_two_results(tmp_path):
    names = {**NUMBERS, "both": MeanNumber((CLEAN, FGSM))}
    result = run_job(Job("one", TINY, names), tmp_path).numbers
    assert result["both"] == (result["clean"] + result["fgsm"]) / 2 != result["clean"]


@pytest.mark.parametrize("schedule", ["", "optimizer.schedule={kind: piecewise, at: [2]}"])
def test_a_longer_run_goes_on_from_a_shorter_one(tmp_path, monkeypatch, schedule):
    begun = []
    real = trained_runs.train
    monkeypatch.setattr(
        trained_runs, "train", lambda *a, **k: begun.append(k) or real(*a, **k)
    )
    recipe = override(TINY, [schedule] if schedule else [])
    longer = Job("one", override(recipe, ["epochs=4"]), NUMBERS)
    alone = run_job(longer, tmp_path / "alone")
    run_job(Job("one", recipe, NUMBERS), tmp_path / "after")
    after = run_job(longer, tmp_path / "after")
    assert after.numbers == alone.numbers and after.run == alone.run
    assert [call["resume"] for call in begun] == [False, False, True]
    whole, half = (Run.open(tmp_path / f / alone.run).epochs() for f in ("alone", "after"))
    assert [e.loss for e in whole] == [e.loss for e in half]


@pytest.mark.parametrize("longer", [False, True])
def test_a_run_that_was_killed_before_its_last_weights_is_not_finished(tmp_path, longer):
    """All of its epochs are on record then; nor does a longer run begin with it."""
    recipe = override(TINY, ["evaluation.weights=last"])
    original = loop._epoch_text
    pid = os.fork()
    if not pid:

        def deadly(line, epochs):  # between the line of an epoch and its checkpoint
            if line.epoch == epochs:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(line, epochs)

        loop._epoch_text = deadly
        try:
            run_job(Job("one", recipe, NUMBERS), tmp_path / "killed")
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    (path,) = (tmp_path / "killed").iterdir()
    assert len(Run.open(path).epochs()) == TINY.epochs
    job = Job("one", override(recipe, ["epochs=3"]) if longer else recipe, NUMBERS)
    done = run_job(job, tmp_path / "killed")
    assert done.numbers == run_job(job, tmp_path / "whole").numbers
    (whole,) = (tmp_path / "whole").iterdir()
    states = [
        sorted(folder.glob("checkpoints/state-*.safetensors"))[-1].read_bytes()
        for folder in (tmp_path / "killed" / done.run, whole)
    ]
    assert states[0] == states[1]


def test_an_answer_about_other_weights_is_not_taken(tmp_path):
    job = Job("one", TINY, {"dead": AnswerNumber("dead", "dead units")}, {"dead": {}})
    path = tmp_path / run_job(job, tmp_path).run
    (answer,) = (path / "answers").iterdir()
    kept = read_record(answer, Diagnosis)
    planted = {"weights": "best-00000001 sha256:0", "numbers": {"dead units": -1.0}}
    answer.write_text(kept.model_copy(update=planted).model_dump_json())
    assert run_job(job, tmp_path).numbers == {"dead": kept.numbers["dead units"]}
    answer.write_text(
        kept.model_copy(update={"numbers": {"dead units": -1.0}}).model_dump_json()
    )
    assert run_job(job, tmp_path).numbers == {"dead": -1.0}, "it was diagnosed again"


OTHER = override(TINY, ["norm.name=none"])
ATTACKED = override(TINY, ["evaluation={conditions: [bim-5], threat: {eps: [0.1]}}"])


def test_targets_are_tested_on_a_runs_adversarial_examples(tmp_path, monkeypatch):
    numbers = {
        "itself": TransferNumber("one"),
        "other": TransferNumber("two"),
        "own": ResultNumber("bim-5", eps=0.1),
    }
    job = Job("one", ATTACKED, numbers, targets={"one": TINY, "two": OTHER})
    result = run_job(job, tmp_path).numbers
    digest = load_data(TINY, root=None).digest()
    runs = [Run.open(tmp_path / run_name(recipe, digest)) for recipe in (TINY, OTHER)]
    recipes = [ATTACKED, override(OTHER, ["evaluation.conditions=[bim-5]"])]
    (matrix,) = transfer_runs(runs, recipes)
    assert result["other"] == 100 * matrix.accuracies[0][1].fraction
    assert result["itself"] == result["own"] == 100 * matrix.accuracies[0][0].fraction
    monkeypatch.setattr(cached_answers, "transfer_runs", None)  # it would fail
    assert run_job(job, tmp_path).numbers == result


def test_jobs_that_share_a_target_are_one_task(tiny, tmp_path):
    third = override(TINY, ["epochs=1"])
    fourth = override(TINY, ["batch_size=10"])
    jobs = [
        Job("one", TINY, {}),
        Job("two", fourth, {}),
        Job("three", OTHER, {}),
        Job("both", third, {}, targets={"a": TINY, "b": OTHER}),
    ]
    tasks = _tasks([seeded(job, 3) for job in jobs], tiny, Workspace(tmp_path), Quiet())
    rows = [[job.row for job in task.jobs] for task in tasks]
    assert rows == [["one", "three", "both"], ["two"]]
    assert {r.seed for r in tasks[0].jobs[-1].targets.values()} == {3}


def test_a_paper_stands_for_all_of_its_own():
    whole = artefact_names(["galloway2019"])
    assert set(whole) == {name for name in ARTEFACTS if name.startswith("galloway2019/")}
    assert artefact_names(["galloway2019/table1", "galloway2019/table1"]) == [
        "galloway2019/table1"
    ]
    with pytest.raises(ValueError, match="did you mean 'galloway2019/table1'"):
        artefact_names(["galloway2019/tabel1"])


def test_chosen_rows_are_made_and_no_others(tmp_path, tiny):
    record = reproduce(tiny.name, Workspace(tmp_path), rows=["two"])
    assert list(record.rows) == ["two"] and len(run_names(tmp_path)) == 1
    with pytest.raises(ValueError, match="no row 'tow': did you mean 'two'"):
        reproduce(tiny.name, Workspace(tmp_path), rows=["tow"])
    whole = reproduce(tiny.name, Workspace(tmp_path))
    assert whole.rows["two"] == record.rows["two"] and set(whole.rows) == {"one", "two"}


def failing(tiny, monkeypatch, *jobs):
    monkeypatch.setitem(
        ARTEFACTS._entries, tiny.name, replace(tiny, jobs=lambda _: list(jobs))
    )


def test_every_failed_run_of_a_row_is_named(tiny, tmp_path, monkeypatch):
    bad = override(TINY, ["data.train=100000"])
    jobs = [Job("bad", bad, {name: CLEAN}) for name in ("clean", "other")]
    failing(tiny, monkeypatch, *jobs)
    record = reproduce(tiny.name, Workspace(tmp_path), scale="full")
    assert set(record.failed) == {"bad (clean), seed 0", "bad (other), seed 0"}


def test_a_job_that_fails_takes_no_other_of_its_run_along(tiny, tmp_path, monkeypatch):
    wrong = Job("wrong", TINY, {"clean": ResultNumber("no-such-result")})
    failing(tiny, monkeypatch, Job("one", TINY, NUMBERS), wrong)
    record = reproduce(tiny.name, Workspace(tmp_path), scale="full")
    assert set(record.failed) == {"wrong, seed 0"} and set(record.rows) == {"one"}


def test_a_row_shown_as_a_ratio_brings_its_base_along(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(ARTEFACTS._entries, tiny.name, replace(tiny, relative_to="one"))
    record = reproduce(tiny.name, Workspace(tmp_path), rows=["two"])
    assert list(record.rows) == ["one", "two"]
    assert record.rows["two"]["loss"].mean > 0


def ledger_entry(row, seed, **numbers):
    run = f"{row}{seed}"
    return LedgerEntry(
        row=row, seed=seed, fingerprint="", run=run, numbers=numbers, seconds=1.0
    )


def test_a_seed_whose_base_failed_has_no_ratio(tiny):
    entry = replace(tiny, relative_to="one")
    done = [ledger_entry("one", 0, clean=2.0), ledger_entry("one", 2, clean=4.0)]
    done += [ledger_entry("two", seed, clean=8.0) for seed in range(3)]
    record = gather(entry, "full", 3, done, {})
    assert record.rows["two"]["clean"].values == (4.0, 2.0)
    assert record.rows["two"]["clean"].seeds == (0, 2)


def test_numbers_of_other_seeds_are_not_taken_for_pairs(tiny):
    """Column a is 10 above b in every seed; each lacks another seed."""
    claim = Claim("a is 9 above b", (more(("one", "a"), ("one", "b"), by=9),))
    entry = replace(tiny, claims=(claim,))
    runs = [
        ("a", 0, 38),
        ("b", 1, 30),
        ("a", 1, 40),
        ("b", 2, 32),
        ("a", 2, 42),
        ("b", 0, 28),
    ]
    whole = gather(
        entry, "full", 3, [ledger_entry("one", s, **{c: v}) for c, s, v in runs], {}
    )
    assert whole.claims[0].verdict == "holds"
    part = gather(
        entry, "full", 3, [ledger_entry("one", s, **{c: v}) for c, s, v in runs[:4]], {}
    )
    assert part.rows["one"]["a"].seeds == (0, 1) and part.rows["one"]["b"].seeds == (1, 2)
    assert part.claims[0].verdict == "cannot be told"
    assert Reproduction.model_validate_json(part.model_dump_json()) == part


def test_a_run_of_other_defaults_is_not_used(tmp_path):
    job = Job("one", TINY, NUMBERS)
    path = tmp_path / run_job(job, tmp_path).run
    text = (path / "recipe.yaml").read_text()
    assert "momentum: 0.9" in text
    (path / "recipe.yaml").write_text(text.replace("momentum: 0.9", "momentum: 0.5"))
    with pytest.raises(ValueError, match=r"momentum: 0.5 -> 0.9.*remove it"):
        run_job(job, tmp_path)


def test_damaged_files_are_named_in_one_line(tmp_path):
    job = Job("one", TINY, {"dead": AnswerNumber("dead", "dead units")}, {"dead": {}})
    done = run_job(job, tmp_path)
    path = tmp_path / done.run
    (path / "seconds.json").write_text("")
    assert run_job(job, tmp_path).numbers == done.numbers
    (answer,) = (path / "answers").iterdir()
    for file, words in (
        (answer, "remove it"),
        (path / "environment.json", "remove it"),
        (path / "metrics.jsonl", "remove the whole folder"),
        (path / "recipe.yaml", "remove the whole folder"),
    ):
        before = file.read_text()
        file.write_text("{: [\n")
        with pytest.raises(ValueError, match=words) as error:
            run_job(job, tmp_path)
        assert str(file) in str(error.value) and "\n" not in str(error.value)
        file.write_text(before)
    (path / "environment.json").unlink()
    assert run_job(job, tmp_path).machine == ""
    (path / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match=r"lost metrics.jsonl"):
        run_job(Job("one", TINY, NUMBERS), tmp_path)


def test_time_before_an_interruption_counts(tmp_path, monkeypatch):
    def slow(*args, **kwargs):
        time.sleep(0.2)
        raise KeyboardInterrupt

    job, folder = Job("one", TINY, NUMBERS), tmp_path / "runs"
    monkeypatch.setattr(papers_jobs, "evaluate_run", slow)
    with pytest.raises(KeyboardInterrupt):
        run_job(job, folder)
    (path,) = folder.iterdir()
    assert seconds_of(path) > 0.2
    monkeypatch.undo()
    before = seconds_of(path)
    assert run_job(job, folder).seconds > before


def test_who_comes_second_waits_and_uses_the_run(tmp_path):
    job, folder = Job("one", TINY, NUMBERS), tmp_path / "runs"
    with ThreadPoolExecutor(3) as pool:
        done = [f.result() for f in [pool.submit(run_job, job, folder) for _ in range(3)]]
    assert done[0].numbers == done[1].numbers == done[2].numbers
    assert len(Run.open(folder / done[0].run).epochs()) == TINY.epochs


def test_ratios_are_to_all_columns_of_the_row_whichever_job_has_them():
    """Of one row, two jobs with a column each: both are divided by the base row's own."""
    base = {"clean": 50.0}, {"loss": 2.0}
    other = {"clean": 25.0}, {"loss": 8.0}
    done = [
        LedgerEntry(
            row=row,
            seed=0,
            fingerprint=f"{row}{n}",
            run=row,
            numbers=numbers,
            counts={},
            seconds=1.0,
            machine="",
        )
        for row, parts in (("28", base), ("56", other))
        for n, numbers in enumerate(parts)
    ]
    artefact = replace(ARTEFACTS["galloway2019/table13"], relative_to="28")
    rows = gather(artefact, "full", 1, done, {}).rows
    assert rows["56"]["clean"].mean == 0.5 and rows["56"]["loss"].mean == 4
