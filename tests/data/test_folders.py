"""Image folders: what is shown of an image, keyed draws, layouts and mistakes."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from advnorm.data import load, resize, select, subset
from advnorm.data.decode import center_crop_box, random_crop_box
from advnorm.draws import Draws

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)


def pixels(height: int, width: int, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels == 3 else (height, width)
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, array: np.ndarray) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return array


def encoded(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


def tree(root: Path, parts=("train", "test"), side=(8, 8), count: int = 6) -> None:
    for part in parts:
        for label in ("cat", "dog", "emu"):
            for i in range(count):
                save(root / part / label / f"{i}.png", pixels(*side))


def whole(split, batch_size=100, order=None, epoch=None):
    order = torch.arange(len(split)) if order is None else order
    found = list(split.batches(order, batch_size=batch_size, device=CPU, epoch=epoch))
    return (
        torch.cat([b.images for b in found]),
        torch.cat([b.labels for b in found]),
        torch.cat([b.samples for b in found]),
    )


def test_images_of_the_right_size_are_only_decoded(tmp_path):
    arrays = {
        (label, i): save(tmp_path / "train" / label / f"{i}.png", pixels(5, 5))
        for label in ("b", "a")
        for i in range(3)
    }
    tree(tmp_path, parts=("test",), side=(5, 5))
    with pytest.raises(ValueError, match="class 'cat' outside of its training images"):
        load(f"folder:{tmp_path}")
    for label in ("cat", "dog", "emu"):
        save(tmp_path / "train" / label / "0.png", pixels(5, 5))
    data = load(f"folder:{tmp_path}", validation=0, workers=0)
    assert data.classes == ("a", "b", "cat", "dog", "emu") and data.shape == (3, 5, 5)
    expected = [arrays["a", i] for i in range(3)] + [arrays["b", i] for i in range(3)]
    for epoch in (None, 0):
        images, labels, samples = whole(
            data.train, order=data.train.samples.argsort(), epoch=epoch
        )
        shown = (images[:6] * 255).round().byte().permute(0, 2, 3, 1).numpy()
        assert np.array_equal(shown, np.stack(expected))
        assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 4]
        assert samples.tolist() == list(range(9))


def test_the_first_image_decides_grey_and_size(tmp_path):
    for part in ("train", "val"):
        save(tmp_path / part / "a" / "0.png", pixels(6, 9, channels=1))
        save(tmp_path / part / "b" / "0.jpeg", pixels(8, 8))
    data = load(f"folder:{tmp_path}", validation=0, workers=0)
    assert data.shape == (1, 6, 6) and len(data.test) == 2
    assert load(f"folder:{tmp_path}", size=4, validation=0).shape == (1, 4, 4)


@pytest.mark.parametrize("epoch", [None, 0, 3])
def test_neither_workers_nor_batches_nor_order_change_an_image(tmp_path, epoch):
    tree(tmp_path, side=(12, 10))
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


def test_training_crops_change_with_epoch_and_seed_evaluation_never(tmp_path):
    tree(tmp_path, side=(12, 10))
    one, two = (
        load(f"folder:{tmp_path}", size=6, workers=0, seed=s, validation=0) for s in (0, 1)
    )
    first = whole(one.train, epoch=0)[0]
    assert torch.equal(first, whole(one.train, epoch=0)[0])
    for other in (
        whole(one.train, epoch=1)[0],
        whole(two.train, epoch=0)[0],
        whole(one.train)[0],
    ):
        assert (first != other).flatten(1).any(1).all()
    assert torch.equal(whole(one.train)[0], whole(two.train)[0])


def test_evaluation_shows_the_central_seven_eighths(tmp_path):
    array = np.zeros((16, 24), np.uint8)
    array[1:15, 5:19] = 200  # 14 of 16 pixels, centred
    for part in ("train", "test"):
        for label in ("a", "b"):
            save(tmp_path / part / label / "0.png", array)
    data = load(f"folder:{tmp_path}", size=14, workers=0, validation=0)
    assert (whole(data.test)[0] * 255).round().unique().tolist() == [200]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 10_000))
def test_a_random_part_is_inside_with_area_and_shape_as_published(width, height, seed):
    uniform = Draws.of(seed, torch.tensor([0])).uniform(10, 4, dtype=torch.float64)[0]
    box = random_crop_box(width, height, uniform)
    w, h = box.right - box.left, box.bottom - box.top
    assert 0 <= box.left < box.right <= width and 0 <= box.top < box.bottom <= height
    if box != center_crop_box(width, height):
        assert 0.08 - 1e-9 <= w * h / (width * height) <= 1 + 1e-9
        assert 3 / 4 - 1e-9 <= w / h <= 4 / 3 + 1e-9


def test_a_random_part_by_hand():
    # Half of the possible area, shape 1, in the middle; the first attempt does not fit.
    uniform = torch.tensor([[0.999, 0.0, 0.5, 0.5], [0.5, 0.5, 0.0, 1.0]])
    box = random_crop_box(100, 100, uniform)
    side = (0.54 * 100 * 100) ** 0.5
    assert box == pytest.approx((0, 100 - side, side, 100))
    assert random_crop_box(100, 100, uniform[:1]) == (6.25, 6.25, 93.75, 93.75)


def test_areas_are_uniform():
    draws = Draws.of(0, torch.arange(3000)).uniform(10, 4, dtype=torch.float64)
    boxes = [random_crop_box(100, 100, u) for u in draws]
    areas = torch.tensor([(b.right - b.left) * (b.bottom - b.top) / 1e4 for b in boxes])
    assert areas.min() < 0.09 and areas.max() > 0.95
    low = areas[areas < 0.54]  # up to 3/4 of the area, all shapes fit
    assert low.mean() == pytest.approx((0.08 + 0.54) / 2, abs=0.02)


def test_reading_leaves_the_random_state_alone_and_an_order_may_be_empty(tmp_path):
    tree(tmp_path)
    data = load(f"folder:{tmp_path}", size=6)
    before = torch.get_rng_state()
    whole(data.train, epoch=0)
    assert torch.equal(torch.get_rng_state(), before)
    empty = torch.arange(0)
    assert not list(data.train.batches(empty, batch_size=4, device=CPU))


def test_a_folder_of_classes_alone_is_split_for_all_seeds_alike(tmp_path):
    tree(tmp_path, parts=("",), count=10)
    one, two = (load(f"folder:{tmp_path}", seed=seed, workers=0) for seed in (0, 1))
    assert (len(one.train), len(one.validation), len(one.test)) == (22, 2, 6)
    assert torch.equal(one.test.samples, two.test.samples)
    parts = [one.train.samples, one.validation.samples, one.test.samples]
    assert sorted(torch.cat(parts).tolist()) == list(range(30))


def test_val_beside_test_is_the_validation_split(tmp_path):
    tree(tmp_path, parts=("train", "test", "val"))
    save(tmp_path / "val" / "cat" / "extra.png", pixels(8, 8))
    data = load(f"folder:{tmp_path}")
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 19, 18)


def test_moments_of_a_folder_are_those_of_its_pixels(tmp_path):
    tree(tmp_path)
    data = load(f"folder:{tmp_path}", validation=0, workers=0)
    images = whole(data.train)[0].double()
    mean, std = data.moments()
    assert mean.tolist() == pytest.approx(images.mean((0, 2, 3)).tolist(), abs=1e-6)
    expected = images.std((0, 2, 3), unbiased=False)
    assert std.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_image_is_named(tmp_path, workers):
    tree(tmp_path)
    bad = tmp_path / "test" / "dog" / "3.png"
    bad.write_bytes(bad.read_bytes()[:60])
    data = load(f"folder:{tmp_path}", workers=workers)
    with pytest.raises(ValueError) as caught:
        whole(data.test, batch_size=5)
    assert str(caught.value).startswith(f"{bad} is no readable JPEG or PNG")
    assert "\n" not in str(caught.value)


def test_other_bad_images_are_named(tmp_path):
    tree(tmp_path)
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


def test_folders_that_cannot_be_read_say_why(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*missing: give one with"):
        load(f"folder:{tmp_path / 'missing'}")
    with pytest.raises(ValueError, match="no class folders"):
        load(f"folder:{tmp_path}")
    tree(tmp_path, parts=("train",))
    with pytest.raises(ValueError, match="no test or val: add one"):
        load(f"folder:{tmp_path}")
    tree(tmp_path, parts=("test",))
    (tmp_path / "train" / "fox").mkdir()
    with pytest.raises(ValueError, match="train/fox has no JPEG or PNG image: fill"):
        load(f"folder:{tmp_path}")


def test_a_streamed_set_is_not_resized_afterwards(tmp_path):
    tree(tmp_path)
    with pytest.raises(ValueError, match="give the size to load"):
        resize(load(f"folder:{tmp_path}"), size=4)
    with pytest.raises(ValueError, match=r"leave out data\.resample"):
        load(f"folder:{tmp_path}", size=4, resample="nearest")


def tiny_files() -> dict[str, bytes]:
    files = {}
    for label in ("n02", "n01"):
        for i in range(2):
            files[f"train/{label}/images/{label}_{i}.JPEG"] = encoded(pixels(64, 64))
        files[f"train/{label}/{label}_boxes.txt"] = b"0"
    for i in range(3):
        files[f"val/images/val_{i}.JPEG"] = encoded(pixels(64, 64))
    rows = "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\nval_2.JPEG\tn01\t0\t0\t9\t9\n"
    files["val/val_annotations.txt"] = rows.encode()
    files["test/images/test_0.JPEG"] = encoded(pixels(64, 64))
    return files


@pytest.mark.parametrize("packed", [True, False])
def test_tiny_imagenet_takes_its_test_labels_from_the_annotations(tmp_path, packed):
    files = tiny_files()
    if packed:
        with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(f"tiny-imagenet-200/{name}", content)
    else:
        for name, content in files.items():
            path = tmp_path / "tiny-imagenet" / "tiny-imagenet-200" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    data = load("tiny-imagenet", root=tmp_path, validation=0, workers=0)
    assert data.classes == ("n01", "n02") and data.shape == (3, 64, 64)
    assert data.train.labels[data.train.samples.argsort()].tolist() == [0, 0, 1, 1]
    images, labels, _ = whole(data.test)
    assert labels.tolist() == [1, 0, 0]
    original = Image.open(io.BytesIO(files["val/images/val_1.JPEG"]))
    shown = (images[1] * 255).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(shown, np.asarray(original))


@pytest.mark.parametrize("packed", [True, False])
def test_imagenette_is_read_packed_or_not(tmp_path, packed):
    files = {
        f"imagenette2-160/{part}/{label}/{i}.JPEG": encoded(pixels(20, 16))
        for part in ("train", "val")
        for label in ("n03888257", "n01440764")
        for i in range(2)
    }
    if packed:
        (tmp_path / "imagenette").mkdir()
        with tarfile.open(
            tmp_path / "imagenette" / "imagenette2-160.tgz", "w:gz"
        ) as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    else:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    data = load("imagenette", root=tmp_path, size=8, workers=0, validation=0.25)
    assert data.classes == ("tench", "parachute")
    assert data.test.labels[data.test.samples.argsort()].tolist() == [0, 0, 1, 1]
    assert whole(data.test)[0].shape == (4, 3, 8, 8)


def test_imagenet_has_a_train_and_a_val_folder(tmp_path):
    tree(tmp_path / "imagenet", parts=("train", "val"))
    data = load("imagenet", root=tmp_path)
    assert data.shape == (3, 224, 224) and len(data.test) == 18
    with pytest.raises(FileNotFoundError, match=r"image-net\.org"):
        load("imagenet", root=tmp_path / "elsewhere")


def test_a_corrupt_image_in_an_archive_is_named(tmp_path):
    files = tiny_files()
    files["val/images/val_2.JPEG"] = b"nothing"
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
    data = load("tiny-imagenet", root=tmp_path, workers=0, validation=0)
    with pytest.raises(ValueError, match=r"val_2\.JPEG is no readable JPEG or PNG"):
        whole(data.test)


def test_the_digest_of_files_is_that_of_paths_sizes_labels_and_order(tmp_path):
    tree(tmp_path / "a")

    def digest(path: Path, **settings) -> str:
        return load(f"folder:{path}", validation=0.5, **settings).digest()

    first = digest(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    assert digest(tmp_path / "b", workers=0) == first, "the place is no content"
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
    with pytest.raises(ValueError, match=r"6\.png cannot be read .*take it out"):
        last.digest()


def test_the_digest_of_an_archive_is_that_of_its_images(tmp_path):
    digests = []
    same, other = tiny_files(), tiny_files()
    for place, files in (("a", same), ("b", same), ("c", other)):
        (tmp_path / place).mkdir()
        with zipfile.ZipFile(tmp_path / place / "tiny-imagenet-200.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(f"tiny-imagenet-200/{name}", content)
        data = load("tiny-imagenet", root=tmp_path / place, workers=0, validation=0)
        digests.append(data.digest())
    assert digests[0] == digests[1] != digests[2]


def test_one_class_too_few_images_and_giants_are_refused(tmp_path):
    for part in ("train", "test"):
        for i in range(3):
            save(tmp_path / "one" / part / "a" / f"{i}.png", pixels(4, 4))
    with pytest.raises(ValueError, match=r"has 1 class .*: give at least 2 classes"):
        load(f"folder:{tmp_path / 'one'}", validation=0)
    for label in ("a", "b"):
        save(tmp_path / "two" / label / "0.png", pixels(2100, 2100, channels=1))
    with pytest.raises(ValueError, match=r"pixels from 1 to 2048, not 2100: set data.size"):
        load(f"folder:{tmp_path / 'two'}")
    with pytest.raises(ValueError, match="2 images are too few to take 20% for the test"):
        load(f"folder:{tmp_path / 'two'}", size=8)


def test_a_train_folder_at_the_root_is_nobodys(tmp_path):
    tree(tmp_path, parts=("train", "val"))
    for name in ("imagenet", "imagenette"):
        with pytest.raises(FileNotFoundError, match=f"no {name} under"):
            load(name, root=tmp_path)


def test_the_first_images_of_a_folder_are_of_all_classes(tmp_path):
    for part in ("train", "test"):
        for label in "abcdefgh":
            for number in range(20):
                save(tmp_path / part / label / f"{number:02}.png", pixels(4, 4))
    data = load(f"folder:{tmp_path}", workers=0)
    for split in (data.train, data.validation, data.test):
        assert len(split.labels[:16].unique()) > 4
        assert torch.equal(split.samples // 20, split.labels)


def test_imagenets_own_test_folder_is_not_looked_at(tmp_path):
    tree(tmp_path / "imagenet", parts=("train", "val"), side=(230, 230), count=2)
    save(tmp_path / "imagenet" / "test" / "ILSVRC2012_test_00000001.png", pixels(4, 4))
    data = load("imagenet", root=tmp_path, validation=0.5, workers=0)
    assert len(data.test) and data.shape == (3, 224, 224)
