"""Splits are disjoint and repeatable, noise is exact, standardisation is by the training split."""

import sys
from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits as published
from torch.profiler import ProfilerActivity, profile

from toosure.data import Images, digits, load_digits, make_dataset
from toosure.data.dataset import draw_indices, flip_labels, hold_out


def raw(count: int = 60, channels: int = 3, classes: int = 5) -> Images:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (count + 20, channels, 6, 6), generator=generator, dtype=torch.uint8)
    y = torch.randint(0, classes, (count + 20,), generator=generator)
    names = tuple(str(i) for i in range(classes))
    return Images(x[:count], y[:count], x[count:], y[count:], names)


@settings(deadline=None)
@given(
    st.integers(1, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 2**31), st.booleans()
)
def test_draws_are_disjoint_sorted_and_repeatable(first, second, spare, seed, rest):
    available = first + second + spare
    sizes = [second, None if rest and first + spare else first]
    parts = draw_indices("training", available, sizes, seed)
    assert [len(p) for p in parts] == [second, first + spare if sizes[1] is None else first]
    joined = torch.cat(parts).tolist()
    assert len(set(joined)) == len(joined) and set(joined) <= set(range(available))
    assert all(p.tolist() == sorted(p.tolist()) for p in parts)
    assert all(map(torch.equal, parts, draw_indices("training", available, sizes, seed)))


def test_splits_hold_the_images_their_indices_say():
    images = raw()
    data = make_dataset(images, train=30, val=20, test=10, standardise="none", seed=3)
    for split, x, y in (
        (data.train, images.train_x, images.train_y),
        (data.val, images.train_x, images.train_y),
        (data.test, images.test_x, images.test_y),
    ):
        assert torch.equal(split.x, x[split.indices] / 255)
        assert torch.equal(split.y, y[split.indices]) and not split.flipped.any()
    assert not set(data.train.indices.tolist()) & set(data.val.indices.tolist())
    other = make_dataset(images, train=30, val=20, seed=4)
    assert other.train.indices.tolist() != data.train.indices.tolist()


def test_a_larger_training_set_holds_the_smaller():
    small, large = (make_dataset(raw(), train=n, val=20).train.indices.tolist() for n in (10, 25))
    assert set(small) < set(large)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"train": 50, "val": 20}, "60 training images; 20 \\+ 50 were asked for"),
        ({"val": 60}, "60 \\+ the rest"),
        ({"val": -1}, "-1"),
        ({"test": 21}, "20 test images"),
        ({"train": 0}, "train=0"),
        ({"seed": -1}, "a seed must not be negative; got -1"),
    ],
)
def test_impossible_sizes_are_named(sizes, message):
    with pytest.raises(ValueError, match=message):
        make_dataset(raw(), **sizes)


def test_a_test_set_of_nothing_is_refused():
    with pytest.raises(ValueError, match="test=0 leaves nothing to judge a run on"):
        hold_out(raw(), 0, seed=0)


def test_channel_standardisation_is_by_the_training_split():
    data = make_dataset(raw(), train=40, val=10)
    assert data.mean.shape == data.std.shape == (3, 1, 1)
    x = data.train.x.double()
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(x.std((0, 2, 3), correction=0), torch.ones(3).double())
    pixels = raw().test_x.double() / 255
    expected = (pixels - data.mean) / data.std
    torch.testing.assert_close(data.test.x.double(), expected, rtol=1e-5, atol=1e-6)


def test_global_standardisation_is_the_mean_image_and_one_deviation():
    images = raw()
    data = make_dataset(images, standardise="global")
    pixels = images.train_x.double() / 255
    centred = pixels - pixels.mean(0)
    expected = centred / centred.square().mean().sqrt()
    torch.testing.assert_close(data.train.x.double(), expected, rtol=1e-5, atol=1e-6)
    assert data.std.numel() == 1


@pytest.mark.parametrize("standardise", ["channel", "global", "none"])
def test_nothing_but_the_result_takes_more_than_the_images(standardise):
    x, y = torch.zeros(3000, 3, 8, 8, dtype=torch.uint8), torch.arange(3000) % 2
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        data = make_dataset(Images(x, y, x[:2], y[:2], ("a", "b")), standardise=standardise)
    made = sorted(event.self_cpu_memory_usage for event in profiled.events())
    assert made[-1] == data.train.x.nbytes == 4 * x.nbytes
    assert made[-2] <= x.nbytes


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        ("fog:3", r'a corruption and a severity, as \("fog", 3\); got .fog:3.'),
        (("fog",), "a corruption and a severity"),
        (("fogg", 3), "no corruption is called 'fogg'; did you mean 'fog'?"),
        ((["fog"], 3), "no corruption is called"),
        (("fog", 6), "severity must be a whole number from 1 to 5; got 6"),
    ],
)
def test_a_shift_that_cannot_be_made_is_named_before_training(shift, message):
    for make in (lambda: make_dataset(raw(), shift=shift), lambda: digits(shift=shift)):
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(ValueError, match=message):
        make_dataset(raw()).shifted(shift)


def test_a_shift_of_images_too_small_for_it_is_named_before_training():
    x, y = torch.zeros(4, 3, 3, 3, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    with pytest.raises(ValueError, match="4 x 4 pixels or more"):
        make_dataset(Images(x, y, x, y, ("a", "b")), shift=("fog", 3))


def test_constant_images_do_not_divide_by_zero():
    x = torch.full((4, 1, 2, 2), 7, dtype=torch.uint8)
    images = Images(x, torch.tensor([0, 1, 0, 1]), x, torch.tensor([0, 1, 0, 1]), ("a", "b"))
    for standardise in ("channel", "global"):
        assert not make_dataset(images, standardise=standardise).train.x.any()


def test_an_unknown_standardisation_is_named():
    with pytest.raises(ValueError, match="channel, global or none; got 'zca'"):
        make_dataset(raw(), standardise="zca")


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(2, 10), st.floats(0, 1), st.integers(0, 2**31))
def test_noise_flips_exactly_its_share_to_other_classes(count, classes, share, seed):
    labels = torch.arange(count) % classes
    noisy = flip_labels(labels, classes, share, seed)
    assert (noisy != labels).sum() == round(share * count)
    assert noisy.min() >= 0 and noisy.max() < classes
    assert torch.equal(noisy, flip_labels(labels, classes, share, seed))


def test_noise_and_held_out_images_differ_by_seed():
    labels = torch.arange(200) % 5
    assert not torch.equal(*(flip_labels(labels, 5, 0.5, seed) for seed in (0, 1)))
    first, second = (digits(train=100, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.test.y, second.test.y)


def test_white_and_black_pixels_can_be_corrupted():
    """Undoing the scale leaves some of them a rounding error outside [0, 1]."""
    x = torch.randint(0, 256, (50, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    x[:, :, 0], x[:, :, 1] = 0, 255
    y = torch.arange(50) % 2
    outside = torch.zeros(2, dtype=torch.bool)
    images = Images(x.byte(), y, x.byte(), y, ("a", "b"))
    for seed in range(24):
        data = make_dataset(images, train=2, standardise="global", seed=seed)
        pixels = data.test.x * data.std + data.mean
        outside |= torch.stack([(pixels < 0).any(), (pixels > 1).any()])
        assert data.shifted(("contrast", 3)).x.isfinite().all()
    assert outside.all()


def test_noise_reaches_every_other_class_evenly():
    noisy = flip_labels(torch.zeros(9000, dtype=torch.int64), 4, 1.0, seed=0)
    counts = noisy.bincount(minlength=4)
    assert counts[0] == 0 and (counts[1:] - 3000).abs().max() < 5 * (9000 * 2 / 9) ** 0.5


def test_noise_touches_the_training_labels_only_and_is_kept():
    data = make_dataset(raw(), train=40, val=20, noise=0.25)
    clean = make_dataset(raw(), train=40, val=20)
    assert data.train.flipped.sum() == 10 and torch.equal(data.train.clean, clean.train.y)
    assert torch.equal(data.train.x, clean.train.x)
    assert not data.val.flipped.any() and not data.test.flipped.any()
    with pytest.raises(ValueError, match="noise must be a share"):
        make_dataset(raw(), noise=1.5)


def test_to_a_device_moves_all_tensors():
    data = make_dataset(raw(), val=10).to("meta")
    tensors = [data.mean, data.std, *data.train, *data.val, *data.test, data.train.indices]
    assert all(t.device.type == "meta" for t in tensors)
    assert make_dataset(raw()).to("cpu").val is None


def test_digits():
    data = digits()
    assert data.inputs == (1, 8, 8) and data.classes == 10 and data.names[3] == "3"
    assert (len(data.train), len(data.val), len(data.test)) == (997, 300, 500)
    shown = torch.cat([s.x for s in (data.train, data.val, data.test)]) * data.std + data.mean
    assert shown.min() + 1e-6 >= 0 and shown.max() == pytest.approx(1)
    # The 1,797 images are all there: their overall mean is the published set's.
    assert shown.mean().item() == pytest.approx(published().images.mean() / 16, rel=1e-5)


def test_digits_are_read_from_the_file_or_by_scikit_learn(monkeypatch):
    for find in (find_spec, lambda name: None):
        monkeypatch.setattr(sys.modules["toosure.data.digits"], "find_spec", find)
        images = load_digits()
        assert images.train_x.dtype == torch.uint8 and images.train_x.is_contiguous()
        assert torch.equal(images.train_x[:, 0].double(), torch.tensor(published().images))
        assert torch.equal(images.train_y, torch.tensor(published().target))


def test_digits_keep_their_test_set_when_the_training_set_shrinks():
    assert torch.equal(digits(train=200, noise=0.2).test.y, digits().test.y)
