"""A process that works numbers out: the same numbers, whatever becomes of it."""

import operator
import os
import sys
from functools import partial

import pytest
import torch

from toosure.watch.helper import Helper, helped
from toosure.watch.later import Later
from toosure.watch.split import Look, numbers_of
from waiting import LIMIT, wait_until


def waited_for(helper):
    wait_until(lambda: helper.ready, helper.process)
    return helper


@pytest.fixture(scope="module")
def helper():
    found = waited_for(Helper())
    yield found
    found.process.kill()
    found.process.communicate()


def look():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(500, 10, generator=generator)
    return Look(logits, torch.arange(500) % 10, {"loss": 1.5, "gn_sharpness_unconverged": True})


def test_numbers_are_those_found_here(helper):
    work = partial(numbers_of, look(), "val", 15, True)
    found, expected = helper(work), work()
    assert list(found) == list(expected) and found == pytest.approx(expected, rel=1e-12)
    assert found["val/gn_sharpness_unconverged"] is True


def test_it_is_another_process(helper):
    assert helper(os.getpid) == helper.process.pid != os.getpid()


def test_what_it_raises_is_raised_here(helper, capfd):
    with pytest.raises(ZeroDivisionError):
        helper(partial(operator.truediv, 1, 0))
    helper(partial(print, "not an answer"))
    assert helper(partial(operator.add, 1, 2)) == 3


def test_before_it_is_ready_and_after_it_is_gone_we_work_here(tmp_path, monkeypatch):
    never_ready = tmp_path / "python"
    never_ready.write_text("#!/bin/sh\nexec sleep 3600\n")
    never_ready.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(never_ready))
    young, calls = Helper(), []
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
    """End the process, if it is a helper."""
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
    doomed = waited_for(Helper())
    assert doomed(partial(work, os.getpid())) == "here"
    assert doomed(os.getpid) == os.getpid() and not doomed.ready
    doomed.process.communicate()


def test_what_cannot_be_sent_is_worked_out_here():
    """Such as logits that are still on a device."""
    other = waited_for(Helper())
    there = torch.zeros(3, device="meta")
    assert other(partial(operator.attrgetter("shape"), there)) == (3,)
    other.process.communicate()


def test_it_ends_with_its_input(helper):
    other = Helper()
    other.process.stdin.close()
    assert other.process.wait(LIMIT) == 0
    other.process.stdout.close()


def test_without_helpers_work_is_done_here(monkeypatch):
    monkeypatch.setattr("toosure.watch.later.start", None)  # none is started
    assert helped(os.getpid) == os.getpid()
    later = Later(aside=True)
    assert later.begin(os.getpid)() == os.getpid()
    later.close()


def test_where_no_process_can_be_started_work_is_done_here(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    later = Later(aside=True, helpers=True)
    assert later.begin(os.getpid)() == os.getpid()
    later.close()
