"""Every corruption at every severity is the published one, written again with NumPy and SciPy.

The tables are those of the authors' script for CIFAR-10-C (Hendrycks and Dietterich 2019); the
draws are ours, made here from the same seed.
"""

import colorsys
import io

import numpy as np
import pytest
import torch
from scipy import ndimage
from test_corruptions import Image, draws, picture

from toosure.data import corrupt
from toosure.data.corruptions import blur, digital, jpeg, noise, weather

EACH = pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
SIDE = 32


def pixels(count=2):
    """Images (N, 3, 32, 32) in 256 levels of [0, 1]."""
    return picture(count).float() / 255


def uniform(generator, shape, low, high):
    return (low + (high - low) * torch.rand(shape, generator=generator).double()).numpy()


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(found.double(), torch.tensor(expected).double(), rtol=0, atol=atol)


@EACH
def test_gaussian_blur(severity):
    x, sd = pixels(), (0.4, 0.6, 0.7, 0.8, 1)[severity - 1]
    expected = ndimage.gaussian_filter(x.double().numpy(), sd, mode="nearest", axes=(2, 3))
    close(blur.gaussian_blur(x, severity, draws()), expected)


@EACH
def test_defocus_blur(severity):
    radius, soft = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))[severity - 1]
    at = np.arange(-8, 9)
    disk = (at[:, None] ** 2 + at**2 <= radius**2).astype(float)
    edge = np.exp(-np.array([1, 0, 1]) / (2 * soft**2))
    edge /= edge.sum()
    kernel = ndimage.correlate(disk / disk.sum(), np.outer(edge, edge))
    x = pixels()
    expected = ndimage.correlate(x.double().numpy(), kernel[None, None], mode="mirror")
    close(blur.defocus_blur(x, severity, draws()), expected)


@EACH
def test_glass_blur(severity):
    sd, times = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    x, generator = pixels(), draws(5)
    steps = [torch.randint(-1, 1, (2, 2, SIDE, SIDE), generator=generator) for _ in range(times)]
    slow = ndimage.gaussian_filter(x.double().numpy(), sd, mode="nearest", axes=(2, 3))
    slow = np.floor(slow * 255 + 1e-4)
    for down, right in steps:
        for n in range(2):
            for h in range(SIDE - 1, 1, -1):
                for w in range(SIDE - 1, 1, -1):
                    slow[n, :, h, w] = slow[n, :, h + down[n, h, w], w + right[n, h, w]]
    expected = ndimage.gaussian_filter(slow / 255, sd, mode="nearest", axes=(2, 3))
    off = np.abs(blur.glass_blur(x, severity, draws(5)).numpy() - expected)
    assert off.max() < 1.1 / 255 and (off > 1e-5).mean() < 0.005  # one cut off the other way


def smeared(image, radius, sd, degrees):
    """ImageMagick's motion blur of one channel, pixel by pixel, before it is rounded."""
    taps = np.arange(2 * radius + 1)
    weight = np.exp(-(taps**2) / (2 * sd**2))
    angle = np.deg2rad(degrees)
    right, down = (np.ceil(taps * f(angle) - 0.5).astype(int) for f in (np.cos, np.sin))
    rows, columns = (np.arange(side) for side in image.shape)
    out = np.zeros_like(image)
    for share, d, r in zip(weight / weight.sum(), down, right, strict=True):
        place = (rows + d).clip(0, SIDE - 1)[:, None], (columns + r).clip(0, SIDE - 1)
        out += share * image[place]
    return out


def rounded(x):
    return np.floor(x * 255 + 0.5 + 1e-3) / 255


@EACH
def test_motion_blur(severity):
    radius, sd = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))[severity - 1]
    x = pixels(8)
    degrees = uniform(draws(3), (8,), -45, 45)
    images = zip(x.double().numpy(), degrees, strict=True)
    expected = np.stack([[smeared(c, radius, sd, d) for c in image] for image, d in images])
    off = np.abs(blur.motion_blur(x, severity, draws(3)).numpy() - rounded(expected))
    assert off.max() < 1.1 / 255 and (off > 1e-5).mean() < 1e-3  # a tie goes the other way


@EACH
def test_zoom_blur(severity):
    factors = np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], 0.01)
    x = pixels()
    total = x.double().numpy()
    for factor in factors:
        part = int(np.ceil(SIDE / factor))
        top = (SIDE - part) // 2
        middle = x.double().numpy()[..., top : top + part, top : top + part]
        large = ndimage.zoom(middle, (1, 1, factor, factor), order=1)
        trim = (large.shape[2] - SIDE) // 2
        total = total + large[..., trim : trim + SIDE, trim : trim + SIDE]
    close(blur.zoom_blur(x, severity, draws()), total / (len(factors) + 1))


@EACH
def test_snow(severity):
    mean, sd, zoom, least, radius, length, keep = (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )[severity - 1]
    x, generator = pixels(), draws(7)
    layer = mean + sd * torch.randn(2, 1, SIDE, SIDE, generator=generator).numpy()
    degrees = uniform(generator, (2,), -135, -45)
    part = int(np.ceil(SIDE / zoom))
    top = (SIDE - part) // 2
    layer = ndimage.zoom(layer[:, 0, top : top + part, top : top + part], (1, zoom, zoom), order=1)
    trim = (layer.shape[1] - SIDE) // 2
    layer = layer[:, trim : trim + SIDE, trim : trim + SIDE]
    layer[layer < least] = 0
    layer = np.floor(layer.clip(0, 1).astype(float) * 255 + 1e-3) / 255
    pairs = zip(layer, degrees, strict=True)
    layer = rounded(np.stack([smeared(c, radius, length, d) for c, d in pairs]))[:, None]
    x = x.double().numpy()
    grey = np.tensordot(x, [0.299, 0.587, 0.114], (1, 0))[:, None]
    white = keep * x + (1 - keep) * np.maximum(x, grey * 1.5 + 0.5)
    found = weather.snow(pixels(), severity, draws(7)).numpy()
    # A flake that lies between two levels may be cut to the other one: one level, and rarely.
    off = np.abs(found - (white + layer + np.rot90(layer, 2, (2, 3))))
    assert off.max() < 2.1 / 255 and (off > 1e-5).mean() < 0.02


def cloud(decay, generator):
    """Diamonds and squares, cell by cell."""
    field, step, rough = np.zeros((SIDE, SIDE)), SIDE, 100.0
    while step >= 2:
        half, count = step // 2, SIDE // step
        cells = [(i, j) for i in range(count) for j in range(count)]
        shakes = (rough * uniform(generator, (1, count, count), -rough, rough)[0] for _ in "123")
        shift = next(shakes)
        for i, j in cells:
            near = [
                field[(i + a) % count * step, (j + b) % count * step]
                for a in (0, 1)
                for b in (0, 1)
            ]
            field[i * step + half, j * step + half] = sum(near) / 4 + shift[i, j]
        for down in (True, False):  # first the middles of the upper edges, then of the left ones
            shift = next(shakes)
            for i, j in cells:
                here = field[i * step, j * step] + field[i * step + half, j * step + half]
                if down:
                    other = field[(i - 1) % count * step + half, j * step + half]
                    corner = field[i * step, (j + 1) % count * step]
                    field[i * step, j * step + half] = (here + other + corner) / 4 + shift[i, j]
                else:
                    other = field[i * step + half, (j - 1) % count * step + half]
                    corner = field[(i + 1) % count * step, j * step]
                    field[i * step + half, j * step] = (here + other + corner) / 4 + shift[i, j]
        step, rough = half, rough / decay
    field -= field.min()
    return field / field.max()


@EACH
def test_fog(severity):
    strength, decay = ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))[severity - 1]
    x = pixels(1)
    expected = x.double().numpy() + strength * cloud(decay, draws(9))
    brightest = x.max().item()
    close(weather.fog(x, severity, draws(9)), expected * brightest / (brightest + strength), 1e-4)


@EACH
def test_frost_but_for_its_texture(severity):
    keep, ice = ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    x = pixels()
    texture = weather.crystals(x, draws(1))
    assert texture.min() >= 0 and texture.max() <= 1 and texture.std() > 0.1
    torch.testing.assert_close(weather.frost(x, severity, draws(1)), keep * x + ice * texture)


@EACH
@pytest.mark.parametrize("name", ["brightness", "saturate"])
def test_colours(name, severity):
    rise = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    factor, more = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    x = picture(1, 8).float() / 255
    x[0, :, 0, :3] = torch.tensor([0.0, 0.4, 1.0])  # black, grey and white
    found = getattr(digital, name)(x, severity, draws())
    for before, after in zip(x[0].flatten(1).T.tolist(), found[0].flatten(1).T, strict=True):
        h, s, v = colorsys.rgb_to_hsv(*before)
        hsv = (
            (h, s, min(1, v + rise)) if name == "brightness" else (h, min(1, s * factor + more), v)
        )
        close(after, np.array(colorsys.hsv_to_rgb(*hsv)), 1e-4)


@EACH
def test_contrast(severity):
    x, keep = pixels(), (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    values = x.double().numpy()
    mean = values.mean((2, 3), keepdims=True)
    close(digital.contrast(x, severity, draws()), (values - mean) * keep + mean)


@EACH
def test_elastic_transform(severity):
    far, smooth, turn = (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    )[severity - 1]
    x, generator = pixels(1), draws(11)
    reach = turn * SIDE
    third, middle = SIDE // 3, SIDE // 2
    before = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])  # (x, y)
    after = before + uniform(generator, (1, 3, 2), -reach, reach)[0]
    back = np.linalg.solve(np.c_[after, np.ones(3)], before)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    source = np.stack([columns, rows, np.ones_like(rows)], -1) @ back
    places = [source[..., 1], source[..., 0]]
    turned = [
        ndimage.map_coordinates(c, places, order=1, mode="mirror") for c in x[0].double().numpy()
    ]
    drawn = uniform(generator, (1, 2, SIDE, SIDE), -1, 1)[0]
    if smooth:
        drawn = ndimage.gaussian_filter(
            drawn, smooth * SIDE, truncate=3, mode="reflect", axes=(1, 2)
        )
    places = [rows + far * SIDE * drawn[0], columns + far * SIDE * drawn[1]]
    expected = [ndimage.map_coordinates(c, places, order=1, mode="reflect") for c in turned]
    close(digital.elastic_transform(x, severity, draws(11))[0], np.stack(expected), 1e-4)


@EACH
def test_jpeg_compression(severity):
    quality = (80, 65, 58, 50, 40)[severity - 1]
    x = picture(4)
    found = jpeg.jpeg_compression(x.float() / 255, severity, draws()).mul(255).round()
    errors = {}
    for other in {quality - 4, quality, quality + 4}:
        off = []
        for before, after in zip(x, found, strict=True):
            buffer = io.BytesIO()
            Image.fromarray(before.permute(1, 2, 0).numpy()).save(buffer, "JPEG", quality=other)
            off.append(
                np.abs(np.asarray(Image.open(buffer)) - after.permute(1, 2, 0).numpy()).mean()
            )
        errors[other] = np.mean(off)
    assert min(errors, key=errors.get) == quality and errors[quality] < 0.2


@EACH
def test_noises_are_what_their_draws_make(severity):
    x = pixels()
    sd = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    drawn = torch.randn(x.shape, generator=draws(2))
    torch.testing.assert_close(noise.gaussian_noise(x, severity, draws(2)), x + sd * drawn)
    sd = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    torch.testing.assert_close(noise.speckle_noise(x, severity, draws(2)), x + sd * x * drawn)
    rate = (500, 250, 100, 75, 50)[severity - 1]
    counts = noise.shot_noise(x, severity, draws(2)) * rate
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-3)  # whole photons


def test_results_are_cut_off_downwards():
    x = torch.full((1, 3, 8, 8), 100, dtype=torch.uint8)
    x[..., 0] = 201
    kept = 0.5 * (x.float() - x.float().mean((2, 3), keepdim=True)) + x.float().mean(
        (2, 3), keepdim=True
    )
    assert torch.equal(corrupt(x, "contrast", 2).float(), kept.floor())
    assert (kept.floor() != kept.round()).any()
