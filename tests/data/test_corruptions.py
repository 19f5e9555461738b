"""Corruptions against closed forms, Pillow, SciPy and a slow copy of the published loop."""

import io

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch.nn import functional as F

from toosure.data import CORRUPTIONS, corrupt, digits
from toosure.data.corruptions import blur, digital, jpeg, weather

EACH = pytest.mark.parametrize("name", CORRUPTIONS)
# The published parameters of these do not grow with severity in every sense.
UNEVEN = {"glass_blur", "elastic_transform", "frost", "saturate", "motion_blur", "snow"}


def picture(count=6, size=32, channels=3, seed=0):
    """Smooth random images in 256 levels, with something of everything."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, channels, 6, 6, generator=generator)
    x = F.interpolate(coarse, size=(size, size), mode="bicubic").clamp(0, 1)
    return (x * 255).round().to(torch.uint8)


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


@EACH
def test_shape_type_and_seed(name):
    x = picture()
    for severity in (1, 5):
        out = corrupt(x, name, severity)
        assert out.shape == x.shape and out.dtype == torch.uint8 and not torch.equal(out, x)
        assert torch.equal(out, corrupt(x, name, severity))
    pixels = corrupt(x.float() / 255, name, 5)
    assert pixels.dtype == torch.float32 and torch.equal((pixels * 255).round().byte(), out)


def test_what_is_drawn_differs_by_seed_and_the_rest_draws_nothing():
    x = picture(2)
    same = {n for n in CORRUPTIONS if torch.equal(*(corrupt(x, n, 3, seed) for seed in (0, 1)))}
    fixed = {"defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "saturate"}
    assert same == fixed | {"pixelate", "jpeg_compression"}


@EACH
def test_one_channel_and_other_sizes(name):
    for shape in ((2, 1, 28, 28), (2, 3, 64, 48), (2, 1, 8, 8)):
        x = torch.randint(0, 256, shape, generator=draws(), dtype=torch.uint8)
        assert corrupt(x, name, 4).shape == shape
    assert corrupt(x[:0], name).shape == (0, 1, 8, 8)


@pytest.mark.parametrize("name", [n for n in CORRUPTIONS if n not in UNEVEN])
def test_distance_grows_with_severity(name):
    x = picture(12).float()
    far = [float((corrupt(x.byte(), name, s).float() - x).square().mean()) for s in range(1, 6)]
    assert far == sorted(far) and far[0] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "fogg"}, "called 'fogg'; did you mean 'fog'. Known: gaussian_noise"),
        ({"severity": 0}, "from 1 to 5; got 0"),
        ({"images": torch.zeros(3, 32, 32)}, "must have shape"),
        ({"images": torch.zeros(2, 4, 8, 8)}, "must have shape"),
        ({"images": torch.zeros(2, 3, 8, 3)}, r"4 x 4 pixels or more; got \(8, 3\)"),
        ({"images": torch.full((2, 3, 8, 8), 1.5)}, r"must lie in \[0, 1\]; got 1.5 to 1.5"),
        ({"images": torch.full((2, 3, 8, 8), torch.nan)}, r"must lie in \[0, 1\]"),
        ({"images": torch.zeros(2, 3, 8, 8, dtype=torch.int64)}, "uint8, or floats"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        corrupt(**{"images": picture(1), "name": "fog", "severity": 1, **arguments})


@EACH
def test_layout_and_precision_do_not_matter(name):
    x = picture(3)
    expected = corrupt(x, name, 4)
    assert torch.equal(corrupt(x.contiguous(memory_format=torch.channels_last), name, 4), expected)
    assert torch.equal(corrupt(x, name, np.int64(4)), corrupt(x, name, 4.0))
    for kind in (torch.float16, torch.float64):
        out = corrupt(x.to(kind) / 255, name, 4)
        assert out.dtype == kind and torch.equal((out.double() * 255).round().byte(), expected)
    nearly = (x.float() - 0.01).clamp(min=0) / 255  # as scaling and undoing it leaves them
    assert torch.equal((corrupt(nearly, name, 4) * 255).round().byte(), expected)
    assert corrupt(x[:1, :, :4, :4], name, 5).shape == (1, 3, 4, 4)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_default_type_of_the_program_does_not_matter(name):
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    wanted = corrupt(images, name, 3)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(corrupt(images, name, 3), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_severities_and_corruptions_share_no_draws_but_the_noise_itself():
    x = torch.full((1, 3, 32, 32), 128, dtype=torch.uint8)
    mild, strong = (corrupt(x, "gaussian_noise", s).float() - 127.5 for s in (1, 5))
    assert torch.corrcoef(torch.stack([mild.flatten(), strong.flatten()]))[0, 1] > 0.99  # the same
    speckle = corrupt(x, "speckle_noise", 5).float() - 127.5
    assert abs(torch.corrcoef(torch.stack([speckle.flatten(), strong.flatten()]))[0, 1]) < 0.1


def test_many_images_are_done_in_parts_each_with_draws_of_its_own(monkeypatch):
    monkeypatch.setattr("toosure.data.corruptions.registry.MAX_PIXELS", 3 * 32 * 32)
    x = torch.full((9, 3, 32, 32), 128, dtype=torch.uint8)
    out = corrupt(x, "gaussian_noise", 3)
    assert torch.equal(out[:3], corrupt(x[:3], "gaussian_noise", 3))
    assert not torch.equal(out[:3], out[3:6])


GREY = torch.full((40, 3, 32, 32), 128, dtype=torch.uint8)
N = GREY.numel()


@pytest.mark.parametrize(
    ("severity", "sd"), [(1, 0.04), (2, 0.06), (3, 0.08), (4, 0.09), (5, 0.10)]
)
def test_noises_have_the_published_strength(severity, sd):
    def spread(name):
        return float((corrupt(GREY, name, severity).float() / 255).std())

    error = 5 / (2 * N) ** 0.5 + 0.005  # of a standard deviation, and the rounding to levels
    assert spread("gaussian_noise") == pytest.approx(sd, rel=error)
    rate = (500, 250, 100, 75, 50)[severity - 1]
    assert spread("shot_noise") == pytest.approx((128 / 255 / rate) ** 0.5, rel=error)
    part = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    assert spread("speckle_noise") == pytest.approx(part * 128 / 255, rel=error)
    out, share = corrupt(GREY, "impulse_noise", severity), (0.01, 0.02, 0.03, 0.05, 0.07)
    hit = out[out != 128]
    chance = share[severity - 1]
    assert abs(len(hit) / N - chance) < 5 * (chance / N) ** 0.5
    assert set(hit.tolist()) == {0, 255}
    assert abs((hit == 255).float().mean() - 0.5) < 5 * 0.5 / len(hit) ** 0.5


def test_smoothing_is_scipys():
    x = torch.rand(2, 3, 20, 30, dtype=torch.float64, generator=draws())
    for sd, truncate, mirror in ((0.4, 4.0, False), (1.0, 4.0, False), (6.4, 3.0, True)):
        mode = "reflect" if mirror else "nearest"
        expected = ndimage.gaussian_filter(x.numpy(), sd, truncate=truncate, mode=mode, axes=(2, 3))
        found = blur.smooth(x, sd, truncate, mirror)
        torch.testing.assert_close(found, torch.tensor(expected))


def test_glass_blur_equals_the_published_loop_over_pixels():
    x = torch.rand(3, 3, 32, 32, generator=draws())
    generator, sd = draws(5), 0.4
    steps = [torch.randint(-1, 1, (2, 3, 32, 32), generator=generator).numpy() for _ in range(2)]
    slow = (blur.smooth(x, sd) * 255 + 1e-4).floor().permute(0, 2, 3, 1).numpy().copy()
    for step in steps:
        for image, (down, right) in zip(slow, step.transpose(1, 0, 2, 3), strict=True):
            for h in range(31, 1, -1):
                for w in range(31, 1, -1):
                    a, b = h + down[h, w], w + right[h, w]
                    image[h, w], image[a, b] = image[a, b], image[h, w]  # views: a copy, no swap
    expected = blur.smooth(torch.tensor(slow).permute(0, 3, 1, 2) / 255, sd)
    torch.testing.assert_close(blur.glass_blur(x, 5, draws(5)), expected)


def test_motion_blur_of_a_point_is_half_a_gaussian_on_a_ray():
    x = torch.zeros(1, 1, 41, 41)
    x[0, 0, 20, 20] = 1
    out = blur.smear(x, 8, 2.0, torch.tensor([0.0]))[0, 0]
    weight = np.exp(-0.5 * (np.arange(17) / 2.0) ** 2)
    torch.testing.assert_close(out[20, 4:21].flip(0), torch.tensor(weight / weight.sum()).float())
    assert out[20].sum() == pytest.approx(1) and out.sum() == pytest.approx(1)
    turned = blur.smear(x, 8, 2.0, torch.tensor([-90.0]))[0, 0]
    torch.testing.assert_close(turned, out.T.flip(0))
    flat = blur.motion_blur(torch.full((4, 3, 9, 9), 0.2), 5, draws())  # level 51
    torch.testing.assert_close(flat, torch.full_like(flat, 0.2))


def test_zoom_is_scipys():
    x = torch.rand(2, 1, 32, 32, generator=draws())
    for factor in (1.0, 1.06, 1.25, 1.75):
        part = int(np.ceil(32 / factor))
        top = (32 - part) // 2
        middle = x[:, :, top : top + part, top : top + part].numpy()
        large = ndimage.zoom(middle, (1, 1, factor, factor), order=1)
        trim = (large.shape[2] - 32) // 2
        expected = torch.tensor(large[:, :, trim : trim + 32, trim : trim + 32])
        torch.testing.assert_close(blur.enlarge(x, factor), expected, rtol=0, atol=1e-5)


def test_defocus_kernels_are_disks():
    point = torch.zeros(1, 1, 15, 15)
    point[0, 0, 7, 7] = 1
    wide = blur.defocus_blur(point, 5, draws())[0, 0, 6:9, 6:9]  # radius 1.5: nine pixels
    torch.testing.assert_close(wide, torch.full((3, 3), 1 / 9), rtol=0, atol=1e-6)
    soft = blur.defocus_blur(point, 2, draws())[0, 0, 6:9, 6:9]  # a point, softened with 0.5
    edge = np.exp(-0.5 * (np.array([-1, 0, 1]) / 0.5) ** 2)
    expected = torch.tensor(np.outer(edge, edge) / edge.sum() ** 2).float()
    torch.testing.assert_close(soft, expected)


def test_brightness_and_saturation_are_those_of_hsv():
    import colorsys

    x = picture(2, 8)
    for name, change in (
        ("brightness", lambda h, s, v: (h, s, min(1, v + 0.15))),
        ("saturate", lambda h, s, v: (h, min(1, 1.5 * s), v)),
    ):
        out = corrupt(x, name, 3).permute(0, 2, 3, 1).reshape(-1, 3).int()
        for before, after in zip(x.permute(0, 2, 3, 1).reshape(-1, 3) / 255, out, strict=True):
            hsv = colorsys.rgb_to_hsv(*before.tolist())
            expected = np.floor(np.array(colorsys.hsv_to_rgb(*change(*hsv))) * 255 + 1e-3)
            assert np.abs(after.numpy() - expected).max() <= 1, name
    black = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    assert (corrupt(black, "brightness", 5) == 76).all()


def test_contrast_keeps_means():
    x = picture().float() / 255
    out = digital.contrast(x, 5, draws())
    torch.testing.assert_close(out.mean((2, 3)), x.mean((2, 3)))
    torch.testing.assert_close(out.std((2, 3)), 0.15 * x.std((2, 3)))


def test_fog_is_a_cloud_that_keeps_the_brightest():
    cloud = weather.plasma(8, 32, 2.0, draws())
    assert cloud.shape == (8, 32, 32)
    assert cloud.amin((1, 2)).eq(0).all() and cloud.amax((1, 2)).eq(1).all()
    near = (cloud - cloud.roll(1, 2)).abs().mean()
    far = (cloud - cloud.roll(16, 2)).abs().mean()
    assert near < far / 2  # a cloud, no noise
    assert weather.plasma(1, 28, 2.0, draws()).shape == (1, 32, 32)
    white = torch.ones(1, 3, 32, 32)
    out = weather.fog(white, 5, draws())
    assert out.max() == pytest.approx(1) and out.min() < 1


def test_snow_and_frost_brighten_a_dark_image():
    dark = torch.full((4, 3, 32, 32), 30, dtype=torch.uint8)
    for name in ("snow", "frost"):
        means = [corrupt(dark, name, s).float().mean() for s in (1, 3, 5)]
        assert means[0] > 30 and means[2] > means[0], name


def test_elastic_interpolation_is_scipys_and_moves_smoothly():
    x = torch.rand(1, 2, 12, 10, generator=draws())
    rows = torch.rand(1, 12, 10, generator=draws(1)) * 20 - 5
    columns = torch.rand(1, 12, 10, generator=draws(2)) * 20 - 5
    for edge, mode in ((False, "reflect"), (True, "mirror")):
        found = digital.sample(x, rows, columns, edge)[0]
        for channel in (0, 1):
            places = [rows[0].numpy(), columns[0].numpy()]
            expected = ndimage.map_coordinates(x[0, channel].numpy(), places, order=1, mode=mode)
            torch.testing.assert_close(found[channel], torch.tensor(expected), rtol=0, atol=1e-5)
    rows, columns = digital.affine(x, 0.0, draws())  # nothing moved
    assert torch.equal(rows[0, :, 0].round(), torch.arange(12.0))
    torch.testing.assert_close(columns[0, 0], torch.arange(10.0), rtol=0, atol=1e-4)


Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    ("severity", "share"), [(1, 0.95), (2, 0.9), (3, 0.85), (4, 0.75), (5, 0.65)]
)
def test_pixelate_is_pillows(severity, share):
    x = picture()
    side = int(32 * share)
    box = Image.Resampling.BOX
    for before, after in zip(x, corrupt(x, "pixelate", severity), strict=True):
        image = Image.fromarray(before.permute(1, 2, 0).numpy())
        expected = np.asarray(image.resize((side, side), box).resize((32, 32), box))
        np.testing.assert_array_equal(after.permute(1, 2, 0).numpy(), expected)


def saved(image, quality):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer)).astype(float)


@pytest.mark.parametrize("size", [(32, 32), (28, 28), (21, 45)])
@pytest.mark.parametrize("quality", [80, 65, 58, 50, 40])
def test_jpeg_is_pillows(size, quality):
    """Sums rounded otherwise move a coefficient by a step now and then; nearly all pixels agree."""
    noise = torch.randn(8, 3, *size, generator=draws())
    x = F.interpolate(picture(8).float(), size=size) + 15 * noise
    x = x.round().clamp(0, 255)
    found = jpeg.jpeg(x / 255, quality).mul(255).round().permute(0, 2, 3, 1).numpy()
    expected = np.stack([saved(i, quality) for i in x.permute(0, 2, 3, 1).byte().numpy()])
    off = np.abs(found - expected)
    assert off.mean() < 0.25 and (off > 1).mean() < 0.05
    assert np.abs(x.permute(0, 2, 3, 1).numpy() - expected).mean() > 4  # what JPEG itself changes
    grey = jpeg.jpeg(x[:, :1] / 255, quality).mul(255).round()[:, 0].numpy()
    expected = np.stack([saved(i, quality) for i in x[:, 0].byte().numpy()])
    off = np.abs(grey - expected)
    assert off.mean() < 0.25 and (off > 1).mean() < 0.05


def test_a_data_set_shifts_its_test_set_by_seed():
    data = digits(train=100, standardise="channel", shift=("contrast", 5))
    pixels = data.test.x * data.std + data.mean
    mean = pixels.mean((2, 3), keepdim=True)
    shown = data.shifted().x * data.std + data.mean
    torch.testing.assert_close(shown, (pixels - mean) * 0.15 + mean, rtol=0, atol=2 / 255)
    assert torch.equal(data.shifted().y, data.test.y) and digits(train=100).shifted() is None
    noisy = [data.shifted(("gaussian_noise", 1), seed=s).x for s in (0, 0, 1)]
    assert torch.equal(noisy[0], noisy[1]) and not torch.equal(noisy[0], noisy[2])


@pytest.mark.slow
def test_accuracy_of_a_published_network_falls(real_data):
    """Within what is reported of CIFAR-10-C for small ResNets trained on clean images."""
    from toosure.models import load_published, resnet20

    sheet = np.asarray(Image.open(real_data / "cifar10" / "test_batch.webp").convert("RGB"))
    tiles = sheet[:64].reshape(2, 32, -1, 32, 3).transpose(0, 2, 4, 1, 3)  # the first 200 images
    x = torch.from_numpy(tiles.reshape(-1, 3, 32, 32).copy())
    y = torch.from_numpy(np.load(real_data / "cifar10" / "labels.npz")["test_labels"][:200])
    weights = real_data / "logits" / "weights_resnet20_c10_akamaster.npz"
    model = load_published(resnet20(), weights).eval()
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def accuracy(images):
        with torch.no_grad():
            return (model((images / 255 - mean) / std).argmax(1) == y).double().mean().item()

    clean = accuracy(x)
    assert clean > 0.88
    for name, least, most in (
        ("gaussian_noise", 0.10, 0.40),
        ("contrast", 0.12, 0.45),
        ("jpeg_compression", 0.50, 0.85),
        ("motion_blur", 0.40, 0.80),
        ("fog", 0.45, 0.85),
        ("brightness", 0.75, 0.95),
    ):
        mild, strong = (accuracy(corrupt(x, name, s)) for s in (1, 5))
        assert clean + 0.03 > mild > strong and least < strong < most, name
