"""Statistics of the test batch: verdicts, composition, attacks and refusals."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import advnorm
from advnorm import norms
from advnorm.evaluation.batch_statistics import BatchStatistics


def trained(norm=nn.BatchNorm2d):
    torch.manual_seed(0)
    labels = torch.arange(120) % 3
    images = torch.randn(120, 1, 4, 4) * 0.12 + 0.3 + 0.2 * labels.view(-1, 1, 1, 1)
    images = images.clamp(0, 1)
    layers = [nn.Conv2d(1, 6, 3), norm(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model, images, labels


@pytest.fixture(scope="module")
def sample():
    return trained()


def evaluate(sample, conditions=("clean", "pgd-10"), eps=0.1, **settings):
    settings = {"statistics": "batch", "batch_size": 30} | settings
    return advnorm.evaluate(
        *sample, advnorm.Linf(eps), conditions=list(conditions), **settings
    )


def test_clean_predictions_are_those_of_each_batch(sample):
    model, images, _ = sample
    verdicts = evaluate(sample, ["clean"]).verdicts["clean+batch=30"]
    twin = deepcopy(model).train()
    expected = [p for part in images.split(30) for p in twin(part).argmax(1).tolist()]
    assert list(verdicts.predictions) == expected
    assert verdicts.batches == tuple(i // 30 for i in range(120))
    medians = evaluate(sample, ["clean"], statistics="median")
    twin = norms.convert(model, "median").train()
    expected = [p for part in images.split(30) for p in twin(part).argmax(1).tolist()]
    assert list(medians.verdicts["clean+median=30"].predictions) == expected


@pytest.mark.parametrize("statistics", ["batch", "median"])
def test_verdicts_are_those_of_the_images_that_were_kept(sample, statistics):
    """A fresh pass over each attacked batch says the same, and all is inside the ball."""
    model, images, labels = sample
    result = evaluate(sample, ["pgd-10"], statistics=statistics, keep="adversarial")
    (key,) = result.verdicts
    x, verdicts = result.adversarial[key], result.verdicts[key]
    assert advnorm.Linf(0.1).contains(x, images).all()
    twin = (norms.convert(model, "median") if statistics == "median" else model).eval()
    with norms.mode(twin, "batch"):
        right = [
            (twin(v).argmax(1) == y)
            for v, y in zip(x.split(30), labels.split(30), strict=True)
        ]
    clean = evaluate(sample, ["clean"], statistics=statistics)
    before = torch.tensor(next(iter(clean.verdicts.values())).robust)
    robust = torch.tensor(verdicts.robust)
    assert torch.equal(robust, torch.cat(right) & before)
    assert 0 < robust.sum() < before.sum()
    assert {by for by, r in zip(verdicts.by, robust, strict=True) if not r} <= {
        "pgd-10",
        "",
    }


@pytest.mark.parametrize("statistics", ["batch", "median"])
def test_malicious_rows_are_named_and_the_benign_ones_are_as_they_were(sample, statistics):
    _, images, _ = sample
    result = evaluate(
        sample, eps=1.0, malicious=0.2, statistics=statistics, keep="adversarial"
    )
    clean, attacked = result.verdicts.values()
    (x,) = result.adversarial.values()
    assert [len(rows) for rows in attacked.malicious] == [6] * 4
    malicious = torch.tensor(attacked.malicious)
    assert [set((rows // 30).tolist()) for rows in malicious] == [{0}, {1}, {2}, {3}]
    benign = torch.ones(120, dtype=torch.bool)
    benign[malicious.flatten()] = False
    assert torch.equal(x[benign], images[benign])  # bit by bit
    assert attacked.samples == tuple(benign.nonzero().squeeze(1).tolist())
    assert clean.samples == attacked.samples and clean.malicious == attacked.malicious
    assert attacked.accuracy().n == 96
    assert attacked.accuracy().correct < clean.accuracy().correct
    assert "malicious=0.2" in result.results[1].key
    assert result.results[1].statistics == statistics
    assert result.results[1].settings["malicious"] == 0.2


def test_a_row_alone_in_a_clean_batch_is_tested_as_its_closed_form_says():
    """A linear model after one norm: right while (1 - 1/n) x is above the others' mean / n."""
    rows = torch.tensor([0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.9], dtype=torch.float64)
    labels = (rows > rows.mean()).long()
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model[1].bias.zero_()
    result = advnorm.evaluate(
        model,
        rows[:, None],
        labels,
        advnorm.Linf(0.1),
        conditions=["pgd-20"],
        statistics="batch",
        batch_size=8,
        attacked=1 / 8,
    )
    worst = rows + 0.1 * (1 - 2 * labels)
    mean = (rows.sum() - rows + worst) / 8
    expected = (worst > mean).long() == labels
    (verdicts,) = result.verdicts.values()
    assert list(verdicts.robust) == expected.tolist()
    assert 0 < expected.sum() < 8


def test_a_share_at_a_time_covers_every_row_once(sample):
    plan = BatchStatistics("batch", 30, attacked=0.2)
    parts = plan.attacked_of(torch.arange(30), seed=1)
    assert [len(part) for part in parts] == [6] * 5
    assert torch.cat(parts).sort().values.tolist() == list(range(30))
    result = evaluate(sample, attacked=0.2)
    assert [r.key for r in result.results] == [
        "clean+batch=30",
        "pgd-10+batch=30+attacked=0.2_linf_0.1",
    ]
    assert result.results[1].accuracy.n == 120


def test_the_same_batches_give_the_same_verdicts_and_the_model_is_as_before(sample):
    model, images, labels = sample
    model.train()
    before, flags = deepcopy(model.state_dict()), [m.training for m in model.modules()]
    state = torch.get_rng_state()
    first, second = (evaluate(sample, ["pgd-10x2"], malicious=0.1) for _ in range(2))
    assert first.verdicts == second.verdicts
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    assert all("forward" not in vars(layer) for layer in model.modules())
    part = evaluate((model, images[:30], labels[:30]), ["pgd-10x2"], malicious=0.1)
    (rows,), (all_rows,) = part.verdicts.values(), first.verdicts.values()
    assert rows.robust == all_rows.robust[: len(rows.robust)]


def test_a_radius_of_zero_is_no_attack(sample):
    clean, attacked = evaluate(sample, eps=0.0).verdicts.values()
    assert clean.robust == attacked.robust and set(attacked.by) == {""}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"batch_size": 50},
            r"120 samples do not fill batches of 50: the last has 20.*"
            r"batch_size=40, or 100 samples",
        ),
        ({"batch_size": 250}, "do not fill batches of 250.*use batch_size=120"),
        ({"batch_size": 1}, "at least 2 samples"),
        ({"statistics": "running", "malicious": 0.1}, "set statistics to batch or median"),
        ({"statistics": "running", "attacked": 0.1}, "set statistics to batch or median"),
        ({"statistics": "mean"}, "statistics are running, batch, median, not 'mean'"),
        ({"malicious": 0.01}, "0 of 30 rows"),
        ({"malicious": 0.99}, "30 of 30 rows"),
        ({"malicious": -0.1}, "from 0 and below 1"),
        ({"malicious": 0.1, "attacked": 0.5}, "with malicious rows leave it out"),
        ({"attacked": 0.0}, "above 0"),
        ({"conditions": ["standard"]}, "standard attacks or certifies each image by its"),
        ({"conditions": ["pgd-2..5"]}, "name clean, noise, corruptions, fgsm"),
        ({"conditions": ["pgd-5+random"]}, "name clean, noise"),
        ({"conditions": ["ibp"]}, "name clean, noise"),
        ({"radii": True}, "there are no radii"),
        ({"certificate": "ibp"}, "no certificates"),
        ({"search_precision": "bfloat16"}, "no searches in bfloat16"),
    ],
    ids=str,
)
def test_refusals(sample, settings, words):
    with pytest.raises(ValueError, match=words):
        evaluate(sample, **settings)


def test_a_model_without_batch_norms_is_refused():
    _, images, labels = trained()
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    with pytest.raises(ValueError, match="no batch norm: leave statistics at running"):
        evaluate((model, images, labels))
