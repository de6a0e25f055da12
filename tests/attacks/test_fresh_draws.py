"""Attacks called directly start afresh; inside the package every caller passes draws."""

import ast
from inspect import signature
from pathlib import Path

import pytest
import torch
from torch import nn

import advnorm
from advnorm.attacks import ATTACKS, GOALS, CWSettings, fgsm, fooling, pgd
from advnorm.draws import Draws
from advnorm.evaluation import audit, evaluate
from advnorm.threat import L0, L1, L2, Linf

PACKAGE = Path(advnorm.__file__).parent
RANDOM = [name for name in ATTACKS if not ATTACKS[name].from_clean]
FIXED = [name for name in ATTACKS if ATTACKS[name].from_clean]
SETTINGS = {"steps": 2, "step_size": 0.01, "search": CWSettings(steps=20, constants=2)}


@pytest.fixture(scope="module")
def problem():
    """Return a smooth network, images and the labels that it gives them."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 5))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    images = torch.rand(6, 1, 4, 4, generator=generator)
    return model, images, model(images).argmax(1)


def call(name, problem, **source):
    """Call an attack of the registry for two steps."""
    entry = ATTACKS[name]
    threat = {"l2": L2(1.5), "l1": L1(4), "l0": L0(4)}.get(entry.norms[0], Linf(0.3))
    settings = {k: v for k, v in SETTINGS.items() if k in entry.parameters}
    return entry.function(*problem, threat, **settings, **source)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_takes_draws_and_a_generator_by_keyword(name):
    parameters = signature(ATTACKS[name].function).parameters
    for word in ("draws", "generator"):
        assert parameters[word].kind == parameters[word].KEYWORD_ONLY
        assert parameters[word].default is None


@pytest.mark.parametrize("name", RANDOM)
def test_two_direct_calls_start_at_two_points(name, problem):
    torch.manual_seed(1)
    first, second = call(name, problem), call(name, problem)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(call(name, problem), first)
    assert torch.equal(call(name, problem), second)


@pytest.mark.parametrize("name", RANDOM)
def test_a_generator_decides_the_start_and_the_global_one_stays(name, problem):
    state = torch.get_rng_state()
    generator = torch.Generator().manual_seed(7)
    first, second = (call(name, problem, generator=generator) for _ in range(2))
    assert not torch.equal(first, second)
    again = call(name, problem, generator=torch.Generator().manual_seed(7))
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", ATTACKS)
def test_draws_decide_all_and_the_global_generator_stays(name, problem):
    state, draws = torch.get_rng_state(), Draws.of(3, torch.arange(6))
    first, second = (call(name, problem, draws=draws) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("name", FIXED)
def test_an_attack_from_the_clean_image_repeats_itself(name, problem):
    assert torch.equal(call(name, problem), call(name, problem))


def test_a_random_target_is_drawn_afresh_too(problem):
    def targets():
        return fgsm(*problem, Linf(0.1), goal=GOALS["random"])

    torch.manual_seed(0)
    assert len({tuple(targets().flatten().tolist()) for _ in range(5)}) > 1


def test_fooling_images_begin_with_fresh_noise(problem):
    model, targets = problem[0], torch.arange(3)

    def images(**source):
        return fooling(model, targets, shape=(1, 4, 4), steps=2, **source).images

    assert not torch.equal(images(), images())
    state = torch.get_rng_state()
    a, b = (images(generator=torch.Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(a, b) and torch.equal(state, torch.get_rng_state())


def test_the_starts_of_a_batch_differ_from_each_other():
    clean = torch.full((50, 1, 4, 4), 0.5)
    starts = pgd(
        nn.Flatten(), clean, torch.zeros(50).long(), Linf(0.1), steps=0, step_size=0
    )
    assert len(torch.unique(starts.flatten(1), dim=0)) == 50
    assert abs(float((starts - 0.5).mean())) < 0.01  # uniform in [-0.1, 0.1], 800 pixels


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"generator": 0}, "a torch.Generator, not int: write torch.Generator"),
        ({"draws": Draws.of(0, torch.arange(5))}, "6 samples but 5 draws"),
        (
            {"draws": Draws.of(0, torch.arange(6)), "generator": torch.Generator()},
            "draws and generator are both set",
        ),
    ],
    ids=["number", "count", "both"],
)
def test_a_wrong_source_is_one_sentence(name, source, words, problem):
    with pytest.raises(ValueError, match=words):
        call(name, problem, **source)


def calls_without_draws(text):
    """Return the lines that call an attack of the registry by name without draws."""
    names = {entry.function.__name__ for entry in map(ATTACKS.__getitem__, ATTACKS)}
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {*names, "fooling"}
        and any(keyword.arg for keyword in node.keywords)
        and "draws" not in {keyword.arg for keyword in node.keywords}
    ]


def test_every_call_inside_the_package_passes_draws():
    """Recipes have builders called ``pgd``; they take no keywords."""
    lines = {path: calls_without_draws(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert not {path: calls for path, calls in lines.items() if calls}
    assert calls_without_draws("x = pgd(f, x, y, threat, steps=1)\n") == [1]


def test_evaluations_and_audits_draw_nothing_afresh(problem, monkeypatch):
    monkeypatch.setattr(Draws, "fresh", None)
    state = torch.get_rng_state()
    names = ["clean", "noise-0.1", "fgsm", "bim-2", "pgd-2x2", "pgd-1..5", "pgd-2+random"]
    names += ["apgd-2+random", "apgd_ce-2", "apgd_dlr-2", "apgd_t-2", "fab_t-2"]
    names += ["square-5", "hop_skip_jump-1"]
    evaluate(*problem, Linf(0.3), conditions=names)
    few = (problem[0], *(tensor[:1] for tensor in problem[1:]))
    evaluate(*few, L2(0.3), conditions=["pgd-2"])
    evaluate(*few, L2(0.3), conditions=["cw"])
    audit(*problem, Linf(0.3), suite=["apgd_ce-2", "square-5"], surrogate=problem[0])
    assert torch.equal(state, torch.get_rng_state())
