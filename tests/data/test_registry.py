"""Loading by name: splits, seeds, roots and mistakes."""

from pathlib import Path

import pytest
import torch

from advnorm.data import default_root, load


def test_digits_are_split_once_and_for_all():
    data, other = load("digits", seed=0), load("digits", seed=1)
    sizes = [len(split) for split in (data.train, data.validation, data.test)]
    assert sizes == [1293, 144, 360]
    assert data.test.labels.bincount().tolist() == [36] * 10
    parts = [split.samples for split in (data.train, data.validation, data.test)]
    assert sorted(torch.cat(parts).tolist()) == list(range(1797))
    assert torch.equal(data.test.samples, other.test.samples)
    assert not torch.equal(data.validation.samples, other.validation.samples)
    assert torch.equal(load("digits", seed=1).train.samples, other.train.samples)


def test_digits_become_bytes_by_rounding():
    images = load("digits").train.images
    assert images.dtype == torch.uint8
    values = {round(x * 255 / 16) for x in range(17)}
    assert set(images.flatten().tolist()) == values and max(values) == 255


@pytest.mark.parametrize(("fraction", "count"), [(0.0, 0), (0.1, 144), (0.5, 718)])
def test_the_validation_split_has_the_fraction_of_the_argument(fraction, count):
    data = load("digits", validation=fraction)
    assert (len(data.train), len(data.validation)) == (1437 - count, count)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"validation": 1.0}, "fraction from 0 to less than 1"),
        ({"validation": -0.1}, "fraction"),
        ({"size": 0}, "pixels"),
        ({"size": 100_000}, "pixels from 1 to 2048, not 100000"),
        (
            {"validation": 0.0003},
            "fraction of 0.0003 is 0 of 1437 samples: give 0.00035 to",
        ),
        ({"validation": 0.9999}, "is 1437 of 1437 samples: give .* to 0.9993"),
    ],
)
def test_bad_settings_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        load("digits", **settings)


def test_an_unknown_name_says_which_is_closest():
    with pytest.raises(ValueError, match="no data set 'minst': did you mean 'mnist'"):
        load("minst")
    with pytest.raises(ValueError, match="takes nothing after its name"):
        load("digits:3")


def test_the_root_is_the_argument_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ADVNORM_DATA", str(tmp_path / "a"))
    assert default_root() == tmp_path / "a"
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "b")):
        load("mnist", root=tmp_path / "b")
    monkeypatch.delenv("ADVNORM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert default_root() == tmp_path / "c" / "advnorm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_root() == Path.home() / ".cache" / "advnorm"


def test_loading_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    load("digits")
    load("spheres")
    assert torch.equal(torch.get_rng_state(), before)
