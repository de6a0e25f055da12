"""Recipes at full against what their papers state."""

from advnorm.papers import ARTEFACTS


def test_imagenet_is_cropped_once():
    """Its images are read as random parts of a random size: no padded crop after that."""
    found = {
        (name, job.row): job.recipe.data.augment
        for name in ARTEFACTS
        for job in ARTEFACTS[name].jobs("full")
        if job.recipe.data.name == "imagenet"
    }
    assert {name for name, _ in found} >= {"apart2022/table2", "xie2020/table7"}
    assert set(found.values()) == {"flip"}
