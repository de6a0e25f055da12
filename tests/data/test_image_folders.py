"""Image folders: layouts, crops keyed by sample, mistakes, and files that cannot be read."""

import io

import numpy as np
import pytest
import torch
from data_files import (
    image_bytes,
    random_pixels,
    save_image,
    small_folder,
    tiny_imagenet_files,
    whole,
    write_files,
    write_image_folder,
    write_tar,
    write_zip,
)
from PIL import Image

from advnorm.data import load, resize


def test_images_of_the_right_size_are_only_decoded(tmp_path):
    arrays = {
        (label, i): save_image(tmp_path / "train" / label / f"{i}.png", random_pixels(5, 5))
        for label in ("b", "a")
        for i in range(3)
    }
    write_image_folder(tmp_path, parts=("test",), side=(5, 5))
    with pytest.raises(ValueError, match="class 'cat' outside of its training images"):
        load(f"folder:{tmp_path}")
    for label in ("cat", "dog", "emu"):
        save_image(tmp_path / "train" / label / "0.png", random_pixels(5, 5))
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
        save_image(tmp_path / part / "a" / "0.png", random_pixels(6, 9, channels=1))
        save_image(tmp_path / part / "b" / "0.jpeg", random_pixels(8, 8))
    data = load(f"folder:{tmp_path}", validation=0, workers=0)
    assert data.shape == (1, 6, 6) and len(data.test) == 2
    assert load(f"folder:{tmp_path}", size=4, validation=0).shape == (1, 4, 4)


def test_a_folder_of_classes_alone_is_split_for_all_seeds_alike(tmp_path):
    write_image_folder(tmp_path, parts=("",), count=10)
    data, other = (load(f"folder:{tmp_path}", seed=seed, workers=0) for seed in (0, 1))
    assert (len(data.train), len(data.validation), len(data.test)) == (22, 2, 6)
    assert torch.equal(data.test.samples, other.test.samples)
    parts = [data.train.samples, data.validation.samples, data.test.samples]
    assert sorted(torch.cat(parts).tolist()) == list(range(30))


def test_val_beside_test_is_the_validation_split(tmp_path):
    write_image_folder(tmp_path, parts=("train", "test", "val"))
    save_image(tmp_path / "val" / "cat" / "extra.png", random_pixels(8, 8))
    data = load(f"folder:{tmp_path}")
    assert (len(data.train), len(data.validation), len(data.test)) == (18, 19, 18)


def test_folders_that_cannot_be_read_say_why(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*missing: give one with"):
        load(f"folder:{tmp_path / 'missing'}")
    with pytest.raises(ValueError, match="no class folders"):
        load(f"folder:{tmp_path}")
    write_image_folder(tmp_path, parts=("train",))
    with pytest.raises(ValueError, match="no test or val: add one"):
        load(f"folder:{tmp_path}")
    write_image_folder(tmp_path, parts=("test",))
    (tmp_path / "train" / "fox").mkdir()
    with pytest.raises(ValueError, match="train/fox has no JPEG or PNG image: fill"):
        load(f"folder:{tmp_path}")


def test_a_streamed_set_is_not_resized_afterwards(tmp_path):
    write_image_folder(tmp_path)
    with pytest.raises(ValueError, match="pass size to load"):
        resize(load(f"folder:{tmp_path}"), size=4)
    with pytest.raises(ValueError, match=r"leave out data\.resample"):
        load(f"folder:{tmp_path}", size=4, resample="nearest")


@pytest.mark.parametrize("packed", [True, False])
def test_tiny_imagenet_takes_its_test_labels_from_the_annotations(tmp_path, packed):
    files = tiny_imagenet_files()
    if packed:
        write_zip(tmp_path / "tiny-imagenet-200.zip", files)
    else:
        write_files(tmp_path / "tiny-imagenet", files)
    data = load("tiny-imagenet", root=tmp_path, validation=0, workers=0)
    assert data.classes == ("n01", "n02") and data.shape == (3, 64, 64)
    assert data.train.labels[data.train.samples.argsort()].tolist() == [0, 0, 1, 1]
    images, labels, _ = whole(data.test)
    assert labels.tolist() == [1, 0, 0]
    original = Image.open(io.BytesIO(files["tiny-imagenet-200/val/images/val_1.JPEG"]))
    shown = (images[1] * 255).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(shown, np.asarray(original))


@pytest.mark.parametrize("packed", [True, False])
def test_imagenette_is_read_packed_or_not(tmp_path, packed):
    files = {
        f"imagenette2-160/{part}/{label}/{i}.JPEG": image_bytes(random_pixels(20, 16))
        for part in ("train", "val")
        for label in ("n03888257", "n01440764")
        for i in range(2)
    }
    if packed:
        write_tar(tmp_path / "imagenette" / "imagenette2-160.tgz", files)
    else:
        write_files(tmp_path, files)
    data = load("imagenette", root=tmp_path, size=8, workers=0, validation=0.25)
    assert data.classes == ("tench", "parachute")
    assert data.test.labels[data.test.samples.argsort()].tolist() == [0, 0, 1, 1]
    assert whole(data.test)[0].shape == (4, 3, 8, 8)


def test_imagenet_has_a_train_and_a_val_folder(tmp_path):
    write_image_folder(tmp_path / "imagenet", parts=("train", "val"))
    data = load("imagenet", root=tmp_path)
    assert data.shape == (3, 224, 224) and len(data.test) == 18
    with pytest.raises(FileNotFoundError, match=r"image-net\.org"):
        load("imagenet", root=tmp_path / "elsewhere")


def test_one_class_too_few_images_and_giants_are_refused(tmp_path):
    for part in ("train", "test"):
        for i in range(3):
            save_image(tmp_path / "one" / part / "a" / f"{i}.png", random_pixels(4, 4))
    with pytest.raises(ValueError, match=r"has 1 class: give at least 2 classes"):
        load(f"folder:{tmp_path / 'one'}", validation=0)
    for label in ("a", "b"):
        save_image(
            tmp_path / "two" / label / "0.png", random_pixels(2100, 2100, channels=1)
        )
    with pytest.raises(ValueError, match=r"pixels from 1 to 2048, not 2100: set data.size"):
        load(f"folder:{tmp_path / 'two'}")
    with pytest.raises(ValueError, match="2 images are too few to take 20% for the test"):
        load(f"folder:{tmp_path / 'two'}", size=8)


def test_a_train_folder_at_the_root_belongs_to_no_set(tmp_path):
    write_image_folder(tmp_path, parts=("train", "val"))
    for name in ("imagenet", "imagenette"):
        with pytest.raises(FileNotFoundError, match=f"no {name} under"):
            load(name, root=tmp_path)


def test_the_first_images_of_a_folder_are_of_all_classes(tmp_path):
    for part in ("train", "test"):
        for label in "abcdefgh":
            for number in range(20):
                save_image(
                    tmp_path / part / label / f"{number:02}.png", random_pixels(4, 4)
                )
    data = load(f"folder:{tmp_path}", workers=0)
    for split in (data.train, data.validation, data.test):
        assert len(split.labels[:16].unique()) > 4
        assert torch.equal(split.samples // 20, split.labels)


def test_imagenets_own_test_folder_is_not_read(tmp_path):
    write_image_folder(
        tmp_path / "imagenet", parts=("train", "val"), side=(230, 230), count=2
    )
    save_image(
        tmp_path / "imagenet" / "test" / "ILSVRC2012_test_00000001.png", random_pixels(4, 4)
    )
    data = load("imagenet", root=tmp_path, validation=0.5, workers=0)
    assert len(data.test) and data.shape == (3, 224, 224)


def test_a_folder_that_is_called_like_an_image_is_walked_and_links_are_read(tmp_path):
    folder = small_folder(tmp_path / "images")
    (folder / "x.png").mkdir()
    (folder / "x.png" / "y.png").write_bytes(image_bytes(random_pixels(8, 8)))
    (tmp_path / "elsewhere.png").write_bytes(image_bytes(random_pixels(8, 8)))
    (folder / "z.png").symlink_to(tmp_path / "elsewhere.png")
    (folder / "loop").symlink_to(folder)
    data = load(f"folder:{tmp_path / 'images'}", workers=0, validation=0)
    assert len(data.train) == 11
    assert len(whole(data.train)[0]) == 11


def test_a_class_with_escapes_in_its_name_is_harmless(tmp_path, monkeypatch, capsys):
    from advnorm import cli

    small_folder(tmp_path)
    bad = tmp_path / "test" / "\x1b]0;title\x07\u202e"
    bad.mkdir()
    (bad / "a.png").write_bytes(image_bytes(random_pixels(8, 8)))
    command = ["train", "digits.pgd", "--set", f"data.name=folder:{tmp_path}"]
    monkeypatch.setattr("sys.argv", ["advnorm", *command, "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as end:
        cli.main()
    output = capsys.readouterr().err
    assert end.value.code == 2 and "\\x1b]0;title" in output
    assert not {"\x1b", "\x07", "\u202e"} & set(output)


def test_tiny_imagenet_reads_no_file_outside_of_its_folder(tmp_path):
    root = tmp_path / "tiny-imagenet-200"
    for label in ("a", "b"):
        path = root / "train" / label / "images" / "0.JPEG"
        path.parent.mkdir(parents=True)
        path.write_bytes(image_bytes(random_pixels(8, 8), "JPEG"))
    (root / "val" / "images").mkdir(parents=True)
    for name in ("../../../secret.png", "/dev/zero", ".."):
        (root / "val" / "val_annotations.txt").write_text(f"{name}\ta\n")
        with pytest.raises(ValueError, match="names a file that is not in its folder"):
            load("tiny-imagenet", root=tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "folder:\0",
        "npz:\0",
        "folder:/dev/zero",
        "npz:/dev/zero",
        "npz:/",
        "folder:" + "a/" * 999,
    ],
)
def test_an_unusable_path_is_one_error(name):
    with pytest.raises((ValueError, OSError)) as error:
        load(name)
    assert len(str(error.value)) < 5000
