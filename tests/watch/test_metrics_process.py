"""A process that computes metrics: the same numbers, whatever becomes of it."""

import operator
import os
import sys
from functools import partial

import pytest
import torch

from toosure.quantities import QUANTITIES
from toosure.watch.background import Background
from toosure.watch.metrics_process import MetricsProcess, in_a_process
from toosure.watch.split import Observation
from waiting import LIMIT, wait_until

pytestmark = pytest.mark.xdist_group("metrics process")  # workers of pytest share it


def waited_for(process):
    wait_until(lambda: process.ready, process.process)
    return process


@pytest.fixture(scope="module")
def beside():
    process = waited_for(MetricsProcess())
    yield process
    process.process.kill()
    process.process.communicate()


def observation():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(500, 10, generator=generator)
    numbers = {"loss": 1.5, "gn_sharpness_unconverged": True}
    quantities = [QUANTITIES[key] for key in ("ece", "nll", "margin_q01")]
    return Observation("val", logits, torch.arange(500) % 10, numbers, quantities, 15, True)


def test_numbers_are_those_found_here(beside):
    work = observation().row_values
    values, expected = beside(work), work()
    assert list(values) == list(expected) and values == pytest.approx(expected, rel=1e-12)
    assert values["val/gn_sharpness_unconverged"] is True


def test_it_is_another_process(beside):
    assert beside(os.getpid) == beside.process.pid != os.getpid()


def test_what_it_raises_is_raised_here(beside, capfd):
    with pytest.raises(ZeroDivisionError):
        beside(partial(operator.truediv, 1, 0))
    beside(partial(print, "not an answer"))
    assert beside(partial(operator.add, 1, 2)) == 3


def test_before_it_is_ready_and_after_it_is_gone_we_work_here(tmp_path, monkeypatch):
    never_ready = tmp_path / "python"
    never_ready.write_text("#!/bin/sh\nexec sleep 3600\n")
    never_ready.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(never_ready))
    young, calls = MetricsProcess(), []
    assert young(os.getpid) == os.getpid()

    def fail():
        calls.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        young(fail)
    assert calls == [1]  # once
    young.process.kill()
    young.process.wait()
    assert young(os.getpid) == os.getpid()
    young.process.communicate()


def gone(parent):
    """End the process, if it is one beside the test's."""
    if os.getpid() != parent:
        os._exit(1)
    return "here"


class Unreadable(Exception):
    """An error that can be written down and not read again."""

    def __init__(self, one, two):
        super().__init__(one)


def unreadable(parent):
    if os.getpid() != parent:
        raise Unreadable(1, 2)
    return "here"


@pytest.mark.parametrize("work", [gone, unreadable])
def test_one_that_fails_at_work_is_replaced_by_us(work):
    doomed = waited_for(MetricsProcess())
    assert doomed(partial(work, os.getpid())) == "here"
    assert doomed(os.getpid) == os.getpid() and not doomed.ready
    doomed.process.communicate()


def test_what_cannot_be_sent_is_worked_out_here():
    """Such as logits that are still on a device."""
    other = waited_for(MetricsProcess())
    there = torch.zeros(3, device="meta")
    assert other(partial(operator.attrgetter("shape"), there)) == (3,)
    other.process.communicate()


def test_it_ends_with_its_input(beside):
    other = MetricsProcess()
    other.process.stdin.close()
    assert other.process.wait(LIMIT) == 0
    other.process.stdout.close()


def test_without_processes_work_is_done_here(monkeypatch):
    monkeypatch.setattr("toosure.watch.background.start_processes", None)  # none is started
    assert in_a_process(os.getpid) == os.getpid()
    background = Background(processes=False)
    assert background.submit(os.getpid)() == os.getpid()
    background.close()


def test_where_no_process_can_be_started_work_is_done_here(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    background = Background(processes=True)
    assert background.submit(os.getpid)() == os.getpid()
    background.close()
