"""Runs by DistributedDataParallel: equal to one process, to torch's own loop, and lost and resumed.

The processes run `ddp_shares.py`: two of them every day, four in the slow tests.
"""

import json
import re

import pytest
import torch
import torch.distributed as dist
from compared import close, numbers
from ddp_cases import data_of
from ddp_shares import (
    BITS,
    EQUAL,
    LOST,
    ON_THEIR_SHARES,
    SYNCED,
    WATCHED,
    configs,
    normed_network,
    watched_data,
)
from groups import ROOT, Group, start
from torch import nn

from toosure.processes import Processes
from toosure.processes.sync_batch_norm import HostSyncBatchNorm, sync_batch_norm
from toosure.runs import Run
from toosure.train import Runtime, train
from toosure.train.batches import Batches, check_shares
from toosure.train.checkpoint import load_checkpoint
from toosure.train.engine import Engine, build_engine, is_mean_over_examples
from toosure.watch import Watch
from toosure.words import parse
from waiting import LIMIT

pytestmark = [
    pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo"),
    pytest.mark.xdist_group("pair"),  # one pytest worker runs all tests of the pair
]
CPU = Runtime("cpu")
FOUR = pytest.param("four", marks=pytest.mark.slow)


@pytest.fixture(params=["pair", FOUR])
def group(request):
    """The processes that train by DDP: their number and the folder of their runs."""
    processes = request.getfixturevalue(request.param)
    folder = processes.out if request.param == "four" else processes.done().out / "ddp"
    return len(processes.processes), folder, processes


# -- the same numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", EQUAL)
def test_shares_equal_one_process_with_the_whole_batch(name, group, alone):
    count, folder, _ = group
    config = configs(EQUAL)[name]
    wanted = train(config, alone / "ddp", CPU, data=data_of(config))
    found = Run(folder / config.name)
    close(found, wanted, 1e-6)
    assert (found.environment["processes"], found.environment["engine"]) == (count, "ddp")
    assert wanted.rows[0]["train/loss"] - wanted.last["train/loss"] > 1e-2  # it trains


def test_synced_batch_norm_sees_the_whole_batch(group, alone):
    wanted = train(SYNCED, alone / "ddp", CPU, data=data_of(SYNCED))
    found = Run(group[1] / SYNCED.name)
    close(found, wanted, 1e-6)
    assert found.environment["sync_batchnorm"]


def test_sgd_is_torchs_own_loop_bit_for_bit(group):
    count, folder, _ = group
    state, _ = load_checkpoint(folder / BITS.name)
    by_hand = [torch.load(folder / f"by_hand{rank}.pt") for rank in range(count)]
    for name, weight in state["model"].items():
        assert all(torch.equal(weight, other[name]) for other in by_hand), name


@pytest.mark.parametrize("name", ON_THEIR_SHARES)
def test_what_draws_on_its_share_trains_too(name, group, alone):
    """Mixtures, dropout and BatchNorm are those of a share: close to one process, not equal."""
    config = configs(ON_THEIR_SHARES)[name]
    wanted = train(config, alone / "ddp", CPU, data=data_of(config))
    found = Run(group[1] / config.name)
    assert found.status == "complete"
    start, end = (found.rows[i]["train/loss"] for i in (0, -1))
    assert start == pytest.approx(wanted.rows[0]["train/loss"], rel=1e-3)
    assert end < start


# -- the watch of anybody's loop ----------------------------------------------------------------


def test_a_watch_in_a_loop_with_ddp_has_the_rows_of_one_process(group):
    """The model of the first process is measured, with its statistics, by all; nothing changes."""
    count, folder, _ = group
    found = Run(folder / "watched")
    states = [torch.load(folder / f"watched{rank}.pt") for rank in range(count)]
    means = [state["2.running_mean"] for state in states]
    assert not torch.equal(means[0], means[1])  # each process has its own, as without a watch

    model = normed_network()
    model.load_state_dict(states[0])
    assert found.status == "ended" and len(found.rows) > 2
    train_data, val = watched_data()
    again = Watch(model, None, train_data, val, at=[0], **WATCHED).last
    wanted = {k: v for k, v in again.items() if "/" in k}
    last = {k: v for k, v in numbers(found.rows)[-1].items() if "/" in k}
    assert last == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_one_process_that_fails_ends_the_others_with_a_sentence(group):
    count, _, processes = group
    said = [json.loads((processes.out / f"said{rank}.json").read_text()) for rank in range(count)]
    assert said[-1]["failed"] == "ZeroDivisionError: this process has no luck"
    for other in said[:-1]:
        assert other["failed"] == (
            f"RuntimeError: process {count - 1} of {count} failed while it measured, so this one "
            "ends too: ZeroDivisionError: this process has no luck"
        )


def test_the_example_is_watched_by_two_processes(tmp_path):
    both = start(2, str(ROOT / "examples" / "ddp_watch.py"), str(tmp_path / "run"))
    said = [process.communicate(timeout=LIMIT)[0] for process in both]
    ece = re.findall(r"rank (\d): val ECE (\S+) %", "".join(said))
    assert sorted(rank for rank, _ in ece) == ["0", "1"] and len({value for _, value in ece}) == 1
    run = Run(tmp_path / "run")
    assert run.status == "ended" and [row["step"] for row in run.rows] == list(range(0, 65, 16))
    assert f"{100 * run.last['val/ece']:.2f}" == ece[0][1]


def test_watch_refuses_what_is_no_group():
    with pytest.raises(ValueError, match='processes must be "all"'):
        Watch(nn.Linear(2, 2), None, (torch.zeros(2, 2), torch.tensor([0, 1])), processes=2)


# -- what does not go ---------------------------------------------------------------------------


def test_what_cannot_train_on_shares_says_so(group):
    count, _, processes = group
    for rank in range(count):
        said = json.loads((processes.out / f"said{rank}.json").read_text())
        assert said["gamma_net"].startswith("GammaNet learns from the gradient of the whole batch")
        assert said["gamma_net"].endswith("give --exact")
        assert said["ensemble"] == "BatchEnsemble trains in one process: leave torchrun out"
        assert f"a batch of 7 cannot be cut into {count} equal shares" in said["uneven"]


def test_settings_that_exclude_each_other():
    two = Processes(0, 2)
    with pytest.raises(
        ValueError, match="sync_batchnorm does not work with exact=True: leave one out"
    ):
        build_engine(nn.Linear(2, 2), Runtime("cpu", exact=True, sync_batchnorm=True), two)
    assert type(build_engine(nn.Linear(2, 2), Runtime("cpu", exact=True), Processes())) is Engine


def test_shares_are_equal_parts_in_order():
    data = data_of(configs(EQUAL)["sgd"])
    whole = Batches(data, 12, seed=0).draw(5)
    shares = [Batches(data, 12, 0, Processes(rank, 3), in_shares=True).draw(5) for rank in range(3)]
    for number in range(3):
        assert torch.equal(torch.cat([share[number] for share in shares]), whole[number])
    with pytest.raises(ValueError, match="multiple of 4, or --exact"):
        check_shares(6, 4)


@pytest.mark.parametrize(
    ("word", "answer"),
    [("ce", True), ("focal", True), ("cpc", True), ("mmce", False), ("mdca:base=focal", False)],
)
def test_losses_of_examples_and_of_batches_are_told_apart(word, answer):
    assert is_mean_over_examples(parse("loss", word).build()) is answer


def test_weighted_and_unknown_losses_see_the_whole_batch():
    class Own(nn.Module):
        pass

    assert not is_mean_over_examples(nn.CrossEntropyLoss(torch.ones(3)))
    assert not is_mean_over_examples(Own())
    sum_of_both = parse("loss", "focal").build() + 0.5 * parse("loss", "mmce").build().alone
    assert not is_mean_over_examples(sum_of_both)


def test_synced_layers_keep_their_parameters_and_evaluate_as_before():
    model = normed_network().double()
    names, x = list(model.state_dict()), torch.randn(6, 64, dtype=torch.float64)
    wanted = model(x)
    copy = normed_network().double()
    sync_batch_norm(copy, Processes())
    assert isinstance(copy[2], HostSyncBatchNorm) and list(copy.state_dict()) == names
    assert torch.allclose(copy(x), wanted, atol=1e-12)
    assert torch.allclose(copy.eval()(x), model.eval()(x), atol=1e-12)
    with pytest.raises(ValueError, match="2 dimensions"):
        copy[2](torch.zeros(3))


# -- a lost process -------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_of_four_is_killed_and_two_finish(four, alone):
    """The others say so; the run goes on from its checkpoint with another number of processes."""
    assert four.codes[-1] == -9 and all(four.codes[:-1])
    for rank, said in enumerate(four.said[:-1]):
        assert f"process {rank} of 4 ends" in said and "Repeat the command" in said
    interrupted = Run(four.out / LOST.name)
    assert interrupted.status == "failed" and 0 < interrupted.outcome["step"] < LOST.steps

    with Group(2, "ddp_shares.py", four.out, "finish") as pair:
        assert pair.done().codes == [0, 0], pair.said
    finished = Run(four.out / LOST.name)
    assert finished.environment["processes"] == 4
    assert finished.environment["resumed"][0]["processes"] == 2
    close(finished, train(LOST, alone / "ddp", CPU), 1e-6)
