"""What an evaluation returns: tables of plain values, and adversarial images."""

import csv
import io
import json

import pytest
import torch
from torch import nn

from advnorm.evaluation import evaluate
from advnorm.threat import L2, Linf


class Masked(nn.Module):
    """A softmax that saturates, so that no gradient is left."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return (1000 * self.model(images)).softmax(1)


@pytest.fixture
def problem():
    """Return a network, images near its boundaries, and labels, four of them wrong."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 5))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / 2)
    images = torch.rand(50, 1, 4, 4, generator=generator)
    labels = model(images).argmax(1)
    labels[:4] = (labels[:4] + 1) % 5
    return model.eval(), images, labels


CONDITIONS = [
    "fgsm",
    "pgd-5x3",
    "pgd-1..5",
    "pgd-1..5x4",
    "pgd-1..5x4+last",
    "pgd-3+random",
    "quick",
    "square-30",
]


def check_kept(model, images, labels, threat, result):
    """Assert that each image broke its sample, or is the clean one."""
    both = 0
    for key, adversarial in result.adversarial.items():
        verdicts = result.verdicts[key]
        broken = torch.tensor([bool(by) for by in verdicts.by])
        predicted = model(adversarial).argmax(1)
        assert torch.equal(adversarial[~broken], images[~broken]), key
        assert threat.contains(adversarial, images).all(), key
        assert (predicted[broken] != labels[broken]).all(), key
        assert predicted[broken].tolist() == [
            p for p, by in zip(verdicts.predictions, verdicts.by, strict=True) if by
        ], key
        both += bool(broken.any()) and not bool(broken.all())
    assert both  # else nothing was tested


@pytest.mark.parametrize(
    ("threat", "certificate"), [(Linf(0.03), "crown"), (L2(0.1), "none")], ids=str
)
def test_kept_images_broke_their_samples_inside_the_ball(problem, threat, certificate):
    model, images, labels = problem
    settings = {"conditions": ["clean", "noise-0.1", *CONDITIONS], "batch_size": 16}
    result = evaluate(
        *problem, threat, keep="adversarial", certificate=certificate, **settings
    )
    searching = [r.key for r in result.results if r.condition in CONDITIONS]
    assert list(result.adversarial) == searching and len(searching) == len(CONDITIONS)
    check_kept(model, images, labels, threat, result)
    plain = evaluate(*problem, threat, certificate=certificate, **settings)
    assert plain.verdicts == result.verdicts and not plain.adversarial


def test_images_of_attacks_that_were_added_are_kept_too(problem):
    model, images, labels = problem
    masked, threat = Masked(model), Linf(0.05)
    result = evaluate(masked, images, labels, threat, keep="adversarial")
    added = {by for v in result.verdicts.values() for by in v.by}
    assert {"square-1000", "hop_skip_jump-20"} & added
    check_kept(masked, images, labels, threat, result)


def test_at_radius_0_and_for_certificates_nothing_is_kept(problem):
    result = evaluate(*problem, Linf(0.0), conditions=["pgd-2"], keep="adversarial")
    assert result.adversarial == {}
    result = evaluate(*problem, Linf(0.1), conditions=["ibp"], keep="adversarial")
    assert result.adversarial == {}


def test_kept_images_do_not_change_with_the_batch_size(problem):
    model = problem[0].double()
    images = problem[1].double()
    one, other = (
        evaluate(
            *(model, images, problem[2], Linf(0.03)), keep="adversarial", batch_size=size
        ).adversarial["pgd-50_linf_0.03"]
        for size in (7, 50)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_keep_is_one_of_two_words(problem):
    with pytest.raises(ValueError, match="keep is 'nothing' or 'adversarial', not 'all'"):
        evaluate(*problem, Linf(0.1), keep="all")


def test_the_table_has_a_row_a_condition_that_json_and_csv_take(problem):
    result = evaluate(*problem, [Linf(0.02), Linf(0.04)], conditions=["clean", "pgd-5"])
    rows = result.table()
    assert json.loads(json.dumps(rows)) == rows
    assert [(row["condition"], row["norm"], row["eps"]) for row in rows] == [
        ("clean", None, None),
        ("pgd-5", "linf", 0.02),
        ("pgd-5", "linf", 0.04),
    ]
    for row, record in zip(rows, result.results, strict=True):
        low, high = record.accuracy.interval
        assert (row["low"], row["high"]) == (low, high)
        assert row["accuracy"] == row["correct"] / 50 and row["n"] == 50
        assert f"{row['accuracy']:.1%} [{low:.1%}, {high:.1%}] n=50" in str(result)
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    assert len(file.getvalue().splitlines()) == 4


def test_the_sample_table_adds_up_to_the_table(problem):
    settings = {"conditions": ["clean", "pgd-5"], "certificate": "ibp"}
    result = evaluate(*problem, Linf(0.03), **settings)
    rows = result.sample_table()
    assert len(rows) == 100 and json.loads(json.dumps(rows)) == rows
    for condition in result.table():
        own = [row for row in rows if row["key"] == condition["key"]]
        assert [row["sample"] for row in own] == list(range(50))
        assert [row["label"] for row in own] == problem[2].tolist()
        assert sum(row["robust"] for row in own) == condition["correct"]
    assert {row["by"] for row in rows} == {"", "pgd-5"}
    assert {row["certified"] for row in rows if row["key"] == "clean"} == {None}
    assert {row["certified"] for row in rows if row["key"] != "clean"} <= {True, False}
