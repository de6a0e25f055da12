"""Recipes at full against what their papers state."""

import pytest
import torch

from advnorm.models import build
from advnorm.norms import NORMS
from advnorm.norms.standard import BatchNorm
from advnorm.papers import ARTEFACTS
from advnorm.records import SCALES
from advnorm.studies.trained_runs import training_settings


def test_imagenet_is_cropped_once():
    """Its images are read as random parts of a random size: no padded crop after that."""
    augmentations = {
        (name, job.row): job.recipe.data.augment
        for name in ARTEFACTS
        for job in ARTEFACTS[name].jobs("full")
        if job.recipe.data.name == "imagenet"
    }
    assert {name for name, _ in augmentations} >= {"apart2022/table2", "xie2020/table7"}
    assert set(augmentations.values()) == {"flip"}


@pytest.mark.parametrize("name", ["galloway2019/table5", "galloway2019/table12"])
def test_imagenet_networks_are_judged_on_every_class(name):
    """Files are read class by class: the first 2,048 test images are of 41 classes."""
    for job in ARTEFACTS[name].jobs("full"):
        for recipe in (job.recipe, *job.targets.values()):
            assert recipe.evaluation.samples is None
            assert recipe.data.test is not None and recipe.data.test % 1000 == 0
        assert not job.questions or job.samples == job.recipe.data.test


@pytest.mark.parametrize(
    ("name", "row"),
    [("figure12", "Per-img"), ("figure14", "No norm"), ("figure15", "No norm")],
)
def test_fooling_images_of_standardized_ones_may_be_negative(name, row):
    """galloway2019, J.1: clipped "to [0, 1], and for Per-img to [-1, 1]"."""
    for job in ARTEFACTS[f"galloway2019/{name}"].jobs("full"):
        standardized = job.row.startswith(row)
        assert job.recipe.threat.bounds == ((-1, 1) if standardized else (0, 1))
        spaces = [options.get("space", "pixels") for options in job.questions.values()]
        if job.row != "Per-img":  # kept beside it: the layer is part of the attacked model
            assert set(spaces) == {"normalized" if standardized else "pixels"}


@pytest.mark.parametrize("scale", SCALES)
def test_the_norms_of_a_pre_activation_resnet_are_within_its_blocks(scale):
    """sridhar2021, B.1: "with Batch Normalization within each PreAct block"."""
    jobs = {job.row: job.recipe for job in ARTEFACTS["sridhar2021/table3"].jobs(scale)}
    spec = jobs["PGD-AT, BN"].model
    norm = NORMS["batch"]()
    with torch.device("meta"):
        model = build(
            spec.name, shape=(3, 32, 32), classes=10, norm=norm, options=spec.options
        )
    names = [name for name, layer in model.named_modules() if isinstance(layer, BatchNorm)]
    assert len(names) == 16 and all(name.startswith("blocks.") for name in names)


@pytest.mark.parametrize(
    ("row", "name", "other"),
    [
        ("PGD-AT, BN", "table3", "AT"),
        ("TRADES, BN", "table1", "TRADES-Seq-6"),
    ],
)
def test_a_row_that_two_papers_print_is_one_run(row, name, other):
    """66.44, 34.03, 24.26 and 70.42, 24.24, 17.18 of sridhar2021 and sitawarin2021."""
    jobs = {job.row: job for job in ARTEFACTS["sridhar2021/table3"].jobs("full")}
    column = "PGD" if name == "table3" else "16/255 PGD"
    (same,) = (
        job
        for job in ARTEFACTS[f"sitawarin2021/{name}"].jobs("full")
        if job.row == other and column in job.numbers
    )
    assert training_settings(jobs[row].recipe) == training_settings(same.recipe)
    published = ARTEFACTS["sridhar2021/table3"].published_at(row, "PGD")
    assert published == ARTEFACTS[f"sitawarin2021/{name}"].published_at(other, column)


def test_images_of_mnist_are_standardized_in_rows_that_say_so_alone():
    """sridhar2021, B.2 and B.3: "input normalization" is said of CIFAR-10 alone."""
    for name in ("table1", "table2", "table5", "table6"):
        for job in ARTEFACTS[f"sridhar2021/{name}"].jobs("full"):
            mnist = job.recipe.data.name == "mnist"
            wanted = "data" if not mnist or "standardized" in job.row else "none"
            assert job.recipe.model.standardize == wanted, job.row


def test_degeneration_is_judged_without_a_rising_radius():
    """sridhar2021's PGD-AT has the whole radius from the first step on (B.2)."""
    (claim,) = (
        claim
        for claim in ARTEFACTS["sridhar2021/table1"].claims
        if "degenerates" in claim.text and "reduced" in claim.scales
    )
    words = " ".join(part.why for part in claim.check_parts({}))
    jobs = {job.row: job for job in ARTEFACTS["sridhar2021/table1"].jobs("reduced")}
    rows = [row for row in jobs if f"{row}, Clean" in words]
    assert rows == ["MNIST 0.4, fixed radius", "MNIST 0.4, fixed radius, BN"]
    for row in rows:
        schedule = jobs[row].recipe.threat.schedule
        assert schedule is None or schedule.build()(0.0) == 1
        rising = jobs[row.replace(", fixed radius", "")].recipe.threat.schedule
        assert rising is not None and rising.build()(0.0) == 0


@pytest.mark.parametrize("row", ["MAT-100", "MAT-100, BN"])
def test_half_of_a_loss_takes_the_steps_of_the_papers_sum(row):
    """sridhar2021: Eqn. 5 is a sum, at rate 0.05 and weight decay 5e-4 (B.1, B.2)."""
    jobs = {job.row: job.recipe for job in ARTEFACTS["sridhar2021/table3"].jobs("full")}
    own = jobs[row].optimizer
    assert jobs[row].objective.gamma == 0.5 and own.name == "sgd" and own.clip_norm is None
    settings = {"lr": own.lr, "weight_decay": own.weight_decay}
    assert _descend(0.5, **settings, momentum=own.momentum) == _descend(
        1.0, lr=0.05, weight_decay=5e-4, momentum=0.9
    )


def _descend(weight: float, **settings: float) -> list[float]:
    """Return where three steps lead that begin at 1 and lower two quartics' weighted sum."""
    point = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([point], **settings)
    places = []
    for _ in range(3):
        optimizer.zero_grad()
        (weight * (point**4 + (point - 2) ** 4)).backward()
        optimizer.step()
        places.append(point.item())
    return places


@pytest.mark.parametrize("kind", ["BN", "Fixup"])
def test_residual_networks_are_trained_as_by_the_authors_code(kind):
    """AngusG/bn-advex-zhang-fixup: 200 epochs, decay 5e-4, a tenth at 100 and at 150."""
    jobs = ARTEFACTS["galloway2019/figure4"].jobs("full")
    recipes = [job.recipe for job in jobs if job.row.startswith(kind)]
    assert len(recipes) == 20
    for recipe in recipes:
        own = recipe.optimizer
        assert (recipe.epochs, own.lr, own.weight_decay) == (200, 0.1, 5e-4)
        assert (own.schedule.at, own.schedule.factor) == ((100, 150), 0.1)


def test_l2_radii_are_those_of_linf_times_the_root_of_the_dimension():
    """galloway2019, B.1, for the images of 3 x 32 x 32 values of its Figure 5."""
    jobs = {job.row: job for job in ARTEFACTS["galloway2019/figure5"].jobs("full")}
    for row in ("ResNet32, B-mis", "WRN, F-tgt-ll"):
        plain, l2 = jobs[row], jobs[f"{row}, l2"]
        for radius, number in plain.numbers.items():
            if radius != "0":
                other = l2.numbers[radius]
                assert other.norm == "l2"
                assert other.eps == pytest.approx(number.eps * 3072**0.5)


def test_the_linear_models_of_galloway2019_have_one_unit():
    """Section 3: a linear classifier w x + b, on the logistic loss (appendix F)."""
    for name in ("table1", "figure1", "figure3", "figure10", "figure11"):
        jobs = ARTEFACTS[f"galloway2019/{name}"].jobs("full")
        linear = [job.recipe.model for job in jobs if job.recipe.model.name == "linear"]
        assert linear and all(m.options["output"] == "logistic" for m in linear)


def test_apart_takes_the_moments_of_a_shift_as_its_authors_do():
    """github.com/unknown9567/apart: buffers at full; Eq. 3 differentiates them."""
    for name in ("table1", "table2", "table3"):
        for scale in SCALES:
            for job in ARTEFACTS[f"apart2022/{name}"].jobs(scale):
                rule = job.recipe.gradient
                wanted = True if scale == "full" and "apart" in rule.name else None
                assert rule.detached is wanted


@pytest.mark.parametrize("scale", ["reduced", "full"])
def test_perturbed_tests_average_directions_that_all_models_share(scale):
    jobs = ARTEFACTS["apart2022/figure2"].jobs(scale)
    assert {job.recipe.perturbation.draws for job in jobs} == {8}
    for job in jobs:
        for number in job.numbers.values():
            keys = [source.key for source in number.numbers]
            assert len(set(keys)) == 8
    assert {job.recipe.seed for job in jobs} == {0}


def test_no_run_at_reduced_is_asked_opposite_things():
    """apart2022, Table 2: Tiny-ImageNet's APART and ImageNet's APART 2x were one run."""
    jobs = ARTEFACTS["apart2022/table2"].jobs("reduced")
    runs = [training_settings(job.recipe) for job in jobs]
    assert len(set(runs)) == len(runs)
