"""Data of one's own: arrays of an .npz, and what a function returns."""

import sys

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from toosure.cli import app
from toosure.config import RunConfig
from toosure.data import arrays, digits
from toosure.data.own_data import as_dataset
from toosure.objectives import MIT, Mixup
from toosure.runs import Run
from toosure.train import Runtime, train
from toosure.train.loading import in_float64, load_data


def table(n=90, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(y[:, None], 2.0, (n, 5)), y


def saved(tmp_path, **stored):
    np.savez(tmp_path / "mine.npz", **stored)
    return tmp_path / "mine.npz"


def test_a_table_is_split_by_seed_and_standardised_by_its_training_rows(tmp_path):
    x, y = table()
    data = arrays(saved(tmp_path, x=x, y=y, names=["a", "b", "c"]))
    assert [len(part) for part in (data.train, data.val, data.test)] == [58, 14, 18]
    assert data.inputs == (5,) and data.names == ("a", "b", "c")
    torch.testing.assert_close(data.train.x.mean(0), torch.zeros(5), atol=1e-6, rtol=0)
    torch.testing.assert_close(data.train.x.std(0, correction=0), torch.ones(5))

    # Every row of the file is in one split, with its label.
    parts = [data.train, data.val, data.test]
    raw = torch.cat([part.x for part in parts]) * data.std + data.mean
    order = np.lexsort(x.T)
    again = np.lexsort(raw.numpy().astype(float).T.round(4))
    np.testing.assert_allclose(raw.numpy()[again][:, -1], np.sort(x[:, -1]), atol=1e-5)
    assert (torch.cat([part.y for part in parts]).numpy()[again] == y[order]).all()

    other = arrays(tmp_path / "mine.npz", seed=1)
    assert not torch.equal(other.test.x, data.test.x)


def test_sizes_and_wrong_labels(tmp_path):
    x, y = table()
    data = arrays(saved(tmp_path, x=x, y=y), train=40, val=10, test=20, noise=0.5)
    assert [len(part) for part in (data.train, data.val, data.test)] == [40, 10, 20]
    assert int(data.train.flipped.sum()) == 20
    assert arrays(tmp_path / "mine.npz", val=0).val is None


@pytest.mark.parametrize(
    "names",
    [
        ("train_x", "train_y", "val_x", "val_y", "test_x", "test_y"),
        ("x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test"),
        ("train_images", "train_labels", "val_images", "val_labels", "test_images", "test_labels"),
    ],
)
def test_splits_of_the_file_are_kept(tmp_path, names):
    pairs = [table(n, seed) for seed, n in enumerate((30, 12, 9))]
    values = [value for x, y in pairs for value in (x, y[:, None])]  # labels (N, 1), too
    data = arrays(saved(tmp_path, **dict(zip(names, values, strict=True))), standardise="none")
    for part, (x, y) in zip((data.train, data.val, data.test), pairs, strict=True):
        np.testing.assert_allclose(part.x, x, rtol=1e-6)
        assert (part.y.numpy() == y).all()


@pytest.mark.parametrize("shape", [(40, 8, 8), (40, 1, 8, 8), (40, 8, 8, 1)])
def test_bytes_are_images(tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = arrays(saved(tmp_path, images=pixels, labels=np.arange(40) % 2), augment=True)
    assert data.inputs == (1, 8, 8)
    assert data.shifted(("fog", 3)).x.shape == data.test.x.shape
    assert float(data.train.x.mean()) == pytest.approx(0, abs=1e-5)
    assert (
        data.augmented(data.train.x, torch.Generator().manual_seed(0)).shape == data.train.x.shape
    )


def test_whole_numbers_stay(tmp_path):
    tokens = np.random.default_rng(0).integers(0, 99, (30, 7))
    data = arrays(saved(tmp_path, x=tokens, y=np.array(["no", "yes"])[np.arange(30) % 2]))
    assert data.train.x.dtype == torch.int64 and data.names == ("no", "yes")
    assert in_float64(data).train.x.dtype == torch.int64
    with pytest.raises(ValueError, match="images must have shape"):
        data.shifted(("fog", 1))
    for objective in (Mixup(), MIT()):  # they would be cut to whole numbers
        with pytest.raises(ValueError, match=r"need floating-point numbers; got torch\.int64"):
            objective.prepare(None, (data.train.x, data.train.y, data.train.indices))


def test_a_table_of_whole_numbers_is_told_from_tokens(tmp_path):
    counts, labels = np.arange(60).reshape(20, 3), np.arange(20) % 2
    file = saved(tmp_path, x=counts, y=labels)
    config = RunConfig(data=f"arrays:{file}", model="mlp", steps=1, measure=())
    with pytest.raises(ValueError, match="read as tokens, and mlp does not take them"):
        train(config, tmp_path / "runs", Runtime("cpu"))

    flags = arrays(saved(tmp_path, x=counts % 2 == 0, y=labels), standardise="none")
    assert flags.train.x.dtype == torch.float32 and set(flags.train.x.unique().tolist()) == {0, 1}


def test_names_of_pandas_are_asked_for_as_text(tmp_path):
    names = np.array(["no", "yes"], dtype=object)[np.arange(20) % 2]
    with pytest.raises(ValueError, match=r"save them as np\.array"):
        arrays(saved(tmp_path, x=np.zeros((20, 2)), y=names))


def test_pixels_outside_0_and_1_are_not_corrupted(tmp_path):
    x = np.random.default_rng(0).normal(size=(30, 1, 8, 8))
    data = arrays(saved(tmp_path, x=x, y=np.arange(30) % 2))
    with pytest.raises(ValueError, match=r"pixels in \[0, 1\]; these inputs go from -"):
        data.shifted(("fog", 1))


X, Y = table(20)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"x": X}, "lacks the inputs or labels of train"),
        ({"one": X, "two": Y}, "holds one, two, and lacks the rows of train"),
        ({"x": X, "X": X, "y": Y}, "has 'x' and 'X': which one"),
        ({"x": X, "y": Y[:-1]}, "20 rows of inputs and 19 labels"),
        ({"x": X, "y": Y + 1}, "labels go from 1 to 3: subtract 1"),
        ({"x": X, "y": Y + 0.5}, "class numbers or names; got"),
        ({"x": X, "y": np.eye(3)[Y]}, r"one class per row; got shape \(20, 3\)"),
        ({"x": X, "y": Y * 0}, "needs two classes"),
        ({"x": X, "y": Y, "names": ["a", "b"]}, "labels go from 0 to 2, with 2 class names"),
        ({"x": np.where(X > 2, np.nan, X), "y": Y}, "NaN or infinite"),
        ({"x": X[:, 0], "y": Y}, "two axes or more"),
        (
            {"train_x": X, "train_y": Y, "test_x": X[:, :2], "test_y": Y},
            "rows of the splits differ",
        ),
        ({"x": X, "y": Y, "test_x": X, "test_y": Y}, "name the split of each"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, stored, message):
    with pytest.raises(ValueError, match=message):
        arrays(saved(tmp_path, **stored))


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*nothing.npz; write arrays:FILE.npz"):
        arrays(tmp_path / "nothing.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"cannot be read as an \.npz"):
        arrays(tmp_path / "text.npz")
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(ValueError, match="labels are needed too"):
        arrays(tmp_path / "one.npy")


# -- functions ------------------------------------------------------------------------------------


def test_what_a_function_may_return():
    x, y = map(torch.tensor, table(30))
    by_tuple = as_dataset(((x, y), (x[:9], y[:9]), (x[9:18], y[9:18])), "mine:data")
    by_dict = as_dataset({"test": (x[9:18], y[9:18].tolist()), "train": (x, y)}, "mine:data")
    by_set = as_dataset(
        (TensorDataset(x.float(), y), TensorDataset(x[9:18].float(), y[9:18])), "m:d"
    )
    assert len(by_tuple.val) == 9 and by_dict.val is None is by_set.val
    for data in (by_tuple, by_dict, by_set):
        torch.testing.assert_close(data.train.x, x.float())
        torch.testing.assert_close(data.test.y, y[9:18])
        assert data.names == ("0", "1", "2")

    x, names = np.ones((3, 2), dtype="float32"), np.array(["no", "yes", "no"])
    x.flags.writeable = False
    for labels in (names, names.astype(object), names.astype("S")):
        data = as_dataset(((x, labels), None, (x, labels)), "mine:data")
        assert data.names == ("no", "yes") and data.test.y.tolist() == [0, 1, 0]
    data = digits(train=20)
    assert as_dataset(data, "mine:data") is data


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"returned a NoneType: return \(train, val, test\)"),
        ((1, 2, 3, 4), "returned a tuple of 4"),
        ({"train": (X, Y)}, "returned a dict of train"),
        ({"train": (X, Y), "test": None}, "returned a dict of train"),
        ({"train": (X, Y), "test": (X, Y), "dev": (X, Y)}, "a split called 'dev'"),
        (((X, Y), (X, ["a"] * 20)), "labels must be class numbers or names, all of one kind"),
        (((X, Y), (X, [None] * 20)), "labels must be class numbers or names, all of one kind"),
        (((X, Y), (X, Y + [np.inf] * 20)), "names; got inf"),
        (((X, Y), (1j * X, Y)), "mine:data, test: inputs must be an array of real numbers"),
        (((X, Y), (X, Y[:3])), "mine:data, test: 20 rows of inputs and 3 labels"),
        ((X, Y), "mine:data, train: examples must be"),
        (((X, Y), 3), "mine:data, test: a pair of inputs and labels is needed; got a int"),
    ],
)
def test_what_it_may_not_return_is_said(value, message):
    with pytest.raises(ValueError, match=message):
        as_dataset(value, "mine:data")


def test_both_ways_train_by_the_command(tmp_path, monkeypatch):
    x, y = table(120)
    path = saved(tmp_path, x=x, y=y)
    (tmp_path / "my_data.py").write_text(
        "import numpy as np\n"
        "def rows(n: int = 60):\n"
        f"    file = np.load({str(path)!r})\n"
        "    x, y = file['x'], file['y']\n"
        "    return (x[:n], y[:n]), (x[n:90], y[n:90]), (x[90:], y[90:])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for word in (f"arrays:{path}", "my_data:rows,n=50"):
        words = f"train --data {word} --model mlp --steps 4 --every 2 --out {tmp_path / 'runs'}"
        result = CliRunner().invoke(app, words.split())
        assert result.exit_code == 0, result.output
    runs = [Run(folder) for folder in sorted((tmp_path / "runs").iterdir())]
    assert [run.status for run in runs] == ["complete", "complete"]
    assert all("val/ece" in run.rows[-1] for run in runs)

    config = RunConfig(data="my_data:rows", model="mlp", steps=2, every=1)
    assert len(load_data(config, Runtime("cpu")).train) == 60
    train(config, tmp_path / "again", Runtime("cpu"))
    sys.modules.pop("my_data")
