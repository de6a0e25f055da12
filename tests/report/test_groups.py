"""Reading run folders: names, tolerance, and errors that name the file."""

import pytest

from advnorm.records import Run
from advnorm.report.groups import load_groups


def test_folders_of_one_name_are_told_apart_by_their_parents(maker):
    runs = [
        maker.run("x/run"),
        maker.run("y/run", norm="group"),
        maker.run("z", norm="none"),
    ]
    assert [group.members[0].name for group in load_groups(runs)] == ["x/run", "y/run", "z"]


def test_a_recipe_that_lacks_keys_or_has_plain_ones_is_read(maker):
    run = maker.run("a", recipe={"norm": "batch", "objective": None, "model": {}})
    (group,) = load_groups([run])
    assert group.label == "batch · none · {}"


def test_groups_that_share_a_label_are_told_apart(maker):
    runs = [
        maker.run(f"r{i}", recipe={"a": 0, "b": 0, "c": 0, "d": 0, "e": 0} | {key: 1})
        for i, key in enumerate("abcde")
    ]
    labels = [group.label for group in load_groups(runs)]
    assert len(set(labels)) == 5


@pytest.mark.parametrize("text", ["", "a: [", "- 1\n- 2\n"], ids=["empty", "cut", "list"])
def test_a_damaged_recipe_is_named(maker, text):
    run = maker.run("a")
    (run.path / "recipe.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"a/recipe\.yaml is damaged"):
        load_groups([run])


@pytest.mark.parametrize(
    "name", ["results/clean.json", "environment.json", "metrics.jsonl"]
)
def test_a_damaged_record_is_named(maker, name):
    run = maker.run("a")
    maker.result(run, "clean", 1)
    (run.path / name).write_text('{"cut\n')
    with pytest.raises(ValueError, match=name):
        load_groups([run])


def test_a_run_without_an_environment_is_read(maker):
    run = maker.run("a")
    (run.path / "environment.json").unlink()
    (group,) = load_groups([Run.open(run.path)])
    assert group.members[0].environment is None


def test_alarms_say_when(maker):
    run = maker.run("a")
    maker.train(run, epochs=2, alarms=("late",))
    maker.train(run, epochs=3, alarms=("late",))
    (group,) = load_groups([run])
    assert group.members[0].alarms == ("late (2 epochs from 1 to 2)",)


def test_runs_of_a_study_are_named_by_their_settings_and_seed(maker):
    digests = ["0918b8685f4a32fb", "da3ff8e5aa12fe06", "e880b3e8855e9362"]
    runs = [
        maker.run(digests[0], norm="none", seed=2),
        maker.run(digests[1], norm="batch", seed=10),
        maker.run(digests[2], norm="batch", seed=2),
        maker.run("mine", norm="batch", seed=3),
    ]
    names = [run.name for group in load_groups(runs) for run in group.members]
    assert names == ["none seed 2", "batch seed 2", "batch seed 10", "mine"]
    again = maker.run("0123456789abcdef", norm="none", seed=2)  # the name would be no name
    names = [run.name for group in load_groups([*runs, again]) for run in group.members]
    assert names[:2] == [digests[0], "0123456789abcdef"]
