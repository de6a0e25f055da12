"""Two and three classes: every attack and suite works, and says what it fell back to."""

import pytest
import torch
from torch import nn

from advnorm.attacks import ATTACKS
from advnorm.evaluation import evaluate, parse_conditions
from advnorm.evaluation.condition_names import SUITES
from advnorm.recipe import Recipe, override
from advnorm.report import comparison_text
from advnorm.runs import evaluate_run
from advnorm.threat import L0, L1, L2, THREATS, Linf
from advnorm.training import train

DUALS = {"linf": 1, "l2": 2}
SHORT = {"apgd_ce-100": "apgd_ce-20", "apgd_t-100": "apgd_t-20", "fab_t-100": "fab_t-20"}
SHORT |= {"square-5000": "square-300", "apgd_dlr-100x5": "apgd_dlr-20x2"}
SHORT |= {"pgd-200x5": "pgd-40x2"}
ALONE = ["fgsm", "bim-40", "pgd-40", "apgd_ce-20", "apgd_dlr-20", "apgd_t-20", "fab_t-20"]

EVERY_WAY = ["standard", "full", "apgd_t-20", "fab_t-20"]
"""These try each class; one loss over all of 3 classes may climb the wrong way."""


def problem(classes, norm, n=40):
    """Return a linear model on tiny images, and how far each is from any other class."""
    generator = torch.Generator().manual_seed(classes)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, classes)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(classes, 16, generator=generator))
        model[1].bias.copy_(-model[1].weight.sum(1) / 2)
    images = (torch.rand(n, 1, 4, 4, generator=generator).double() - 0.5) * 0.2 + 0.5
    logits, w = model(images).detach(), model[1].weight.detach()
    labels = logits.argmax(1)
    gap = logits.gather(1, labels[:, None]) - logits
    length = (w[labels][:, None] - w[None]).norm(p=DUALS[norm], dim=2)
    ways = (gap / length).scatter(1, labels[:, None], torch.inf)
    return model, images, labels, ways.min(1).values


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_every_suite_and_attack_breaks_what_the_closed_form_says(
    monkeypatch, classes, norm
):
    for suite, attacks in SUITES.items():
        monkeypatch.setitem(SUITES, suite, tuple(SHORT.get(a, a) for a in attacks))
    model, images, labels, distance = problem(classes, norm)
    eps = distance.median().item()
    names = [*SUITES, *ALONE, "square-300"]
    evaluation = evaluate(model, images, labels, THREATS[norm](eps), conditions=names)
    beyond, within = distance > eps * (1 + 1e-6), distance < 0.9 * eps
    for result in evaluation.results:
        robust = torch.tensor(evaluation.verdicts[result.key].robust)
        assert robust[beyond].all(), f"{result.condition} breaks what cannot be broken"
        missed = (robust & within).sum().item()
        most = 0 if classes == 2 or result.condition in EVERY_WAY else 2
        most = len(images) if result.condition in ("fgsm", "square-300") else most
        assert missed <= most, result.condition


@pytest.mark.parametrize(
    "classes, told", [(2, {"apgd_dlr", "apgd_t"}), (3, {"apgd_t"}), (4, set())]
)
def test_fallbacks_are_noted_for_the_attack_and_in_the_suites(classes, told):
    for name in (*ATTACKS, *SUITES):
        norm = ATTACKS[name].norms[0] if name in ATTACKS else "linf"
        threat = {"l2": L2(0.1), "l1": L1(0.1), "l0": L0(1)}.get(norm, Linf(0.1))
        (condition,) = parse_conditions([name], [threat], (0.0, 1.0))
        families = {attack.entry.name for attack in condition.attacks}
        notes = condition.notes(classes)
        assert {note.partition(":")[0].partition("-")[0] for note in notes} == (
            families & told
        )
        assert all(f"there are {classes}: the plain margin" in note for note in notes)
    assert {n for n in ATTACKS if ATTACKS[n].fallback(2)} == {"apgd_dlr", "apgd_t"}


def test_a_note_is_marked_beside_the_numbers_and_said_once_below_in_python():
    model, images, labels, _ = problem(3, "linf", n=4)
    names, threats = ["apgd_ce-2", "apgd_t-2"], [Linf(0.01), Linf(0.02)]
    evaluation = evaluate(model, images, labels, threats, conditions=names)
    *lines, first, second = str(evaluation).splitlines()
    heads, lines = lines[:2], lines[2:]  # the worst case in each ball
    assert [head.partition(":")[0] for head in heads] == [
        "worst case at linf 0.01",
        "worst case at linf 0.02",
    ]
    marked = {result.key: bool(result.notes) for result in evaluation.results}
    assert sorted(marked.values()) == [False, False, True, True]
    for (key, noted), line in zip(marked.items(), lines, strict=True):
        assert line.startswith(key) and line.endswith("n=4 !1" if noted else "n=4")
    assert first.startswith("!1 apgd_t-2: the targeted DLR needs 4 classes, there are 3:")
    assert len(first) <= 88 and second == "   instead"


def test_a_note_is_recorded_and_printed_for_a_run(tmp_path):
    changes = ["data.classes=[3, 7]", "data.train=60", "data.test=20", "epochs=1"]
    changes += ["model.options={depth: 1, width: 4}", "attack.steps=1"]
    changes += ["evaluation={conditions: [clean, apgd_dlr-2], threat: {eps: [0.1]}}"]
    recipe = override(Recipe(), changes)
    run = train(recipe, tmp_path / "run")
    clean, noted = evaluate_run(run, recipe)
    assert clean.notes == () and len(noted.notes) == 1 and noted.flags == ()
    assert run.result(noted.key) == noted
    assert "*1 apgd_dlr-2: the DLR needs 3 classes, there are 2" in comparison_text([run])
