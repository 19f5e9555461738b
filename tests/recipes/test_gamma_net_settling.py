"""The settling experiment of gamma-net: its arms, and its rules on made-up runs."""

from dataclasses import replace

import pytest
from made_up_scores import residual_row

from toosure.objectives import GammaNet
from toosure.recipes import Setting
from toosure.recipes.gamma_net import common, settling, sweeps
from toosure.recipes.gamma_net.rows import OURS, along_training
from toosure.train import Runtime, train

PAPER = Setting()


def rows_along(excess=3.0, at_cut=1.0, end=1.05):
    """Rows that end `excess` points over-confident; gamma at the first cut and at the end."""
    rows = [
        {
            "step": float(step),
            "objective/gamma_mean": gamma,
            "objective/meta_signal_to_noise": signal,
            "val/accuracy": 0.5,
            "val/confidence": 0.5,
        }
        for step, gamma, signal in (
            *((0, 1.0, 0.0), (5000, at_cut, 0.2)),
            *((6000, 9.0, 0.3), (10_000, end, 0.9)),
        )
    ]
    rows[-1] |= {"val/accuracy": 0.9, "val/confidence": 0.9 + excess / 100}
    return rows


def scored(*errors, **numbers):
    return errors, numbers


def verdicts(change=(), excess=3.0, end=1.05):
    arms = {name: scored(1.0, 1.5, 1.2, 1.9, 1.1) for name in sweeps.ARMS}
    arms |= {"CE": scored(3, 3, 3, 3, 3), sweeps.ARM_A: scored(1.5, 5.8, 16.3, 2.0, 3.0)}
    arms |= dict(change)
    along = rows_along(excess, end=end)
    rows = {
        name: residual_row(name, *errors, rows=along, expected=5, **numbers)
        for name, (errors, numbers) in arms.items()
    }
    return [claim.passed for claim in settling.claims(PAPER, rows)]


def test_all_rules_hold_on_runs_as_hoped():
    assert verdicts() == [True] * 10


@pytest.mark.parametrize(
    ("change", "place", "passed"),
    [
        ({sweeps.ARM_G: scored(1.0, 1.5, 1.2, 2.1, 1.1)}, 2, False),  # 1.1 points apart
        ({sweeps.ARM_A: scored(1.5, 1.6, 1.7, 1.8, 1.9)}, 4, False),  # nothing to explain
        ({sweeps.ARM_G: scored(3.1, 3.2, 3.3, 3.4, 3.5)}, 6, False),  # worse than CE
        ({sweeps.ARM_H: scored(3.1, 3.2, 3.3, 3.4, 3.5)}, 7, False),  # worse than CE
        ({sweeps.ARM_H: scored(1, 1, 1, 1, 1, accuracy=0.889)}, 9, False),
        ({sweeps.ARM_H: scored(1, 1, 1, 1, 1, accuracy=0.891)}, 9, True),
        ({sweeps.ARM_H: scored(1, 1, 1)}, 3, None),  # two runs missing
        ({sweeps.ARM_H: scored()}, 3, None),
        ({"CE": scored()}, 6, None),
        ({sweeps.ARM_H: scored(1.0, 1.5, 1.2, 2.1, 1.1)}, 3, False),
    ],
)
def test_each_rule(change, place, passed):
    assert verdicts(change)[place] is passed


def test_more_seeds_than_five_are_judged():
    """The command may name more: nothing is missing then."""
    six = {sweeps.ARM_H: scored(1.0, 1.5, 1.2, 1.9, 1.1, 1.3)}
    assert verdicts(six)[3] is True


def test_a_gamma_that_moves_after_the_cut_and_a_ce_that_is_not_too_sure():
    assert verdicts(end=1.2)[5] is False
    assert verdicts(excess=1.9)[6] is None


def test_arms_say_their_options():
    """What differs from the first build is what each arm changes, whatever the defaults are."""
    built = {
        name: GammaNet(**sweeps.arm_configs(PAPER, name)[0].word("objective").settings)
        for name, options in sweeps.ARMS.items()
        if options
    }
    first = built["A: as first built"]
    error = first.outer.terms[0].whole
    assert (error.bandwidth, error.form, error.leave_one_out) == (0.01, "points", False)
    assert not error.detach
    assert (first.meta_batch, first.fresh, first.virtual_lr) == (128, 128, None)
    detached = built["D: accuracy detached, virtual rate .1"]
    assert detached.outer.terms[0].whole.detach and detached.virtual_lr == 0.1
    assert built["E: D, meta batch 512"].meta_batch == 512
    assert built["F: A, bandwidth .1"].outer.terms[0].whole.bandwidth == 0.1
    assert all(len(sweeps.arm_configs(PAPER, name)) == 5 for name in sweeps.ARMS)


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "tiny_imagenet"])
def test_the_data_of_the_command_are_used(data):
    setting = Setting(data=data)
    configs = [*sweeps.comparison(setting), *sweeps.arms(setting), *sweeps.bandwidths(setting)]
    assert {config.data for config in configs} == {f"{data}:augment=true"}
    assert bool(setting.why_not_judged_on_cifar) == (data == "tiny_imagenet")


@pytest.mark.slow
def test_a_run_of_the_recipe_trains_on_a_made_up_tiny_imagenet(tmp_path):
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    lines = []
    for k, wnid in enumerate(("n01443537", "n01629819")):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        for i in range(8):
            picture = image.new("RGB", (64, 64), (100 * k, 10 * i, 0))
            picture.save(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG")
        picture.save(folder / "val" / "images" / f"val_{k}.JPEG")
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t9\t9\n")
    (folder / "wnids.txt").write_text("n01443537\nn01629819\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))

    setting = Setting(data="tiny_imagenet")
    residual = sweeps.method_configs(setting, OURS)[0]
    protocol = common.configs(setting)[0]
    for config in (residual, protocol):
        small = replace(config, data=f"{config.data},val=2", steps=2, batch=4, every=20, at=(2,))
        small = replace(small, objective="gamma_net:meta_batch=8,fresh=4")
        run = train(small, tmp_path / "runs", Runtime("cpu", data_root=tmp_path))
        assert run.status == "complete" and run.last["objective/gamma_mean"] > 0


def test_a_row_of_the_table():
    cells = settling.arm_cells(residual_row(sweeps.ARM_H, 1.0, 2.0, rows=rows_along()))
    assert cells[:2] == (sweeps.ARM_H, "2") and cells[7:] == (
        *("1.00 to 2.00", "3.00 ± 0.00", "1.00 ± 0.00", "1.05 ± 0.00", "0.30 ± 0.00"),
    )
    plain = settling.arm_cells(residual_row("CE", 3.0, rows=rows_along()))
    assert plain[7:] == ("3.00 to 3.00", "3.00", "–", "–", "–")


def test_a_record_without_gamma_says_what_to_do():
    """One that was kept before gamma was: no dash that looks like a result."""
    along = [{"step": 0.0, "val/ece": 0.1}, {"step": 10_000.0, "val/ece": 0.1}]
    for rows in (along, None):
        (record,) = residual_row(sweeps.ARM_H, 1.0, rows=rows).records
        with pytest.raises(ValueError, match=r"lacks objective/gamma_mean.*delete its line"):
            settling.last_gamma(record)
    assert along_training(residual_row("CE", 1, rows=along).records[0], "val/ece") == [0.1, 0.1]
