"""`--control radius:return_from=0.9`: the control split is trained on for the rest of the run."""

from types import SimpleNamespace

import pytest
import torch
from test_resume import interrupted, same_run

from toosure.config import RunConfig
from toosure.data import digits
from toosure.train import Runtime, train
from toosure.train.batches import Batches
from toosure.train.checkpoint import load_checkpoint
from toosure.train.control import ReturningBatches, cut_control_split

SMALL = {
    "data": "digits:train=200,val=60,noise=0.1",
    "model": "mlp:width=16",
    "batch": 32,
    "measure": (),
    "optimizer": "sam:lr=0.3,rho=0.05,momentum=0.9",
    "control": "radius:size=60,every=3,dead_band=0,guard=inf,return_from=0.5",
}
CPU = Runtime("cpu", threads=1)


@pytest.fixture(scope="module")
def splits():
    data = digits(train=200, val=60)
    rest, control = cut_control_split(RunConfig(**SMALL), data)
    return data, rest, control


def returning(splits, **more):
    _, rest, control = splits
    return ReturningBatches(rest, control, return_step=10, size=32, seed=0, **more)


def published(batches, split, step):
    """The published indices of the images of a step, found by the images themselves."""
    x, _, _ = batches.draw(step)
    known = {
        image.numpy().tobytes(): int(i) for image, i in zip(split.x, split.indices, strict=True)
    }
    return [known[image.numpy().tobytes()] for image in x]


def test_before_the_return_batches_are_those_without_it(splits):
    plain = Batches(splits[1], 32, 0)
    batches = returning(splits)
    for step in (0, 4, 9):
        for one, two in zip(plain.draw(step), batches.draw(step), strict=True):
            assert torch.equal(one, two)


def test_an_epoch_after_the_return_holds_both_splits_once(splits):
    data, _, control = splits
    batches = returning(splits)
    steps = range(10, 10 + 200 // 32)  # the first whole epoch of all 200 examples
    drawn = [i for step in steps for i in published(batches, data.train, step)]
    assert len(drawn) == len(set(drawn)) == 192
    assert len(set(drawn) & set(control.indices.tolist())) >= 60 - 8

    earlier = [i for step in range(10) for i in published(batches, data.train, step)]
    assert not set(earlier) & set(control.indices.tolist())
    assert [len(batches.draw(step)[1]) for step in (0, 9, 10, 99)] == [32] * 4  # for a CUDA graph


def test_labels_and_indices_belong_to_the_images(splits):
    _, rest, control = splits
    x, y, indices = returning(splits).draw(12)
    both = [torch.cat(pair) for pair in zip(rest.train, control, strict=True)]
    assert torch.equal(both[0][indices], x) and torch.equal(both[1][indices], y)


def test_epochs_are_counted_on_both_sides(splits):
    batches = returning(splits)  # 4 steps per epoch of 140 examples, then 6 of 200
    assert batches.epochs_after(8) == 2.0
    assert batches.epochs_after(16) == 10 / 4 + 1
    assert [step for step in range(24) if batches.ends_epoch(step)] == [3, 7, 15, 21]


def test_shares_of_several_processes_make_the_batch(splits):
    def share(rank):
        processes = SimpleNamespace(
            rank=rank, count=2, rows=lambda n: slice(rank * n // 2, (rank + 1) * n // 2)
        )
        return returning(splits, processes=processes, in_shares=True).draw(13)[2]

    whole = returning(splits).draw(13)[2]
    assert torch.equal(torch.cat([share(0), share(1)]), whole)


def test_a_stopped_run_goes_on_bit_for_bit_on_both_sides(tmp_path):
    config = RunConfig(**SMALL, steps=18, every=3)
    whole = train(config, tmp_path / "whole", CPU)
    resumed = interrupted(config, tmp_path / "cut", 7, 13)
    same_run(whole, resumed)
    controls = [load_checkpoint(run.path)[0]["control"] for run in (whole, resumed)]
    assert controls[0] == controls[1]

    # The row of step 9 has the last look; after it the radius is held.
    held = {row["step"]: row["control/held"] for row in whole.rows[1:]}
    assert held == {3: 0, 6: 0, 9: 1, 12: 1, 15: 1, 18: 1}
    late = [row for row in whole.rows if row["step"] >= 9]
    assert len({row["control/rho"] for row in late}) == 1 and late[0]["control/rho"] != 0.05
    assert [row["control/acted"] for row in late[1:]] == [0, 0, 0]
    assert late[0]["control/acted"] != 0


def test_up_to_the_return_the_run_is_the_one_without_it(tmp_path):
    """The same radius at the same steps; then the weights part."""
    runs = []
    for control in (SMALL["control"], SMALL["control"].replace("return_from", "until")):
        config = RunConfig(**(SMALL | {"control": control}), steps=18, every=9)
        runs.append(train(config, tmp_path, CPU))
    first, second = (run.rows for run in runs)
    assert first[1]["val/nll"] == second[1]["val/nll"]
    assert first[1]["control/rho"] == second[1]["control/rho"] == second[2]["control/rho"]
    assert first[2]["val/nll"] != second[2]["val/nll"]
    assert "control/held" not in second[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_recorded_run_takes_the_split_back_as_an_eager_one_does(tmp_path):
    config = RunConfig(**SMALL, steps=24, every=6)
    runs = [
        train(config, tmp_path / str(graph), Runtime("cuda", graph=graph))
        for graph in (False, True)
    ]
    for eager, recorded in zip(*(run.rows for run in runs), strict=True):
        for key in ("control/rho", "val/nll"):
            assert recorded.get(key) == pytest.approx(eager.get(key), rel=1e-3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"batch": None}, "a full batch with it: give a batch size"),
        ({"objective": "crl"}, "crl is set up for the first training examples"),
    ],
)
def test_a_run_that_cannot_take_the_split_back_says_why(more, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        train(RunConfig(**(SMALL | more), steps=4), tmp_path, CPU)


@pytest.mark.parametrize("share", [0.05, 1.0, -0.1])
def test_the_share_lies_between_start_and_one(share):
    with pytest.raises(ValueError, match="return_from is the share of the run"):
        RunConfig(control=f"radius:return_from={share}")
