"""FSDP2: optimizers, control, checkpoints and the watch on sharded weights, against one process."""

import math
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent))  # a spawned process starts without it

if not dist.is_available():
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

import fsdp_worker as worker

from toosure import Run

pytestmark = pytest.mark.xdist_group("fsdp")  # workers of pytest share what was trained


def run(world, folder):
    """Start the processes; return what each of them found."""
    mp.spawn(worker.main, (world, str(folder)), nprocs=world)
    files = [folder / f"world{world}-rank{rank}.pt" for rank in range(world)]
    return [torch.load(file, weights_only=False) for file in files]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fsdp")


@pytest.fixture(scope="module")
def two(folder):
    return run(2, folder)


@pytest.fixture(scope="module")
def four(folder, two):
    return run(4, folder)


def check_equal(name, processes, tolerance=1e-12, **options):
    """All processes have the weights that one process has, and it trained."""
    alone = worker.trained(name, None, **options)
    assert (alone - worker.weights(worker.make_model(None)).to(alone)).abs().max() > 1e-3
    for found in processes:
        assert (found - alone).abs().max() < tolerance, name


@pytest.mark.parametrize("name", worker.CASES)
def test_two_processes_equal_one(name, two):
    check_equal(name, [found[name] for found in two])


def test_in_float32(two):
    found = [rank["float32"] for rank in two]
    check_equal("csam", found, tolerance=1e-6, dtype=torch.float32)


def test_clipping_before_a_step(two):
    alone = worker.clipped_sgd(None)
    assert (two[0]["clipped sgd"] - alone).abs().max() < 1e-12


def test_one_collective_per_norm(two):
    assert two[0]["collectives"] == {"sam": 1, "sam, clipped": 2}


def test_plain_tensors_and_gradients_placed_otherwise(two):
    alone = worker.partly_sharded(None)
    for rank in two:
        assert (rank["partly sharded"] - alone).abs().max() < 1e-12


def test_half_precision(two):
    """SAM moves by rho over all shards; state and weights stay float32; processes agree."""
    found, other = (rank["half precision"] for rank in two)
    assert torch.allclose(found["moved"], torch.tensor(0.1), rtol=1e-5)
    assert found["types"] == {"torch.float32"}
    assert torch.equal(found["weights"], other["weights"])


def test_an_infinite_gradient_in_one_process_skips_the_step_in_all(two):
    for rank in two:
        first, second, third = rank["infinite"]["weights"]
        assert torch.equal(first, second) and not torch.equal(second, third)
        assert rank["infinite"]["scale"] == 4.0


def test_the_radius_is_steered_as_in_one_process(two):
    alone = worker.controlled(None)
    assert len(set(alone)) > 4  # it moved
    for rank in two:
        assert rank["controlled"] == pytest.approx(alone, rel=1e-9)
    assert two[0]["controlled"] == two[1]["controlled"]


def test_critical_sharpness(two):
    """The same number in every process, of all data, along the gradient or a given update."""
    alone = worker.critical(None)
    assert alone["value"] == pytest.approx(alone["along"], rel=1e-3)
    for rank in two:
        assert rank["critical"]["same"]
        assert rank["critical"]["value"] == two[0]["critical"]["value"]
        assert rank["critical"]["value"] == pytest.approx(alone["value"], rel=1e-9)
        assert rank["critical"]["copied"] == pytest.approx(alone["value"], rel=1e-9)
        assert math.isfinite(rank["critical"]["along"])


def check_rows(processes, folder, tmp_path):
    """The rows in the folder that the first process wrote are those of one process."""
    alone = worker.watched(None, tmp_path / "alone")
    rows = Run(folder).rows
    expected = Run(tmp_path / "alone").rows
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert "train/critical_sharpness" in rows[0] and "val/ece" in rows[0]
    for row, other in zip(rows, expected, strict=True):
        numbers = {key for key in other if not key.startswith("seconds")}
        assert {key for key in row if not key.startswith("seconds")} == numbers
        for key in numbers:
            assert row[key] == pytest.approx(other[key], abs=1e-6), key

    for rank in processes:
        assert rank["watched"]["modes"]
        assert (rank["watched"]["weights"] - alone["weights"]).abs().max() < 1e-12


def test_rows_of_the_watch_are_those_of_one_process(two, folder, tmp_path):
    check_rows(two, folder / "watched2", tmp_path)


def test_curvature_on_gathered_weights_is_that_of_one_process(two, folder, tmp_path):
    alone = worker.gathered(None, tmp_path / "alone")
    rows = Run(folder / "gathered2").rows
    expected = Run(tmp_path / "alone").rows
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert all(row["gathered"] is True for row in rows)
    for row, other in zip(rows, expected, strict=True):
        assert {"train/gn_sharpness", "val/kappa_min", "train/certificate_failed"} <= set(other)
        for key in set(other) - {"seconds", "seconds_measuring"}:
            if not key.endswith("_error"):
                assert row[key] == pytest.approx(other[key], rel=1e-6, abs=1e-6), key

    for rank in two:
        assert (rank["gathered"]["weights"] - alone["weights"]).abs().max() < 1e-12
        assert rank["gathered"]["sharded"] and rank["gathered"]["called"]


def test_a_plain_copy_of_an_odd_network(two):
    for rank in two:
        copies = rank["copies"]
        assert copies["same"] and copies["tied"] and copies["shared"] and copies["sharded"]
        assert copies["classes"] == ["Odd", "Linear", "BatchNorm1d", "Linear"]


def test_more_weights_than_are_gathered(two):
    """Critical sharpness stands for the curvature asked for; the row and a warning say so."""
    first, second = (rank["too many"] for rank in two)
    row = first["row"]
    assert row["gathered"] is False and math.isfinite(row["train/critical_sharpness"])
    assert "train/gn_sharpness" not in row and "train/certificate_failed" not in row
    (sentence,) = first["sentences"]
    assert sentence.startswith("gn_sharpness, certificate needs all weights in each process")
    assert "sharded by FSDP2, has 186 parameters, more than" in sentence
    assert "critical_sharpness is measured instead" in sentence and "gather=N" in sentence
    assert not second["sentences"]


def test_what_does_not_work_says_why(two):
    bulk, alone, update = two[0]["refusals"]
    assert "sharded (DTensor)" in bulk and "DistributedDataParallel" in bulk
    assert "sharded over 2 processes" in alone and "processes=toosure.processes.join" in alone
    assert "must be sharded" in update


def test_each_process_holds_its_part(two):
    whole = worker.local_bytes(None)
    assert sum(rank["bytes"] for rank in two) <= 1.02 * whole
    assert max(rank["bytes"] for rank in two) <= 0.65 * whole  # odd rows are not halved


@pytest.mark.slow
def test_four_processes(four, folder, tmp_path):
    for name in ("sam", "csam", "muon"):
        check_equal(name, [rank[name] for rank in four])
    check_equal("sam", [rank["hybrid"] for rank in four])  # two copies of two shards
    check_rows(four, folder / "watched4", tmp_path)
    assert max(rank["bytes"] for rank in four) <= 0.4 * worker.local_bytes(None)


@pytest.mark.slow
@pytest.mark.parametrize("name", worker.RESUMED)
def test_saved_by_two_processes_resumed_by_four(name, four):
    check_equal(name, [rank["resumed"][name] for rank in four])
