"""Splits of image files: crops keyed by sample, workers, digests, unreadable files."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from data_files import (
    CPU,
    save_image,
    small_folder,
    tiny_imagenet_files,
    whole,
    write_image_folder,
    write_zip,
)
from PIL import Image

from advnorm.data import load, select, subset


@pytest.mark.parametrize("epoch", [None, 0, 3])
def test_neither_workers_nor_batches_nor_order_change_an_image(tmp_path, epoch):
    write_image_folder(tmp_path, side=(12, 10))
    data = load(f"folder:{tmp_path}", size=6, workers=0, seed=2)
    images, _, samples = whole(data.train, epoch=epoch)
    by_sample = dict(zip(samples.tolist(), images, strict=True))
    order = torch.randperm(len(data.train))[:11]
    parallel = load(f"folder:{tmp_path}", size=6, workers=2, seed=2)
    part = subset(select(parallel, classes=(2, 0)), train=5, test=None, seed=0)
    seen = [
        whole(data.train, batch_size=3, order=order, epoch=epoch),
        whole(parallel.train, batch_size=4, order=order, epoch=epoch),
        whole(part.train, batch_size=2, epoch=epoch),
    ]
    for shown, _, numbers in seen:
        for image, number in zip(shown, numbers.tolist(), strict=True):
            assert torch.equal(image, by_sample[number])


def test_an_image_by_its_position_is_that_of_the_batches(tmp_path):
    write_image_folder(tmp_path, side=(12, 10))
    split = load(f"folder:{tmp_path}", size=6, workers=2).test
    images, labels, _ = whole(split)
    alone = [image for image, _ in split]
    assert torch.equal(torch.stack(alone), images)
    assert [label.item() for _, label in split] == labels.tolist()


def test_training_crops_change_with_epoch_and_seed_evaluation_never(tmp_path):
    write_image_folder(tmp_path, side=(12, 10))
    seed0, seed1 = (
        load(f"folder:{tmp_path}", size=6, workers=0, seed=s, validation=0).train
        for s in (0, 1)
    )
    first = whole(seed0, epoch=0)[0]
    assert torch.equal(first, whole(seed0, epoch=0)[0])
    others = (whole(seed0, epoch=1), whole(seed1, epoch=0), whole(seed0))
    for other, _, _ in others:
        assert (first != other).flatten(1).any(1).all()
    assert torch.equal(whole(seed0)[0], whole(seed1)[0])


def test_evaluation_shows_the_central_seven_eighths(tmp_path):
    array = np.zeros((16, 24), np.uint8)
    array[1:15, 5:19] = 200  # 14 of 16 pixels, centred
    for part in ("train", "test"):
        for label in ("a", "b"):
            save_image(tmp_path / part / label / "0.png", array)
    data = load(f"folder:{tmp_path}", size=14, workers=0, validation=0)
    assert (whole(data.test)[0] * 255).round().unique().tolist() == [200]


def test_reading_leaves_the_random_state_alone_and_an_order_may_be_empty(tmp_path):
    write_image_folder(tmp_path)
    data = load(f"folder:{tmp_path}", size=6)
    before = torch.get_rng_state()
    whole(data.train, epoch=0)
    assert torch.equal(torch.get_rng_state(), before)
    empty = torch.arange(0)
    assert not list(data.train.batches(empty, batch_size=4, device=CPU))


def test_moments_of_a_folder_are_those_of_its_pixels(tmp_path):
    write_image_folder(tmp_path)
    data = load(f"folder:{tmp_path}", validation=0, workers=0)
    images = whole(data.train)[0].double()
    mean, std = data.moments()
    assert mean.tolist() == pytest.approx(images.mean((0, 2, 3)).tolist(), abs=1e-6)
    expected = images.std((0, 2, 3), unbiased=False)
    assert std.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_image_is_named(tmp_path, workers):
    write_image_folder(tmp_path)
    bad = tmp_path / "test" / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:60])
    data = load(f"folder:{tmp_path}", workers=workers)
    with pytest.raises(ValueError) as caught:
        whole(data.test, batch_size=5)
    assert str(caught.value).startswith(f"{bad} is no readable JPEG or PNG")
    assert "\n" not in str(caught.value)


def test_other_bad_images_are_named(tmp_path):
    write_image_folder(tmp_path)
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "test" / "cat" / "0.png")
    with pytest.raises(ValueError, match=r"cat/0\.png has more than 8 bits"):
        whole(load(f"folder:{tmp_path}", workers=0).test)
    (tmp_path / "test" / "cat" / "0.png").write_bytes(b"<html>no</html>")
    data = load(f"folder:{tmp_path}", workers=0)
    with pytest.raises(ValueError, match=r"cat/0\.png is no readable"):
        whole(data.test)
    (tmp_path / "test" / "cat" / "0.png").unlink()
    with pytest.raises(ValueError, match=r"cat/0\.png cannot be read"):
        whole(data.test)


def test_a_corrupt_image_in_an_archive_is_named(tmp_path):
    files = tiny_imagenet_files()
    files["tiny-imagenet-200/val/images/val_2.JPEG"] = b"nothing"
    write_zip(tmp_path / "tiny-imagenet-200.zip", files)
    data = load("tiny-imagenet", root=tmp_path, workers=0, validation=0)
    with pytest.raises(ValueError, match=r"val_2\.JPEG is no readable JPEG or PNG"):
        whole(data.test)


def test_the_digest_of_files_is_that_of_paths_sizes_labels_and_order(tmp_path):
    write_image_folder(tmp_path / "a")

    def digest(path: Path, **settings) -> str:
        return load(f"folder:{path}", validation=0.5, **settings).digest()

    first = digest(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert digest(tmp_path / "b", workers=0) == first, (
        "the digest does not depend on the place"
    )
    assert digest(tmp_path / "b", size=4) != first
    assert digest(tmp_path / "b", seed=1) != first, "another part is held out"
    test = load(f"folder:{tmp_path / 'b'}", validation=0.5).test
    back = torch.arange(len(test)).flip(0)
    assert test.take(back).digest() != test.digest() == test.take(back).take(back).digest()
    assert test.relabel(torch.tensor([0, 2, 1])).digest() != test.digest()
    image = tmp_path / "b" / "test" / "emu" / "5.png"
    image.rename(image.with_name("6.png"))
    renamed = digest(tmp_path / "b")
    image.with_name("6.png").write_bytes(image.with_name("6.png").read_bytes() + b"\0")
    assert len({first, renamed, digest(tmp_path / "b")}) == 3
    last = load(f"folder:{tmp_path / 'b'}", validation=0.5).test
    image.with_name("6.png").unlink()
    with pytest.raises(ValueError, match=r"6\.png cannot be read .*remove it from"):
        last.digest()


def test_the_digest_of_an_archive_is_that_of_its_images(tmp_path):
    digests = []
    same, other = tiny_imagenet_files(), tiny_imagenet_files()
    for place, files in (("a", same), ("b", same), ("c", other)):
        write_zip(tmp_path / place / "tiny-imagenet-200.zip", files)
        data = load("tiny-imagenet", root=tmp_path / place, workers=0, validation=0)
        digests.append(data.digest())
    assert digests[0] == digests[1] != digests[2]


def read_all(data) -> None:
    for split in (data.train, data.validation, data.test):
        if len(split):
            whole(split, batch_size=4)


@pytest.mark.parametrize("name", ["0.png", "1.png"])
@pytest.mark.parametrize("kind", ["pipe", "zero", "gone", "sparse"])
def test_a_folder_reads_regular_files_of_some_size_alone(tmp_path, kind, name):
    path = small_folder(tmp_path) / name
    path.unlink()
    make = {
        "pipe": lambda: os.mkfifo(path),
        "zero": lambda: path.symlink_to("/dev/zero"),
        "gone": lambda: path.symlink_to("nowhere"),
        "sparse": lambda: (path.touch(), os.truncate(path, 1 << 40)),
    }
    make[kind]()
    with pytest.raises(ValueError, match=rf"cat/{name} cannot be read \(.*replace it"):
        read_all(load(f"folder:{tmp_path}", workers=0))


@pytest.mark.parametrize("kind", ["pipe", "zero"])
def test_a_folder_is_refused_before_training_and_not_in_the_middle(tmp_path, kind):
    path = small_folder(tmp_path) / "2.png"
    path.unlink()
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"2\.png cannot be read .*not a regular file"):
        load(f"folder:{tmp_path}", workers=0).digest()
