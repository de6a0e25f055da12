"""Image files: which crop is decoded, and damaged or hostile files."""

import random
import struct
import zlib

import pytest
import torch
from data_files import image_bytes, random_pixels
from hypothesis import given
from hypothesis import strategies as st

from advnorm.data.blob import Blob
from advnorm.data.decode import MAX_SCANNED, center_crop_box, decode, probe, random_crop_box
from advnorm.draws import Draws


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 10_000))
def test_a_random_crop_is_inside_with_area_and_ratio_as_published(width, height, seed):
    uniform = Draws.of(seed, torch.tensor([0])).uniform(10, 4, dtype=torch.float64)[0]
    box = random_crop_box(width, height, uniform)
    w, h = box.right - box.left, box.bottom - box.top
    assert 0 <= box.left < box.right <= width and 0 <= box.top < box.bottom <= height
    if box != center_crop_box(width, height):
        assert 0.08 - 1e-9 <= w * h / (width * height) <= 1 + 1e-9
        assert 3 / 4 - 1e-9 <= w / h <= 4 / 3 + 1e-9


def test_a_random_crop_by_hand():
    # Half of the possible area, shape 1, in the middle; the first attempt does not fit.
    uniform = torch.tensor([[0.999, 0.0, 0.5, 0.5], [0.5, 0.5, 0.0, 1.0]])
    box = random_crop_box(100, 100, uniform)
    side = (0.54 * 100 * 100) ** 0.5
    assert box == pytest.approx((0, 100 - side, side, 100))
    assert random_crop_box(100, 100, uniform[:1]) == (6.25, 6.25, 93.75, 93.75)


def test_areas_of_random_crops_are_uniform():
    draws = Draws.of(0, torch.arange(3000)).uniform(10, 4, dtype=torch.float64)
    boxes = [random_crop_box(100, 100, u) for u in draws]
    areas = torch.tensor([(b.right - b.left) * (b.bottom - b.top) / 1e4 for b in boxes])
    assert areas.min() < 0.09 and areas.max() > 0.95
    low = areas[areas < 0.54]  # up to 3/4 of the area, all shapes fit
    assert low.mean() == pytest.approx((0.08 + 0.54) / 2, abs=0.02)


def chunk(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )


def png_of(width: int, height: int) -> bytes:
    """Return a PNG that says it is this large, with hardly any data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def jpeg_of(width: int, height: int) -> bytes:
    """Return a JPEG whose frame says it is this large."""
    data = image_bytes(random_pixels(8, 8), "JPEG")
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


@pytest.mark.parametrize(
    "data",
    [
        png_of(9500, 9500),  # where PIL only warns
        png_of(20_000, 20_000),
        png_of(2**31 - 1, 2**31 - 1),
        jpeg_of(9500, 9500),
        jpeg_of(65_500, 65_500),
    ],
    ids=["warned", "large", "largest", "JPEG, warned", "JPEG"],
)
def test_a_decompression_bomb_is_one_sentence(data):
    for read in (probe, lambda blob: decode(blob, None, channels=3, size=8)):
        with pytest.raises(
            ValueError, match=r"is no readable JPEG or PNG .*bomb.*: remedy"
        ):
            read(Blob("image", data, "remedy"))


def test_a_jpeg_of_a_thousand_scans_is_refused():
    data = image_bytes(random_pixels(1200, 1200), "JPEG", progressive=True)
    assert probe(Blob("image", data, "")) == (3, 1200)
    last = data[data.rindex(b"\xff\xda") : -2]
    count = MAX_SCANNED // 1200**2
    with pytest.raises(ValueError, match="scans of 1200 x 1200 pixels"):
        probe(Blob("image", data[:-2] + last[:40] * count + data[-2:], ""))


@pytest.mark.parametrize(
    "kind, options", [("PNG", {}), ("JPEG", {}), ("JPEG", {"progressive": True})]
)
def test_damaged_images_are_decoded_or_refused(kind, options):
    data = image_bytes(random_pixels(24, 20), kind, **options)
    chance, refused = random.Random(0), 0
    for number in range(400):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 3, 10))):
            place = chance.randrange(len(data) if number % 2 else 120)
            damaged[place] = chance.randrange(256)
        if not number % 5:
            del damaged[chance.randrange(len(data)) :]
        try:
            decode(Blob("image", bytes(damaged), "remedy"), None, channels=3, size=8)
        except ValueError as error:
            assert str(error).startswith("image ") and str(error).endswith(": remedy")
            refused += 1
    assert 50 < refused < 400
