"""Metrics, evaluations and calibrators take arrays and columns however they lie in memory."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from toosure.evaluate import evaluate
from toosure.metrics import ece, flatten_positions, multilabel_calibration, nll
from toosure.metrics.conversion import holds_text, to_tensor
from toosure.posthoc import Temperature
from toosure.predictions import read_predictions

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(60, 3))
LABELS = RNG.integers(0, 3, 60)


def backwards(array):
    return array[::-1].copy()[::-1]


def unwritable(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def of_other_bytes(array):
    return array.astype(array.dtype.newbyteorder(">"))


def of_a_frame(array):
    pandas = pytest.importorskip("pandas")
    make = pandas.Series if array.ndim == 1 else pandas.DataFrame
    return make(array, index=range(1000, 1000 + len(array)))


@pytest.mark.parametrize("form", [backwards, unwritable, of_other_bytes, of_a_frame])
def test_every_form_gives_the_same_numbers(form):
    logits, labels = form(LOGITS), form(LABELS)
    assert torch.equal(nll(logits, labels), nll(LOGITS, LABELS))
    assert torch.equal(ece(form(LOGITS[:, 0]), form(LABELS % 2)), ece(LOGITS[:, 0], LABELS % 2))
    same = Temperature().fit(logits, labels).transform(logits)
    torch.testing.assert_close(same, Temperature().fit(LOGITS, LABELS).transform(LOGITS))
    few = {"samples": 20, "metrics": ["nll"]}
    assert evaluate(logits, labels, **few).metrics == evaluate(LOGITS, LABELS, **few).metrics
    probs = form(1 / (1 + np.exp(-LOGITS[:, 0])))
    assert evaluate(probs=probs, labels=form(LABELS % 2), **few).n == 60
    many = form((LOGITS > 0).astype(int))
    assert multilabel_calibration(logits, many)


class OnDevice:
    """An array on a GPU, which refuses to be copied without being asked."""

    __cuda_array_interface__: ClassVar[dict[str, int]] = {"version": 3}

    def __array__(self, *args: object) -> None:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


def test_arrays_on_a_device_stay_there():
    assert not holds_text(OnDevice())


def test_memory_is_shared_where_torch_can_read_it():
    assert np.shares_memory(to_tensor(LOGITS).numpy(), LOGITS)
    assert np.shares_memory(to_tensor(LOGITS.T).numpy(), LOGITS)
    assert to_tensor([0.5]).dtype == torch.float32  # of lists, as torch has it
    assert flatten_positions(backwards(LOGITS.reshape(10, 6, 3)), LABELS.reshape(10, 6))
    with pytest.raises(ValueError, match="numbers are needed; got text: labels number"):
        nll(LOGITS, np.array(["a", "b", "c"])[LABELS])


def test_bfloat16_that_numpy_lost_the_name_of_is_recognised(tmp_path):
    """`np.savez` of an array of ml_dtypes, as JAX has them, keeps two bytes a number, no type."""
    bytes_only = LOGITS.astype(np.float16).view("V2")
    with pytest.raises(
        ValueError, match=r"may be bfloat16: convert it with \.astype\(np.float32\)"
    ):
        evaluate(bytes_only, LABELS)
    np.savez(tmp_path / "a.npz", logits=bytes_only, labels=LABELS)
    with pytest.raises(
        ValueError, match=r"logits must be numbers; got \|V2, which may be bfloat16"
    ):
        read_predictions(tmp_path / "a.npz")
