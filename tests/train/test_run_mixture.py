"""Mixtures of finished runs under shifts: against single runs and logits, and what they refuse."""

import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.config import RunConfig
from toosure.data import Dataset, Split
from toosure.ensembles import log_mean_probability
from toosure.posthoc.temperature import fit_temperature
from toosure.runs import Run
from toosure.shifts.judge import detection, ood_scores
from toosure.shifts.plan import ShiftPlan
from toosure.shifts.record import ShiftRecord
from toosure.train import Runtime, run_mixture, train
from toosure.train.restore import predict_shifted
from toosure.train.run_mixture import (
    ENOUGH_IMAGES,
    Member,
    MixtureNetwork,
    common_validation,
    judge_mixture,
)

CONFIG = RunConfig(
    data="digits:train=100,val=40,test=60", model="mlp:width=16", steps=20, every=20, measure=()
)
PLAN = ShiftPlan(("gaussian_noise", "fog"), (2, 4), ("noise",))
PLAIN = Runtime("cpu", threads=1)
JUDGED = replace(PLAIN, shifts=PLAN)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of two seeds, on the same data."""
    out = tmp_path_factory.mktemp("runs")
    return [train(replace(CONFIG, seed=seed), out, JUDGED) for seed in (0, 1)]


def without_time(record):
    return replace(record, seconds=0)


def test_a_mixture_of_one_run_is_that_run(runs):
    for run in runs:
        record = judge_mixture([run.path], JUDGED)
        assert without_time(record) == without_time(ShiftRecord.of(Run(run.path).shifts))
        assert "energy" in record.ood["noise"].auroc  # of logits, which one run has


def test_a_mixture_of_two_is_computed_from_the_logits_of_both(runs):
    record = judge_mixture([run.path for run in runs], JUDGED)
    clean = mixed_rows(runs, "test")
    for name, value in record.clean.items():
        assert value == pytest.approx(float(getattr(metrics, name)(*clean)), abs=1e-6), name

    temperature = float(fit_temperature(*mixed_rows(runs, "val")).temperature)
    corrupted = []
    for cell, scores in record.cells.items():
        logits, labels = (
            torch.stack(each) for each in zip(*(predicted(run, cell) for run in runs), strict=True)
        )
        rows = log_mean_probability(logits)
        corrupted.append(rows)
        for name in ("accuracy", "nll", "ece", "smece"):
            expected = float(getattr(metrics, name)(rows, labels[0]))
            assert scores[name] == pytest.approx(expected, abs=1e-5), (cell, name)
        after = float(metrics.nll(rows.double() / temperature, labels[0]))
        assert scores["nll_after_temperature"] == pytest.approx(after, abs=1e-4)

    found = record.ood["corrupted"]
    expected = detection(ood_scores(clean[0].float()), ood_scores(torch.cat(corrupted)), "")
    assert set(found.auroc) == {"confidence", "entropy", "margin"}  # a mixture has no energy
    for name, value in found.auroc.items():
        assert value == pytest.approx(expected.auroc[name], abs=1e-3), name
    assert (record.images, record.step, record.device) == (60, 20, "cpu")


def mixed_rows(runs, split):
    """Return the mixture of what two runs saved, in double precision, and the labels."""
    arrays = [np.load(run.path / "predictions.npz") for run in runs]
    logits = torch.stack([torch.from_numpy(each[f"{split}_logits"]) for each in arrays]).double()
    return log_mean_probability(logits), torch.from_numpy(arrays[0][f"{split}_labels"])


def predicted(run, cell):
    return predict_shifted(run.path, cell, PLAIN)


def test_the_images_of_a_set_are_made_once_for_all_members(runs, monkeypatch):
    made = []
    original = Dataset.shifted

    def counted(self, *words):
        made.append(words)
        return original(self, *words)

    monkeypatch.setattr(Dataset, "shifted", counted)
    judge_mixture([run.path for run in runs], JUDGED)
    assert len(made) == len(set(made)) == 4


# -- members of different splits ------------------------------------------------------------------


def member(images, validates, mean=0.5, std=0.25, name="a"):
    """A member whose network gives two pixels as logits, validated on some of many images."""
    own = torch.tensor(validates)
    mean, std = torch.full((1, 1, 1), mean), torch.full((1, 1, 1), std)

    def split(rows):
        labels = torch.zeros(len(rows), dtype=torch.int64)
        return Split((images[rows] - mean) / std, labels, labels, rows)

    every = torch.arange(4)
    data = Dataset(split(every), split(own), split(every), ("0", "1"), mean, std)
    return Member(name, CONFIG, data, torch.nn.Flatten(), 1)


def distinct_images(count):
    """Images of two pixels, no two alike."""
    numbers = torch.arange(count)
    return torch.stack([numbers % 256, numbers // 256], 1).view(count, 1, 1, 2) / 255


@pytest.fixture
def cifar(tmp_path):
    """A folder with 100 training and 40 test images in the layout of CIFAR-10."""
    folder = tmp_path / "data" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        count = 40 if name == "test_batch" else 20
        pixels = generator.integers(0, 256, (count, 3072), np.uint8)
        content = {"data": pixels, "labels": [i % 10 for i in range(count)]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    names = {"label_names": [str(i) for i in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))
    return folder.parent


def test_members_that_were_split_by_different_seeds(cifar, tmp_path):
    """As in the common protocol: other means and deviations, and no image for a temperature."""
    plan = ShiftPlan(("contrast", "gaussian_noise"), (3,))
    runtime = replace(PLAIN, data_root=cifar, shifts=plan)
    runs = [
        train(replace(CONFIG, data=f"cifar10:val=40,seed={seed}", seed=seed), tmp_path, runtime)
        for seed in (0, 1)
    ]
    record = judge_mixture([run.path for run in runs], runtime)
    for cell, scores in record.cells.items():
        both = [predict_shifted(run.path, cell, runtime) for run in runs]
        rows = log_mean_probability(torch.stack([logits for logits, _ in both]))
        assert scores["nll"] == pytest.approx(float(metrics.nll(rows, both[0][1])), abs=1e-4)
        assert "nll_after_temperature" not in scores

    alone = ShiftRecord.of(Run(runs[0].path).shifts)
    assert all("nll_after_temperature" in scores for scores in alone.cells.values())


def test_a_temperature_is_fitted_only_on_images_that_validate_every_member():
    images = distinct_images(4000)
    enough = ENOUGH_IMAGES
    first = member(images, list(range(1000)))
    overlapping = member(images, list(range(1000 - enough, 2000)), mean=0.4, std=0.2)
    common = common_validation([first, overlapping])
    assert common.indices.tolist() == list(range(1000 - enough, 1000))
    assert torch.equal(common.x, first.data.val.x[-enough:])  # scaled as the first member's

    one_less = member(images, list(range(1001 - enough, 2000)), mean=0.4)
    assert common_validation([first, one_less]) is None
    disjoint = member(images, list(range(1000, 2000)))
    assert common_validation([first, overlapping, disjoint]) is None
    few = member(images, [3, 4])
    same = member(images, [3, 4], mean=0.4)
    assert common_validation([few, same]) is few.data.val  # as few as they are: none was trained on
    none = replace(same, data=replace(same.data, val=None))
    assert common_validation([few, none]) is None and common_validation([none]) is None


def test_without_common_images_the_record_has_no_temperature(runs, monkeypatch):
    monkeypatch.setattr(run_mixture, "common_validation", lambda members: None)
    record = judge_mixture([run.path for run in runs], JUDGED)
    assert all("nll_after_temperature" not in cell for cell in record.cells.values())
    assert "ece_after_temperature" not in record.means()


def test_each_member_sees_images_on_its_own_scale():
    """Two networks of the same function, trained on other splits, agree with one on raw pixels."""
    images = distinct_images(8)
    first, second = member(images, [0, 1]), member(images, [2, 3], mean=0.1, std=0.7)
    x = first.data.test.x
    logits = torch.stack([x.flatten(1), ((images[:4] - 0.1) / 0.7).flatten(1)])
    found = MixtureNetwork([first, second])(x)
    torch.testing.assert_close(found, log_mean_probability(logits))

    double = replace(second.data, mean=second.data.mean.double(), std=second.data.std.double())
    exact = MixtureNetwork([first, replace(second, data=double)])(x)
    torch.testing.assert_close(exact, found)
    assert exact.dtype == torch.float32


# -- what is refused ------------------------------------------------------------------------------


def test_members_that_do_not_go_together_are_named(runs, tmp_path):
    first = runs[0].path
    bare = tmp_path / "bare"
    shutil.copytree(runs[1].path, bare)
    shutil.rmtree(bare / "checkpoints")
    other_split = train(replace(CONFIG, data="digits:train=100,val=40,test=60,seed=1"), tmp_path)
    for folders, message in (
        ([first, bare], "bare has no checkpoint: a member needs its weights"),
        ([first, tmp_path], f"members are folders of runs; got {tmp_path}"),
        ([first, other_split.path], "have different test images"),
        ([], "at least one run"),
    ):
        with pytest.raises(ValueError, match=message):
            judge_mixture(folders, JUDGED)


def test_members_of_other_data_or_classes_are_refused():
    first = member(distinct_images(8), [0, 1])
    other = replace(first, name="b", config=replace(CONFIG, data="cifar10"))
    with pytest.raises(ValueError, match="b was trained on cifar10, a on digits"):
        run_mixture.check_same_data(first, other)
    other = replace(first, name="b", data=replace(first.data, names=("0", "1", "2")))
    with pytest.raises(ValueError, match=r"b has 3 classes .* a 2 and"):
        run_mixture.check_same_data(first, other)
    shuffled = replace(first.data, test=replace(first.data.test, x=first.data.test.x.flip(0)))
    with pytest.raises(ValueError, match="different test images"):
        run_mixture.check_same_data(first, replace(first, name="b", data=shuffled))
