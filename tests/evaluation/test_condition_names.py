"""Names of cells: read in full, or refused before anything runs."""

import pytest
import torch
from torch import nn

import advnorm
from advnorm.attacks import ATTACKS, CWSettings
from advnorm.draws import Draws
from advnorm.evaluation import parse_conditions
from advnorm.threat import L0, L1, L2, Linf


def test_conditions_carry_their_settings():
    (condition,) = parse_conditions(["pgd-20x3"], [L2(0.5)], (0.0, 1.0), step_ratio=2.0)
    assert condition.key == "pgd-20x3_l2_0.5"
    assert condition.settings == {"restarts": 3, "steps": 20, "step_size": 0.05}


@pytest.mark.parametrize(
    "name",
    [
        "pgd-0",
        "pgd-0.5",
        "pgd-2.7",
        "pgd-1.2.3",
        "pgd--1",
        "pgd-",
        "pgd-5x0",
        "pgd-5x-1",
        "pgd-5x1.5",
        "pgd-5x",
        "pgd-5y3",
        "pgd-1e1",
        "bim-0",
        "bim-10x3",
        "bimx2",
        "fgsm-7",
        "fgsmx3",
        "fgsm-7x3",
        "clean-5",
        "cleanx3",
        "clean-5x3",
        "noise-0",
        "noise-0.0",
        "noise-.x",
        "noise-1.2.3",
        "noise--1",
        "noise-0.1x3",
        "noise-",
    ],
)
@pytest.mark.parametrize("threats", [[], [Linf(0.1)]], ids=["before training", "after"])
def test_numbers_that_mean_nothing_to_an_attack_are_refused(name, threats):
    family = name.partition("-")[0].rstrip("0123456789").removesuffix("x")
    with pytest.raises(ValueError, match=f"'{name}' is not understood: write {family}"):
        parse_conditions([name], threats, (0.0, 1.0))


@pytest.mark.parametrize(
    "name, settings",
    [
        ("pgd", {"steps": 10, "restarts": 1, "step_size": 0.025}),
        ("pgdx3", {"steps": 10, "restarts": 3, "step_size": 0.025}),
        ("pgd-1", {"steps": 1, "restarts": 1, "step_size": 0.25}),
        ("pgd-100x10", {"steps": 100, "restarts": 10, "step_size": 0.0025}),
        ("bim", {"steps": 10, "restarts": 1, "step_size": 0.025}),
        ("bim-5", {"steps": 5, "restarts": 1, "step_size": 0.05}),
        ("fgsm", {"restarts": 1}),
        ("clean", {}),
        ("noise", {"sigma": 0.25}),
        ("noise-0.05", {"sigma": 0.05}),
        ("noise-.5", {"sigma": 0.5}),
        ("noise-2", {"sigma": 2.0}),
        ("noise-2+unclipped", {"sigma": 2.0}),
        ("noise-2+tile=3+unclipped", {"sigma": 2.0, "tile": 3}),
    ],
)
def test_names_are_read_in_full(name, settings):
    (condition,) = parse_conditions([name], [Linf(0.1)], (0.0, 1.0))
    assert condition.name == name and condition.settings == pytest.approx(settings)


def test_attacks_that_a_restart_would_repeat_are_known_by_their_behaviour(monkeypatch):
    """Those that refuse restarts, and only those, draw no random number."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    clean = torch.rand(5, 1, 4, 4)
    labels = model(clean).argmax(1)
    drawn, bits = [], Draws.bits
    monkeypatch.setattr(
        Draws, "bits", lambda self, *shape: (drawn.append(1), bits(self, *shape))[1]
    )
    for name, entry in ((name, ATTACKS[name]) for name in ATTACKS):
        settings = {
            "steps": 2,
            "step_size": 0.01,
            "search": CWSettings(steps=2, constants=1),
        }
        more = {k: value for k, value in settings.items() if k in entry.parameters}
        threat = {"l2": L2(0.1), "l1": L1(0.1), "l0": L0(1)}.get(entry.norms[0], Linf(1e-3))
        drawn.clear()
        draws = Draws.of(0, torch.arange(5))
        entry.function(model, clean, labels, threat, draws=draws, **more)
        assert bool(drawn) != entry.from_clean, name


def test_colliding_radii_are_refused_only_where_their_results_would_collide():
    close = [Linf(0.1), Linf(0.100001)]
    with pytest.raises(ValueError, match=r"'pgd-5_linf_0\.1'"):
        parse_conditions(["clean", "pgd-5"], close, (0.0, 1.0))
    assert len(parse_conditions(["clean"], close, (0.0, 1.0))) == 1
    assert (
        len(parse_conditions(["pgd-5"], [Linf(0.1), L2(0.1), Linf(0.1001)], (0.0, 1.0)))
        == 3
    )


def test_the_largest_l2_radius_is_the_diagonal_of_the_box():
    check = advnorm.evaluation.check_radius
    check(L2(4.0, (-1.0, 1.0)), (1, 2, 2))
    check(Linf(2.0, (-1.0, 1.0)), (1, 2, 2))
    with pytest.raises(ValueError, match="units of the images"):
        check(L2(4.001, (-1.0, 1.0)), (1, 2, 2))


@pytest.mark.parametrize(
    "name, settings",
    [
        ("pgd-2000+random", {"target": "random", "steps": 2000, "step_size": 0.000125}),
        ("pgd-10+least_likely", {"target": "least_likely", "steps": 10}),
        ("pgd-10+clean", {"clean_start": 1.0}),
        ("pgd-10+clean=0.2", {"clean_start": 0.2}),
        ("pgd-30x2+random+step=1/255+clean=.5", {"step_size": 1 / 255, "restarts": 2}),
        ("pgd-30+ratio=5", {"step_size": 5 * 0.1 / 30}),
        ("bim-30+step=1e-3+random", {"step_size": 0.001, "target": "random"}),
        ("fgsm+least_likely", {"target": "least_likely"}),
        ("pgd+random", {"steps": 10, "step_size": 0.025}),
        ("pgd-1..30", {"steps": 30, "counts": "1 2 5 10 20 30", "iterate": "worst"}),
        ("pgd-3..9+last", {"steps": 9, "counts": "3 5 9", "iterate": "last"}),
        ("pgd-10..2000", {"step_size": 0.1 / 16}),
        ("pgd-10..2000+random+step=1/255", {"step_size": 1 / 255, "target": "random"}),
    ],
)
def test_options_are_recorded(name, settings):
    (condition,) = parse_conditions([name], [Linf(0.1)], (0.0, 1.0))
    recorded = {key: condition.settings[key] for key in settings}
    assert condition.name == name and recorded == pytest.approx(settings)


@pytest.mark.parametrize(
    "name, advice",
    [
        ("pgd-10+rndom", r"no option of pgd 'rndom': did you mean 'random'\?"),
        ("pgd-10+", "no option of pgd ''; there are: clean, last, least_likely"),
        ("fgsm+clean", "no option of fgsm 'clean'"),
        ("bim-10+clean", "no option of bim 'clean'"),
        ("apgd_ce-10+random", r"write apgd_ce\[-STEPS\]\[xRESTARTS\], STEPS"),
        ("clean+random", "write clean, without a number"),
        ("noise+step=1", "no option of noise 'step'.* There are: tile, unclipped"),
        ("noise+tile=1.5", r"write \+tile=PIXELS, PIXELS a whole number from 1"),
        ("noise+tile", r"write \+tile=PIXELS, PIXELS a whole number from 1"),
        ("pgd+tile=2", "no option of pgd 'tile'"),
        ("noise-1+unclipped=2", r"write \+unclipped, without a number"),
        ("pgd+unclipped", "no option of pgd 'unclipped'"),
        ("quick+random", "takes no number, and no option"),
        ("pgd+step", r"write \+step=LENGTH, LENGTH a number > 0 such as 1/255"),
        ("pgd+step=0", r"write \+step=LENGTH"),
        ("pgd+step=-1", r"write \+step=LENGTH"),
        ("pgd+step=1/0", r"write \+step=LENGTH"),
        ("pgd+step=nan", r"write \+step=LENGTH"),
        ("pgd+ratio=x", r"write \+ratio=RATIO"),
        ("pgd+clean=1.5", r"write \+clean\[=SHARE\], SHARE a probability"),
        ("pgd+clean=0", r"write \+clean\[=SHARE\]"),
        ("pgd+random=3", r"write \+random, without a number"),
        ("pgd+random+least_likely", r"\+random and \+least_likely decide the same"),
        ("pgd+step=1+ratio=2", r"\+step and \+ratio decide the same"),
        ("pgd+random+random", "decide the same, leave one out"),
        ("pgd-10x3+clean", "from the clean image x3 repeats itself"),
        ("pgd-10x3+clean+least_likely", "repeats itself"),
        ("pgd-10+last", r"\+last is for a curve"),
        ("pgd-10..10", "the step counts of a curve increase"),
        ("pgd-20..10", "the step counts of a curve increase"),
        ("pgd-10..", r"write pgd\[-STEPS\]"),
        ("bim-10..20", r"write bim\[-STEPS\]"),
        ("pgd-10..20+ratio=2", "a curve has one step size"),
    ],
)
def test_options_that_mean_nothing_are_refused_in_one_sentence(name, advice):
    with pytest.raises(ValueError, match=advice) as error:
        parse_conditions([name], [], (0.0, 1.0))
    assert "\n" not in str(error.value)


def test_restarts_from_the_clean_image_may_draw_other_targets():
    assert parse_conditions(["pgd-10x3+clean+random"], [Linf(0.1)], (0.0, 1.0))


def test_a_fraction_in_a_name_makes_no_folder():
    (condition,) = parse_conditions(["pgd-10+step=1/255"], [Linf(0.1)], (0.0, 1.0))
    assert condition.key == "pgd-10+step=1of255_linf_0.1"


@pytest.mark.parametrize(
    ("name", "horizon"), [("square-500", 500), ("square-4999", 4999), ("square-5000", None)]
)
def test_a_short_square_search_goes_through_the_whole_schedule(name, horizon):
    """AutoAttack's own 5,000 queries keep its schedule, which is for 10,000."""
    (condition,) = parse_conditions([name], [Linf(0.1)], (0.0, 1.0))
    assert condition.settings.get("horizon") == horizon
    (suite,) = parse_conditions(["standard"], [Linf(0.1)], (0.0, 1.0))
    assert not any("horizon" in key for key in suite.settings)
