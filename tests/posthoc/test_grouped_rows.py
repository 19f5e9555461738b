"""Rows that belong to sequences: what calibrating and comparing say of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm as normal
from scipy.stats import t as student

from toosure.evaluate.paired import compare
from toosure.metrics.mean_interval import mean_over_groups
from toosure.metrics.scores import nll_rows
from toosure.posthoc.select import stratified_folds
from toosure.predictions import from_logits, take_rows
from toosure.recalibration import calibrated, recalibrate


def sequences(count, rows, seed):
    """Return predictions whose temperature differs by sequence, so that its rows are alike."""
    generator = torch.Generator().manual_seed(seed)
    sharpness = (1.5 * torch.randn(count, 1, 1, generator=generator)).exp()
    logits = 2 * torch.randn(count, rows, 3, generator=generator)
    labels = torch.multinomial(
        (logits * sharpness).flatten(0, 1).softmax(1), 1, generator=generator
    )
    groups = torch.arange(count).repeat_interleave(rows)
    return replace(from_logits(logits.flatten(0, 1), labels.squeeze(1)), groups=groups)


FIT, JUDGE = sequences(20, 200, seed=0), sequences(20, 200, seed=1)


def test_a_change_is_judged_by_whole_sequences():
    found = recalibrate(FIT, JUDGE, "temperature")
    outputs = found.choice.calibrator(JUDGE.logits)
    change = nll_rows(outputs.double(), JUDGE.labels) - nll_rows(
        JUDGE.logits.double(), JUDGE.labels
    )
    wanted = mean_over_groups(change, JUDGE.groups, 0.95, seed=1, samples=4000)
    assert found.change.value == pytest.approx(float(wanted.value))
    assert found.change.ends == pytest.approx(
        (float(wanted.low), float(wanted.high)), abs=0.1 * 2 * found.change.half
    )

    rows = recalibrate(replace(FIT, groups=None), replace(JUDGE, groups=None), "temperature")
    assert found.change.half > 3 * rows.change.half  # those of independent rows say too much
    assert found.ece_change.half > 3 * rows.ece_change.half
    assert found.gap_after.half > 3 * rows.gap_after.half and found.chance > 2 * rows.chance
    assert found.before.metrics["accuracy"] == found.after.metrics["accuracy"]


def test_a_sequence_is_held_out_as_a_whole():
    found = recalibrate(FIT, method="temperature", folds=4)
    assert found.n == FIT.n
    parts = stratified_folds(FIT.labels, 4, 0, FIT.groups)
    held = [set(FIT.groups[part].tolist()) for part in parts]
    assert sum(map(len, held)) == 20 and set.union(*held) == set(range(20))

    few = take_rows(FIT, np.arange(600))  # three sequences
    assert recalibrate(few, method="temperature").choice.folds == 3
    with pytest.raises(ValueError, match="all rows are of one sequence"):
        recalibrate(take_rows(FIT, np.arange(200)), method="temperature")


def test_calibrated_rows_keep_their_sequences_and_some_rows_are_numbered_anew():
    temperature = recalibrate(FIT, method="temperature").choice.calibrator
    assert torch.equal(calibrated(temperature, JUDGE).groups, JUDGE.groups)
    last = take_rows(JUDGE, np.arange(3200, 4000))
    assert last.groups.unique().tolist() == [0, 1, 2, 3]


def test_few_sequences_widen_the_interval_of_a_comparison():
    few = sequences(5, 10, seed=0)
    sharper = replace(from_logits(1.5 * few.logits, few.labels), groups=few.groups)
    (nll,) = [d for d in compare(few, sharper).differences if d.key == "nll"]

    rows = [nll_rows(each.logits.double(), few.labels) for each in (sharper, few)]
    means = (rows[0] - rows[1]).view(5, 10).mean(1).numpy()
    drawn = np.random.default_rng(5).integers(5, size=(4000, 5))
    low, high = np.quantile(means[drawn].mean(1), [0.025, 0.975]) - means.mean()
    factor = np.sqrt(5 / 4) * student.ppf(0.975, 4) / normal.ppf(0.975)
    wanted = means.mean() + factor * np.array([low, high])
    assert nll.change.ends == pytest.approx(tuple(wanted), abs=0.1 * nll.change.half)
