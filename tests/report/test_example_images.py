"""Example images: pixels by hand, and what is skipped or refused."""

from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from advnorm.report import example_images, write
from advnorm.report.example_images import amplification, example_strips, png_url
from advnorm.report.groups import load_groups

EPS = 8 / 255
KEY = "pgd-10_linf_0.03137"


def pixels(url):
    kind, _, data = url.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(BytesIO(b64decode(data))))


def attacked(maker, name="a", **shown):
    run = maker.run(name, norm=name)
    maker.result(run, "pgd-10", 500, eps=EPS)
    maker.examples(run, KEY, **shown)
    return run


@pytest.mark.parametrize("channels, shape", [(1, (4, 5)), (3, (4, 5, 3))])
def test_png_keeps_every_pixel(channels, shape):
    image = np.random.default_rng(0).integers(0, 256, (channels, 4, 5)).astype(np.float32)
    expected = image[0] if channels == 1 else image.transpose(1, 2, 0)
    read = pixels(png_url(image / 255))
    assert read.shape == shape and (read == expected).all()


def test_difference_is_amplified_around_middle_grey(maker):
    clean = np.full((1, 1, 2, 2), 0.5, dtype=np.float32)
    changed = clean + np.array([[0.04, -0.04], [0.0, 0.02]], dtype=np.float32)
    run = attacked(maker, count=1, clean=clean, adversarial=changed)
    (strip,) = example_strips(load_groups([run]), KEY)
    assert strip.factor == 10
    difference = pixels(strip.examples[0].difference) / 255
    np.testing.assert_allclose(difference, [[0.9, 0.1], [0.5, 0.7]], atol=0.003)


def test_labels_and_predictions_are_those_of_the_file(maker):
    (strip,) = example_strips(load_groups([attacked(maker, shape=(3, 32, 32))]), KEY)
    second = strip.examples[1]
    assert (second.label, second.clean_prediction, second.adversarial_prediction) == (
        1,
        1,
        2,
    )
    assert strip.attack == "pgd-10 L∞ 8/255" and pixels(second.clean).shape == (32, 32, 3)


def test_bounds_of_the_threat_are_black_and_white(maker):
    run = maker.run("a")
    result = maker.result(run, "pgd-10", 500, eps=EPS)
    wide = result.threat.model_copy(update={"bounds": (-1.0, 1.0)})
    run.write_result(result.model_copy(update={"threat": wide}))
    clean = np.array([-1.0, 0.0, 1.0, 1.0], dtype=np.float32).reshape(1, 1, 2, 2)
    maker.examples(run, KEY, count=1, clean=clean, adversarial=clean)
    (strip,) = example_strips(load_groups([run]), KEY)
    assert pixels(strip.examples[0].clean).tolist() == [[0, 128], [255, 255]]


@pytest.mark.parametrize("shape", [(5,), (2, 4, 4)], ids=["vectors", "two channels"])
def test_what_is_no_image_is_skipped(maker, shape):
    assert example_strips(load_groups([attacked(maker, shape=shape)]), KEY) == []


def test_numbers_are_limited_and_large_images_thinned(maker):
    runs = [attacked(maker, f"n{i}", shape=(1, 4, 4)) for i in range(9)]
    assert len(example_strips(load_groups(runs), KEY)) == 8
    run = attacked(maker, "big", shape=(1, 300, 200), count=12)
    (strip,) = example_strips(load_groups([run]), KEY)
    assert strip.stride == 3 and len(strip.examples) == 8
    assert pixels(strip.examples[0].clean).shape == (100, 67)


def test_a_damaged_file_is_named(maker):
    run = attacked(maker)
    run.examples(KEY).write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"0\.03137\.safetensors is damaged"):
        example_strips(load_groups([run]), KEY)


def test_tensors_that_do_not_fit_are_named(maker):
    run = attacked(maker, count=3, labels=np.zeros(2, dtype=np.int64))
    with pytest.raises(ValueError, match="differ in shape"):
        example_strips(load_groups([run]), KEY)


@pytest.mark.parametrize(
    "largest, factor", [(0.0, 1), (0.001, 100), (0.3, 1), (0.25, 2), (0.9, 1)]
)
def test_amplification_stays_inside_the_range(largest, factor):
    assert amplification(largest) == factor


def test_images_name_their_samples_and_older_files_have_none(maker, tmp_path):
    run = attacked(maker, count=3, samples=np.array([7, 2**31, 9]))
    (strip,) = example_strips(load_groups([run]), KEY)
    assert [example.sample for example in strip.examples] == [7, 2**31, 9]
    text = write([run], tmp_path / "r.html").read_text()
    assert text.count('data-sample="9"') == 3 and ">sample 9<" in text
    older = attacked(maker, "older", count=3)
    (strip,) = example_strips(load_groups([older]), KEY)
    assert {example.sample for example in strip.examples} == {None}
    text = write([older], tmp_path / "r.html").read_text()
    assert text.count('data-sample=""') == 9 and ">image 3<" in text


def test_samples_that_do_not_fit_are_damaged(maker):
    run = attacked(maker, count=3, samples=np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="differ in shape"):
        example_strips(load_groups([run]), KEY)


def test_images_share_the_room_of_a_page(maker, monkeypatch):
    run = attacked(maker, shape=(3, 64, 64), count=6)
    groups = load_groups([run])
    (whole,) = example_strips(groups, KEY)
    room = sum(example.size for example in whole.examples[:4])
    monkeypatch.setattr(example_images, "MOST_CHARACTERS", room)
    (strip,) = example_strips(groups, KEY)
    assert strip.examples == whole.examples[:4]
    monkeypatch.setattr(example_images, "MOST_CHARACTERS", 10)
    (strip,) = example_strips(groups, KEY)
    assert strip.examples == whole.examples[:1]
