"""The lag between two peaks on made-up trajectories whose lag is known."""

import numpy as np
import pytest
from fake_runs import write_run

from toosure.recipes import RunStore, Setting
from toosure.recipes.too_sharp import rise_and_fall
from toosure.recipes.too_sharp.peak_lag import block_length, lag_table, mean_interval, peak_lag

STEPS = np.arange(0, 8001, 40)


def hump(at, width):
    """A hump that falls twice as slowly as it rises."""
    z = (STEPS - at) / width
    return 0.03 + np.where(z < 0, np.exp(-(z**2)), np.exp(-((z / 2) ** 2)))


def oscillations(seed, size):
    """Two noises with a part in common, each row resembling the one before."""
    generator = np.random.default_rng(seed)
    common = generator.normal(size=len(STEPS))
    own = generator.normal(size=(2, len(STEPS)))
    noise = np.zeros((2, len(STEPS)))
    for i in range(1, len(STEPS)):
        noise[:, i] = 0.3 * noise[:, i - 1] + 0.6 * common[i] + 0.8 * own[:, i]
    return size * noise


@pytest.mark.parametrize("lag", [-400, 0, 600])
def test_the_lag_of_smooth_humps_is_found(lag):
    found = peak_lag(STEPS, hump(1600, 500), hump(1600 + lag, 500), resamples=40)
    assert found.value == lag
    assert found.low <= lag <= found.high
    # Nothing oscillates: what is left is what the running mean, 400 steps wide, bends.
    assert found.high - found.low <= 200


@pytest.mark.parametrize("size", [0.05, 0.2])
def test_nine_in_ten_intervals_hold_the_true_lag_and_wide_ones_say_that_it_is_unsure(size):
    lag = 400
    inside = []
    widths = []
    for seed in range(30):
        ece_noise, sharpness_noise = oscillations(seed, size)
        ece = hump(1600, 500) * (1 + ece_noise)
        sharpness = hump(1600 + lag, 700) * (1 + sharpness_noise)
        found = peak_lag(STEPS, ece, sharpness, seed, resamples=150)
        inside.append(found.low <= lag <= found.high)
        widths.append(found.high - found.low)
    assert np.mean(inside) >= 0.9
    assert np.mean(widths) < {0.05: 500, 0.2: 1200}[size]


def test_a_lag_far_from_the_true_one_is_outside():
    ece_noise, sharpness_noise = oscillations(0, 0.05)
    ece = hump(1600, 400) * (1 + ece_noise)
    found = peak_lag(STEPS, ece, hump(3000, 400) * (1 + sharpness_noise), resamples=100)
    assert found.low > 700


def test_rows_that_are_lost_are_left_out_and_three_rows_are_asked_for():
    ece = hump(1600, 500)
    ece[-1] = np.nan
    assert peak_lag(STEPS, ece, hump(1600, 500), resamples=10).value == 0
    assert np.isnan(peak_lag(STEPS[:2], ece[:2], ece[:2]).value)
    assert block_length(401) == 21 and block_length(1) == 1


def test_the_mean_over_runs_has_students_interval():
    mean, low, high = mean_interval([100.0, 200.0, 300.0])
    assert mean == 200 and (high - low) / 2 == pytest.approx(4.302653 * 100 / 3**0.5, rel=1e-5)


def test_the_table_has_a_row_per_run_and_the_mean(tmp_path):
    for config in rise_and_fall.configs(Setting()):
        write_run(tmp_path, config, train_ece=hump(1600, 500), train_gn_sharpness=hump(2000, 500))
    runs = RunStore(tmp_path).runs(rise_and_fall.configs(Setting())[:2])
    table = lag_table(runs)
    assert [row[1] for row in table.rows] == ["400", "400", "400"]
    assert table.rows[-1][0] == "mean of the runs" and table.rows[-1][2] == "400 to 400"
    assert lag_table([]).rows == ()
