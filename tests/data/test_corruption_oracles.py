"""Each corruption against a slow reference for one image, written from its definition."""

import colorsys
import io
from math import ceil, cos, pi, sin

import numpy as np
import pytest
import torch
from data_files import smooth_images
from PIL import Image
from scipy import ndimage, stats

from advnorm.data.corruptions import CORRUPTIONS
from advnorm.data.corruptions.blur import disc
from advnorm.data.corruptions.digital import box_matrix
from advnorm.data.corruptions.filters import plasma, smooth_noise
from advnorm.data.corruptions.jpeg import dct_matrix, jpeg
from advnorm.data.corruptions.noise import poisson_quantile
from advnorm.draws import Draws

IMAGES = smooth_images(4, 3, 20, 17, torch.float64)


def run(name, severity, images=IMAGES):
    """Return the unclipped result, and the draws that it used."""
    draws = Draws.of(3, torch.arange(len(images))).stream("a test")
    return CORRUPTIONS[name](images, draws, severity), draws


def planes(reference, images=IMAGES):
    """Apply a function of one 2-D array to every channel of every image."""
    return torch.tensor(
        np.array(
            [[reference(plane, i) for plane in x] for i, x in enumerate(images.numpy())]
        )
    )


def same(actual, expected, atol=1e-10):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def test_gaussian_and_speckle_noise_have_their_deviations():
    grey = torch.full((50, 3, 32, 32), 0.5, dtype=torch.float64)
    for name, sigmas in (
        ("gaussian_noise", (0.04, 0.06, 0.08, 0.09, 0.10)),
        ("speckle_noise", (0.03, 0.05, 0.06, 0.08, 0.10)),
    ):
        for severity, sigma in enumerate(sigmas, start=1):
            noise = run(name, severity, grey)[0] - 0.5
            assert noise.std().item() == pytest.approx(sigma, rel=0.01)
            assert abs(noise.mean().item()) < 4 * sigma / noise.numel() ** 0.5
            assert stats.kstest(noise.flatten() / sigma, "norm").pvalue > 1e-4


@pytest.mark.parametrize("most", [0.5, 9.0, 60.0, 500.0])
def test_poisson_quantiles_are_scipys(most):
    numbers = Draws.of(0, torch.arange(1)).uniform(2, 20_000, dtype=torch.float64)[0]
    uniform, rate = numbers[0].clamp(1e-12, 1 - 1e-12), numbers[1] * most
    uniform[:500], uniform[500:1000] = 1e-12, 1 - 1e-12
    expected = stats.poisson.ppf(uniform.numpy(), rate.numpy())
    assert (poisson_quantile(uniform, rate).numpy() == expected).all()


@pytest.mark.parametrize("side, photons", [(32, (500, 250, 100, 75, 50)), (100, (60, 25))])
def test_shot_noise_has_a_variance_of_light_over_photons(side, photons):
    for light in (0.1, 0.8):
        images = torch.full((12, 1, side, side), light, dtype=torch.float64)
        for severity, count in enumerate(photons, start=1):
            corrupted = run("shot_noise", severity, images)[0]
            assert torch.equal((corrupted * count).round() / count, corrupted)
            assert corrupted.mean().item() == pytest.approx(light, rel=0.01)
            assert corrupted.var().item() == pytest.approx(light / count, rel=0.06)


def test_impulse_noise_hits_its_share_half_of_it_white():
    grey = torch.full((40, 3, 32, 32), 0.5)
    for severity, share in enumerate((0.01, 0.02, 0.03, 0.05, 0.07), start=1):
        corrupted = run("impulse_noise", severity, grey)[0]
        white, black = (corrupted == 1).double().mean(), (corrupted == 0).double().mean()
        error = 5 * (share / corrupted.numel()) ** 0.5
        assert abs(white.item() - share / 2) < error
        assert abs(black.item() - share / 2) < error
        assert ((corrupted == 0.5) | (corrupted == 0) | (corrupted == 1)).all()


def test_gaussian_blur_is_scipys():
    for severity, sigma in enumerate((0.4, 0.6, 0.7, 0.8, 1.0), start=1):
        expected = planes(
            lambda x, _, s=sigma: ndimage.gaussian_filter(x, s, mode="nearest", truncate=4)
        )
        same(run("gaussian_blur", severity)[0], expected)


def test_lengths_grow_with_images_beyond_32_pixels():
    images = smooth_images(1, 1, 64, 80, torch.float64)
    expected = planes(lambda x, _: ndimage.gaussian_filter(x, 1.4, mode="nearest"), images)
    same(run("gaussian_blur", 3, images)[0], expected)


def test_defocus_is_a_softened_disc():
    for severity, (radius, soft) in enumerate(
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)), start=1
    ):
        around = np.arange(-8, 9)
        inside = (around[:, None] ** 2 + around**2 <= radius**2).astype(float)
        kernel = ndimage.gaussian_filter(inside, soft, mode="constant")
        kernel /= kernel.sum()
        expected = planes(lambda x, _, k=kernel: ndimage.correlate(x, k, mode="nearest"))
        same(run("defocus_blur", severity)[0], expected)
    assert disc(3.0, 0.1, IMAGES).gt(0).sum() == 29  # lattice points within 3 of the origin


@pytest.mark.parametrize("severity", [2, 5])
def test_glass_blur_reads_near_pixels(severity):
    corrupted, draws = run("glass_blur", severity)
    share, times = {2: (0.5, 1), 5: (1.0, 2)}[severity]

    def reference(x, i):
        x = ndimage.gaussian_filter(x, 0.25, mode="nearest")
        for time in range(times):
            stream = draws.stream(time)
            way = stream.stream("way").integers(3, 2, *x.shape)[i].numpy() - 1
            chosen = stream.stream("which").uniform(1, *x.shape)[i, 0].numpy() < share
            old, x = x, x.copy()
            for r, c in np.ndindex(*x.shape):
                if chosen[r, c]:
                    row = min(max(r + way[0, r, c], 0), x.shape[0] - 1)
                    column = min(max(c + way[1, r, c], 0), x.shape[1] - 1)
                    x[r, c] = old[row, column]
        return ndimage.gaussian_filter(x, 0.25, mode="nearest")

    same(corrupted, planes(reference))


@pytest.mark.parametrize("severity, sigma", [(1, 1.0), (4, 2.5)])
def test_motion_blur_is_half_a_gaussian_along_a_line(severity, sigma):
    corrupted, draws = run("motion_blur", severity)
    turns = draws.uniform(dtype=torch.float64).tolist()

    def reference(x, i):
        angle = (turns[i] - 0.5) * pi / 2
        rows, columns = np.indices(x.shape).astype(float)
        weights = [np.exp(-0.5 * (k / sigma) ** 2) for k in range(ceil(3 * sigma) + 1)]
        taps = [
            ndimage.map_coordinates(
                x,
                [rows + k * sin(angle), columns + k * cos(angle)],
                order=1,
                mode="nearest",
            )
            for k in range(len(weights))
        ]
        return np.average(taps, axis=0, weights=weights)

    same(corrupted, planes(reference))


def test_zoom_blur_is_a_mean_of_zooms():
    def reference(x, _):
        rows, columns = np.indices(x.shape).astype(float)
        r, c = (x.shape[0] - 1) / 2, (x.shape[1] - 1) / 2
        total = x.copy()
        for zoom in np.linspace(1, 1.15, 11):
            places = [r + (rows - r) / zoom, c + (columns - c) / zoom]
            total += ndimage.map_coordinates(x, places, order=1, mode="nearest")
        return total / 12

    same(run("zoom_blur", 3)[0], planes(reference))


def test_a_cloud_is_a_sum_of_octaves():
    like, draws = (
        torch.zeros(2, 1, 16, 11, dtype=torch.float64),
        Draws.of(1, torch.arange(2)),
    )
    corrupted = plasma(draws, like, decay=2.5)
    for i in range(2):
        total = np.zeros((16, 11))
        for octave in range(1, 5):
            points = 2**octave + 1
            lattice = draws.stream(octave).uniform(1, points, points, dtype=torch.float64)
            places = np.meshgrid(
                np.linspace(0, points - 1, 16),
                np.linspace(0, points - 1, 11),
                indexing="ij",
            )
            total += 2.5**-octave * ndimage.map_coordinates(
                lattice[i, 0].numpy(), places, order=1
            )
        same(
            corrupted[i, 0],
            torch.tensor((total - total.min()) / (total.max() - total.min())),
        )


def test_fog_and_frost_are_blends_with_a_cloud():
    corrupted, draws = run("fog", 4)
    cloud = plasma(draws, IMAGES, decay=2.0)
    for i, image in enumerate(IMAGES):
        most = image.max()
        same(corrupted[i], (image + cloud[i]) * most / (most + 1))
    corrupted, draws = run("frost", 2)
    ridges = 1 - (2 * plasma(draws, IMAGES, decay=1.75) - 1).abs()
    for channel, tint in enumerate((0.85, 0.93, 1.0)):
        ice = (0.4 + 0.6 * ridges[:, 0]) * tint
        same(corrupted[:, channel], 0.75 * IMAGES[:, channel] + 0.25 * ice)


def test_snow_is_flakes_along_a_line_over_a_whitened_image():
    corrupted, draws = run("snow", 3)
    noise = draws.stream("flakes").normal(1, 20, 17, dtype=torch.float64).numpy()
    turns = draws.stream("angle").uniform(dtype=torch.float64).tolist()
    for i, x in enumerate(IMAGES.numpy()):
        flakes = np.clip(0.15 + 0.3 * noise[i, 0], 0, 1)
        flakes[flakes < 0.55] = 0
        angle = pi / 2 + (turns[i] - 0.5) * pi / 2
        rows, columns = np.indices(flakes.shape).astype(float)
        weights = [np.exp(-0.5 * (k / 2.5) ** 2) for k in range(9)]
        smeared = np.average(
            [
                ndimage.map_coordinates(
                    flakes,
                    [rows + k * sin(angle), columns + k * cos(angle)],
                    order=1,
                    mode="nearest",
                )
                for k in range(9)
            ],
            axis=0,
            weights=weights,
        )
        white = np.maximum(x, 1.5 * x.mean(0) + 0.5)
        expected = 0.85 * x + 0.15 * white + smeared + smeared[::-1, ::-1]
        same(corrupted[i], torch.tensor(expected))


def test_brightness_and_saturation_are_those_of_hsv():
    bright = run("brightness", 4)[0]
    vivid, draws = run("saturate", 3)
    pale = (draws.uniform(1, 1, 1).flatten() < 0.5).tolist()
    assert len(set(pale)) == 2, "the test wants images of both kinds"
    for i, r, c in np.ndindex(len(IMAGES), 20, 17):
        hue, saturation, value = colorsys.rgb_to_hsv(*IMAGES[i, :, r, c].tolist())
        lit = colorsys.hsv_to_rgb(hue, saturation, min(value + 0.2, 1))
        np.testing.assert_allclose(bright[i, :, r, c], lit, atol=1e-9)
        factor = 0.3 if pale[i] else 2.4
        tinted = colorsys.hsv_to_rgb(hue, min(saturation * factor, 1), value)
        np.testing.assert_allclose(vivid[i, :, r, c], tinted, atol=1e-9)
    black = torch.zeros(1, 3, 2, 2)
    assert torch.equal(run("brightness", 1, black)[0], torch.full_like(black, 0.05))


def test_smooth_noise_is_filtered_white_noise_of_variance_one():
    like, draws = (
        torch.zeros(60, 1, 24, 20, dtype=torch.float64),
        Draws.of(1, torch.arange(60)),
    )
    corrupted = smooth_noise(draws, like, count=2, sigma=1.0)
    white = draws.normal(2, 32, 28, dtype=torch.float64)[5, 1].numpy()
    filtered = ndimage.gaussian_filter(white, 1.0)[4:-4, 4:-4]
    ratio = corrupted[5, 1].numpy() / filtered
    assert np.ptp(ratio) < 1e-9 * ratio.mean()
    assert corrupted.var().item() == pytest.approx(1, rel=0.03)


def test_spatter_and_elastic_follow_their_fields():
    corrupted, draws = run("spatter", 5)
    field = smooth_noise(draws, IMAGES, count=1, sigma=1.0)
    drops = (2 * (field - 0.5)).clamp(0, 1)
    water = torch.tensor([0.69, 0.93, 0.93], dtype=torch.float64)[:, None, None]
    same(corrupted, IMAGES + drops * (water - IMAGES))
    corrupted, draws = run("elastic_transform", 2)
    way = 0.6 * smooth_noise(draws, IMAGES, count=2, sigma=2.0).numpy()

    def reference(x, i):
        places = np.indices(x.shape) + way[i]
        return ndimage.map_coordinates(x, places, order=1, mode="nearest")

    same(corrupted, planes(reference))


def test_contrast_shrinks_towards_the_mean():
    for severity, factor in enumerate((0.75, 0.5, 0.4, 0.3, 0.15), start=1):
        expected = planes(lambda x, _, f=factor: x.mean() + f * (x - x.mean()))
        same(run("contrast", severity)[0], expected)


def test_pixelate_is_pillows_box_filter_where_boxes_fit_and_keeps_the_mean():
    x = IMAGES[0, 0, :16, :16].float().numpy()
    small = Image.fromarray(x).resize((8, 8), Image.Resampling.BOX)
    shown = small.resize((16, 16), Image.Resampling.NEAREST)
    matrix = box_matrix(16, 8).float()
    same(matrix @ torch.tensor(x) @ matrix.T, torch.tensor(np.array(shown)), atol=1e-6)
    for left in range(
        1, 17
    ):  # boxes of real length: down is Pillow's, rows and columns mean
        matrix = box_matrix(16, left)
        ones = torch.ones(16, dtype=torch.float64)
        same(matrix.sum(1), ones)
        same(matrix.sum(0), ones)
        same(matrix, matrix.T)
    # three boxes of 4/3 over four pixels, by hand: the first pixel lies in the first box
    same(box_matrix(4, 3)[0], torch.tensor([0.75, 0.25, 0, 0], dtype=torch.float64))


@pytest.mark.parametrize("size, ranks", [(8, [7, 6, 5, 4, 3]), (6, [5, 4, 3, 2, 1])])
def test_pixelate_leaves_fewer_pixels_at_each_level(size, ranks):
    image = torch.eye(size, dtype=torch.float64)[None, None]
    shown = [run("pixelate", severity, image)[0] for severity in range(1, 6)]
    assert [torch.linalg.matrix_rank(image).item() for image in shown] == ranks


def test_the_dct_matrix_is_scipys_and_orthonormal():
    from scipy.fft import dct

    expected = torch.tensor(dct(np.eye(8), axis=0, norm="ortho"))
    same(dct_matrix(IMAGES), expected)


@pytest.mark.parametrize("quality", [80, 50, 40, 10])
@pytest.mark.parametrize("channels, size", [(1, (24, 33)), (3, (32, 48)), (3, (21, 35))])
def test_jpeg_is_about_pillows(quality, channels, size):
    """The same tables; the rest is a matter of rounding, and of how chroma is shown."""
    images = smooth_images(3, channels, *size)
    images = (images + 0.05 * Draws.of(1, torch.arange(3)).normal(channels, *size)).clamp(
        0, 1
    )
    corrupted = jpeg(images, quality)
    for ours, image in zip(corrupted, images, strict=True):
        levels = (image * 255).round().byte().permute(1, 2, 0).squeeze(-1).numpy()
        file = io.BytesIO()
        Image.fromarray(levels).save(file, "JPEG", quality=quality)
        theirs = (
            torch.tensor(np.array(Image.open(file))).float().view(*size, channels) / 255
        )
        theirs = theirs.permute(2, 0, 1)
        gap, lost = (ours - theirs).abs().mean(), (image - theirs).abs().mean()
        assert gap < 0.2 * lost
        assert (image - ours).abs().mean().item() == pytest.approx(lost.item(), rel=0.03)
