"""What is judged: the words of --shift, and which sets a run does not know."""

from dataclasses import asdict

import pytest

from toosure.data import CORRUPTIONS
from toosure.shifts.plan import FIFTEEN, ShiftPlan, plan_of, wants_all
from toosure.train import Runtime


def test_the_fifteen_are_the_first_of_all_corruptions():
    assert tuple(CORRUPTIONS)[:15] == FIFTEEN


def test_the_words_of_the_option():
    assert plan_of("all", ["noise", "noise"]) == ShiftPlan(ood=("noise",))
    twice = ShiftPlan(("fog", "fog"), (3, 3, 1))
    assert twice.corruptions == ("fog",) and twice.severities == (3, 1)
    assert plan_of("all:images=20,seed=3") == ShiftPlan(images=20, seed=3)
    assert wants_all(["all:images=20"]) and not wants_all(["fog:3", "none"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan_of("fog:3"), "judges every corruption; got 'fog:3'"),
        (lambda: plan_of("all:image=3"), "did you mean 'images'"),
        (lambda: plan_of("all:images=many"), "whole number; got 'many'"),
        (lambda: plan_of("all:images=1"), "at least 2; got 1"),
        (lambda: wants_all(["all", "fog:3"]), "give it alone"),
        (lambda: ShiftPlan(severities=(6,)), "from 1 to 5; got 6"),
        (lambda: ShiftPlan(corruptions=()), "at least one corruption"),
        (lambda: ShiftPlan(ood=("corrupted=a.npz",)), "'corrupted' is taken .* write NAME=a.npz"),
        (lambda: ShiftPlan(ood=("a=b.npz", "a=c.npz")), "'a' is given twice; write NAME=c.npz"),
        (lambda: ShiftPlan(ood=("imagefolder:a", "imagefolder:b")), "write NAME=imagefolder:b"),
        (lambda: ShiftPlan(ood=("=a.npz",)), "'' is empty"),
    ],
)
def test_wrong_words_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_run_is_not_judged_against_its_own_data():
    plan = ShiftPlan(ood=("cifar10", "cifar100:test=50", "cifar10-c", "noise"))
    assert plan.without("cifar10:augment=true").ood == ("cifar100:test=50", "noise")
    assert plan.without("cifar100").ood == ("cifar10", "cifar10-c", "noise")
    assert ShiftPlan(ood=("mine=cifar10:test=9", "b=cifar10.npz")).without("cifar10").ood == (
        "b=cifar10.npz",
    )


def test_the_plan_travels_with_the_runtime_to_other_processes():
    runtime = Runtime("cpu", shifts=ShiftPlan(("fog",), (3,), ("noise",), 5))
    assert Runtime(**asdict(runtime)) == runtime
