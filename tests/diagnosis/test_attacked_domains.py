"""The images of the three domains: broken and robust samples."""

import pytest
import torch
from torch import nn

from advnorm.attacks import GOALS, pgd
from advnorm.diagnosis.attacked_domains import attack_images, worst_case_images
from advnorm.draws import Draws
from advnorm.threat import Linf

EPS = 0.1


@pytest.fixture
def subject():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval()
    images = torch.rand(60, 3, 2, 2)
    labels = model(images).argmax(1)
    labels[:5] = 1 - labels[:5]  # wrong from the start
    return model, images, labels


def test_what_a_model_withstands_stays_clean(subject):
    model, images, labels = subject
    seen = worst_case_images(*subject, Linf(EPS), suite="strong")
    moved = (seen != images).flatten(1).any(1)
    wrong = model(seen).argmax(1) != labels
    assert 5 < int(moved.sum()) < 60, "some break, some stand"
    assert torch.equal(moved[5:], wrong[5:]), "what is moved is broken, and nothing else is"
    assert not moved[:5].any(), "nothing is searched where the model is wrong already"


def test_one_attack_moves_every_image(subject):
    model, images, labels = subject
    seen = attack_images(
        *subject, Linf(EPS), attack="pgd-4+random+clean=0.5+step=0.03", seed=3
    )
    rows, threat = torch.arange(60), Linf(EPS)
    expected = pgd(
        model,
        images,
        labels,
        threat,
        steps=4,
        step_size=0.03,
        goal=GOALS["random"],
        clean_start=0.5,
        draws=Draws.of(3, rows),
    )
    torch.testing.assert_close(seen, expected)
    plain = attack_images(*subject, threat, attack="pgd-4")
    named = pgd(model, images, labels, threat, steps=4, step_size=2.5 * EPS / 4)
    torch.testing.assert_close(plain, named)


@pytest.mark.parametrize("name", ["quick", "pgd-4x2", "pgd-2..4"])
def test_a_suite_is_not_one_attack_nor_are_restarts_and_curves(subject, name):
    with pytest.raises(ValueError, match="is more than one attack"):
        attack_images(*subject, Linf(EPS), attack=name)
