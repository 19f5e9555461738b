"""Streaming twins: chunks equal the whole, small states, two processes merge."""

import json
import math
import os

import pytest
import torch
import torch.multiprocessing as multiprocessing
from torch import distributed
from torchmetrics import MetricCollection

from toosure import metrics
from toosure.metrics import confidence as chunks
from toosure.metrics import streaming
from waiting import wait_until


def rows(n=1000, classes=7, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits.to(dtype), torch.randint(classes, (n,), generator=generator)


TWINS = {
    "ece": (lambda: streaming.ECE(), metrics.ece, {}),
    "ece left": (lambda: streaming.ECE(edge="left"), metrics.ece, {"edge": "left"}),
    "rmsce": (lambda: streaming.ECE(norm=2), metrics.rmsce, {}),
    "mce": (lambda: streaming.MCE(), metrics.mce, {}),
    "classwise": (lambda: streaming.ClasswiseECE(7), metrics.classwise_ece, {}),
    "classwise sum": (
        lambda: streaming.ClasswiseECE(7, 14, "left", reduction="sum"),
        metrics.classwise_ece,
        {"bins": 14, "edge": "left", "reduction": "sum"},
    ),
    "nll": (lambda: streaming.NLL(), metrics.nll, {}),
    "brier": (lambda: streaming.Brier(), metrics.brier, {}),
    "accuracy": (lambda: streaming.Accuracy(), metrics.accuracy, {}),
}


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_chunks_equal_the_whole(name, dtype):
    make, pure, options = TWINS[name]
    logits, labels = rows(dtype=dtype)
    metric = make()
    for part in torch.randperm(1000, generator=torch.Generator().manual_seed(1)).split(37):
        metric.update(logits[part], labels[part])
    assert abs(float(metric.compute()) - float(pure(logits, labels, **options))) < 1e-12
    metric.reset()
    metric.update(logits[:9], labels[:9])
    assert abs(float(metric.compute()) - float(pure(logits[:9], labels[:9], **options))) < 1e-12


def test_a_collection_keeps_metrics_apart_whose_first_sums_are_alike():
    """torchmetrics merges metrics with equal states after the first batch."""
    names = ("nll", "brier", "accuracy", "ece", "ece left", "classwise", "classwise left")
    twins = TWINS | {
        "classwise left": (
            lambda: streaming.ClasswiseECE(7, edge="left"),
            metrics.classwise_ece,
            {"edge": "left"},
        )
    }
    collection = MetricCollection({name: twins[name][0]() for name in names})

    sure = 40 * torch.eye(7)[:4]  # NLL and Brier score are 0 to float32
    even = torch.tensor([[0.2] * 5 + [0.0] * 2]).log()  # 1/5 is an edge
    parts = [(sure, torch.arange(4)), rows(dtype=torch.float32), (even, torch.tensor([0]))]
    for part in parts:
        collection.update(*part)

    logits, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    for name, value in collection.compute().items():
        _, pure, options = twins[name]
        assert abs(float(value) - float(pure(logits, labels, **options))) < 1e-6, name


def test_table_of_chunks():
    logits, labels = rows()
    table = streaming.ReliabilityTable(bins=10)
    for part in torch.arange(1000).split(99):
        table.update(logits[part], labels[part])
    for ours, expected in zip(
        table.compute(), metrics.reliability(logits, labels, bins=10), strict=True
    ):
        assert torch.allclose(ours, expected, rtol=0, atol=1e-12, equal_nan=True)


def levels_of_distinct_cells():
    """Confidences from 0.01 to 1 - 1e-6, each 0.001 or 1.5 % of c or 1 - c from the last."""
    levels = [0.01]
    while levels[-1] < 1 - 1e-6:
        c = levels[-1]
        levels.append(c + min(0.00101, 0.0151 * c, 0.0151 * (1 - c)))
    return torch.tensor(levels, dtype=torch.float64)


def test_adaptive_is_exact_for_confidences_of_distinct_cells():
    levels, generator = levels_of_distinct_cells(), torch.Generator().manual_seed(0)
    cell = streaming.AdaptiveECE().cell(levels)
    assert (cell.diff() > 0).all() and cell[0] > 0 and cell[-1] < streaming.AdaptiveECE.cells - 1
    confidence = levels[torch.randint(len(levels), (3000,), generator=generator)]
    correct = torch.rand(3000, generator=generator) < 1 - confidence  # gaps of both signs in turn
    metric = streaming.AdaptiveECE()
    for part in torch.arange(3000).split(77):
        metric.take(confidence[part], correct[part])
    metric._update_count = 1
    expected = metrics.adaptive_ece_from_confidence(confidence, correct)
    assert float(metric.compute()) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize(("classes", "scale"), [(7, 3), (100, 0.3), (10, 0.2), (1000, 0.3), (2, 1)])
def test_adaptive_is_near_the_exact_one(classes, scale):
    generator = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(20000, classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    metric = streaming.AdaptiveECE()
    metric.update(logits, labels)
    exact = float(metrics.adaptive_ece(logits, labels))
    assert float(metric.compute()) == pytest.approx(exact, abs=1e-3)  # a cell an edge, by chance


def state_bytes(metric):
    return sum(getattr(metric, name).nbytes for name in metric._defaults)


def test_states_are_small():
    assert state_bytes(streaming.ECE()) < 4 * 1024
    assert state_bytes(streaming.ClasswiseECE(1000)) < 512 * 1024
    assert state_bytes(streaming.AdaptiveECE()) < 64 * 1024


def test_forward_gives_the_batch_and_keeps_the_sum():
    logits, labels = rows()
    metric = streaming.ECE()
    first = metric(logits[:500], labels[:500])
    assert float(first) == pytest.approx(float(metrics.ece(logits[:500], labels[:500])), abs=1e-12)
    metric(logits[500:], labels[500:])
    assert float(metric.compute()) == pytest.approx(float(metrics.ece(logits, labels)), abs=1e-12)


def test_state_dict_round_trip():
    logits, labels = rows()
    metric, other = streaming.ClasswiseECE(7), streaming.ClasswiseECE(7)
    metric.persistent(True), other.persistent(True)
    metric.update(logits, labels)
    other.load_state_dict(metric.state_dict())
    other._update_count = 1  # torchmetrics counts updates outside the state
    assert other.compute() == metric.compute()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: streaming.ECE(bins=-1), "bins must be"),
        (lambda: streaming.ECE(norm=3), "norm must be"),
        (lambda: streaming.ClasswiseECE(3).update(*rows()), "expected 3 classes; got 7"),
        (
            lambda: streaming.NLL().update(torch.tensor([[math.nan, 0.0]]), torch.tensor([0])),
            "fini",
        ),
    ],
)
def test_wrong_use_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("make", [streaming.NLL, streaming.Brier, streaming.Accuracy])
def test_a_refused_batch_leaves_no_trace(make, monkeypatch):
    monkeypatch.setattr(chunks, "_CHUNK_ON_CPU", 7 * 100)  # the fault lies in the last of ten
    logits, labels = rows()
    metric = make()
    metric.update(logits[:100], labels[:100])
    before = metric.compute()
    broken = logits.clone()
    broken[990, 3] = math.nan
    with pytest.raises(ValueError, match="row 990 of 1000"):
        metric.update(broken, labels)
    metric._computed = None
    assert metric.compute() == before
    metric.reset()
    metric.update(logits, labels)  # in ten chunks
    pure = getattr(metrics, make.__name__.lower())
    assert float(metric.compute()) == pytest.approx(float(pure(logits, labels)), abs=1e-12)


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning")
@pytest.mark.parametrize("metric", [streaming.ECE, streaming.NLL])
def test_compute_before_update_is_named(metric):
    with pytest.raises(ValueError, match="has seen no rows"):
        metric().compute()


def one_of_two(rank, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    logits, labels = rows()
    mine = slice(0, 300) if rank == 0 else slice(300, None)  # uneven on purpose
    values = {}
    for name, (make, _, _) in {**TWINS, "adaptive": (streaming.AdaptiveECE, None, {})}.items():
        metric = make()
        metric.update(logits[mine], labels[mine])
        values[name] = float(metric.compute())
    distributed.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(values))


@pytest.mark.slow
def test_two_processes_merge(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=one_of_two, args=(rank, tmp_path), daemon=True) for rank in (0, 1)
    ]
    for worker in workers:
        worker.start()

    def codes():
        return [worker.exitcode for worker in workers]

    wait_until(lambda: None not in codes() or any(codes()))
    assert codes() == [0, 0]
    answers = {rank: json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)}
    logits, labels = rows()
    whole = streaming.AdaptiveECE()
    whole.update(logits, labels)
    for values in answers.values():
        assert abs(values["adaptive"] - float(whole.compute())) < 1e-12
        for name, (_, pure, options) in TWINS.items():
            assert abs(values[name] - float(pure(logits, labels, **options))) < 1e-12
