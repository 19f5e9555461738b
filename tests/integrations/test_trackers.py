"""Rows in TensorBoard, read back from its event files; what all trackers share."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from toosure import Watch
from toosure.cli import app
from toosure.figures import Bins
from toosure.integrations import tensorboard
from toosure.integrations.diagram_image import diagram_image
from toosure.integrations.row_sender import Names, RowSender, numbers_of
from toosure.runs import Run, RunWriter

pytest.importorskip("tensorboard")

ODD = "train/slack 4.1 (i)"


def watched(folder, notify=None, steps=3):
    """Train a tiny network under a watch that keeps rows and snapshots in a folder."""
    x, y = torch.randn(24, 4), torch.arange(24) % 3
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = {"train": (x, y), "val": (x[:12], y[:12])}
    with Watch(
        model, nn.CrossEntropyLoss(), **data, run=folder, every=1, measure=(), notify=notify
    ) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            watch.step(**{ODD: -0.25, "flag": True, "note": "text"})
    return Run(folder)


def made(folder, rows):
    with RunWriter(folder, {"optimizer": "sgd:lr=0.1", "seed": 0}) as writer:
        for row in rows:
            writer.append(row)
        writer.set_status("complete", rows[-1]["step"])
    return Run(folder)


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0}).Reload()


def scalars(folder, prefix=""):
    """The rows that an event file holds, by step."""
    read = events(folder)
    rows: dict[int, dict[str, float]] = {}
    for tag in read.Tags()["scalars"]:
        points = read.Scalars(tag)
        assert len({point.step for point in points}) == len(points), f"{tag}: a step twice"
        for point in points:
            rows.setdefault(point.step, {})[tag.removeprefix(prefix)] = point.value
    return rows


def expected(run):
    return {row["step"]: pytest.approx(numbers_of(row), rel=1e-6) for row in run.rows}


def test_live_rows_and_diagrams_are_those_of_the_folder(tmp_path):
    with tensorboard.rows_to(tmp_path / "tb", run=tmp_path / "run") as rows:
        run = watched(tmp_path / "run", rows)
    assert scalars(tmp_path / "tb") == expected(run)
    assert scalars(tmp_path / "tb")[2][ODD] == -0.25 and scalars(tmp_path / "tb")[2]["flag"] == 1

    points = events(tmp_path / "tb").Scalars("val/ece")  # their clock is that of the rows
    seconds = [row["seconds"] for row in run.rows]
    passed = points[3].wall_time - points[0].wall_time  # seconds since 1970: known to 2.4e-7
    assert passed == pytest.approx(seconds[3] - seconds[0], abs=1e-6)

    # The snapshot of the last row is written after it: closing sends its diagram.
    images = events(tmp_path / "tb").Images("val/reliability")
    assert [image.step for image in images] == run.snapshots and run.snapshots[-1] == 3
    assert images[0].encoded_image_string.startswith(b"\x89PNG")


def test_a_writer_of_the_users_own_keeps_its_tags_apart(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "tb") as writer:
        writer.add_scalar("val/ece", 7.0, 0)
        run = watched(tmp_path / "run", tensorboard.rows_to(writer))
    read = scalars(tmp_path / "tb")
    assert read[0].pop("val/ece") == 7.0
    assert scalars(tmp_path / "tb", "toosure/")[2]["val/ece"] == pytest.approx(
        run.rows[2]["val/ece"], rel=1e-6
    )
    assert all(tag.startswith("toosure/") for row in read.values() for tag in row)


def test_rows_out_of_order_and_again_are_each_there_once(tmp_path):
    with tensorboard.rows_to(tmp_path) as rows:
        for step in (0, 10, 5, 20, 15):
            rows({"step": step, "val/ece": step / 100})
    with tensorboard.rows_to(tmp_path) as rows:  # resumed from a checkpoint at step 12
        for step in (15, 20, 25):
            rows({"step": step, "val/ece": step / 50})
    values = {0: 0, 5: 0.05, 10: 0.1, 15: 0.3, 20: 0.4, 25: 0.5}
    assert scalars(tmp_path) == {s: {"val/ece": pytest.approx(v)} for s, v in values.items()}


FAST_LOADER = """
import sys, time
from tensorboard.context import RequestContext
from tensorboard.data.server_ingester import SubprocessServerDataIngester, get_server_binary
from tensorboard.util.grpc_util import ChannelCredsType

ingester = SubprocessServerDataIngester(
    server_binary=get_server_binary(), logdir=sys.argv[1], reload_interval=1,
    channel_creds_type=ChannelCredsType.LOCAL,
)
ingester.start()
steps = []
while 20 not in steps:
    runs = ingester.data_provider.read_scalars(
        RequestContext(), experiment_id="", plugin_name="scalars", downsample=100
    )
    steps = [point.step for point in runs.get("run", {}).get("val/ece", [])]
    time.sleep(0.1)
print(steps)
"""


def test_the_fast_loader_of_tensorboard_shows_rows_out_of_order(tmp_path):
    """TensorBoard's default loader drops later steps when an earlier one comes."""
    with tensorboard.rows_to(tmp_path / "run") as rows:
        for step in (0, 10, 5, 20):
            rows({"step": step, "val/ece": step / 100})
    command = [sys.executable, "-c", FAST_LOADER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "[0, 5, 10, 20]"


def test_export_command(tmp_path):
    rows = [{"step": 4, "val/ece": 0.3}, {"step": 2, "val/ece": None, ODD: 1, "n": "a"}]
    runs = {"a": made(tmp_path / "runs/group/a", rows), "b": watched(tmp_path / "runs/b")}
    for _ in range(2):  # repeated, it replaces what was written
        words = ["runs", "export", "--out", tmp_path / "runs", "--to", "tensorboard"]
        done = CliRunner().invoke(app, [*map(str, words), "--target", str(tmp_path / "tb")])
        assert done.exit_code == 0, done.output
        assert "6 rows of 2 runs: tensorboard" in done.stdout
    assert scalars(tmp_path / "tb/b") == expected(runs["b"])
    assert scalars(tmp_path / "tb/group/a") == {2: {ODD: 1}, 4: {"val/ece": pytest.approx(0.3)}}
    images = events(tmp_path / "tb/b").Images("train/reliability")
    assert [image.step for image in images] == runs["b"].snapshots


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "csv", "--parquet", "a.parquet"], "name one file or tracker"),
        (["--csv", "a.csv", "--target", "b.csv"], "give both"),
        (["--to", "csv", "--target", "a.txt"], "must end in .csv"),
        (["--to", "excel"], "excel"),
        (["--to", "tensorboard", "--where", "seed=5"], "no rows"),
    ],
)
def test_export_that_cannot_be(tmp_path, words, said):
    made(tmp_path / "a", [{"step": 0}])
    done = CliRunner().invoke(app, ["runs", "export", "--out", str(tmp_path), *words])
    assert done.exit_code == 2 and said in done.stderr


def test_export_names_the_extra_of_a_missing_package(tmp_path, monkeypatch):
    made(tmp_path / "a", [{"step": 0, "lr": 1}])
    for name in ("tensorboard", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
        done = CliRunner().invoke(app, ["runs", "export", "--out", str(tmp_path), "--to", name])
        assert done.exit_code == 2 and f"pip install 'toosure[{name}]'" in done.stderr


class Broken(RowSender):
    def send_numbers(self, step, numbers):
        raise ConnectionError("the tracker is away")


def test_an_error_of_a_tracker_does_not_stop_training(tmp_path):
    with pytest.warns(UserWarning, match=r"the tracker is away.*runs export") as said:
        run = watched(tmp_path / "run", Broken())
    assert len(said) == 1 and run.status == "ended" and run.count == 4
    with pytest.raises(ConnectionError):
        Broken(strict=True)({"step": 0})


def test_only_the_first_process_sends(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "1")
    Broken(strict=True)({"step": 0})
    with tensorboard.rows_to(tmp_path / "tb") as rows:
        rows({"step": 0, "val/ece": 1.0})
    assert not (tmp_path / "tb").exists()


def test_names_that_a_tracker_takes():
    names = Names(r"[^\w/. -]", longest=40)
    keys = [ODD, "train/slack 4.1 i", "a@b", "a#b", "../x", "//y", "((", "é" + "z" * 50]
    made_names = [names[key] for key in keys]
    assert len(set(made_names)) == len(keys)
    assert made_names[:6] == ["train/slack 4.1 i", "train/slack 4.1 i_2", "a_b", "a_b_2", "x", "y"]
    assert made_names[6] == "unnamed" and len(made_names[7]) == 40
    assert [names[key] for key in keys] == made_names


def test_the_image_shows_who_is_too_sure():
    """A bin that claims 80 % and is right in 40 % is an orange mark at that place."""
    bins = Bins(
        edges=np.array([0.0, 0.5, 1.0]),
        counts=np.array([0, 10]),
        accuracy=np.array([np.nan, 0.4]),
        confidence=np.array([np.nan, 0.8]),
        interval=np.array([[np.nan, np.nan], [0.2, 0.6]]),
    )
    pixels = np.asarray(diagram_image(bins)).astype(int)
    orange = np.abs(pixels - [0xD5, 0x5E, 0x00]).sum(2) < 30
    rows, columns = np.nonzero(orange)
    left, right, top, bottom = 92 / 2, 360 - 24 / 2, 56 / 2, 360 - 84 / 2
    assert columns.mean() == pytest.approx(left + 0.8 * (right - left), abs=1)
    assert rows.mean() == pytest.approx(bottom - 0.4 * (bottom - top), abs=1)
    empty = bins._replace(counts=np.array([0, 0]))
    assert not (
        np.abs(np.asarray(diagram_image(empty)).astype(int) - [0xD5, 0x5E, 0]).sum(2) < 30
    ).any()


def test_parquet_of_mixed_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    mixed = [1.5, "high", None, True, 3, 2**70, [1, 2]]
    rows = [
        {"step": i, "mixed": v, "whole": i, "big": 2**70, "t": "a"} for i, v in enumerate(mixed)
    ]
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "config.json").write_text('{"clip": null, "at": [1, 2]}')

    words = [
        "runs",
        "export",
        "--out",
        tmp_path,
        "--to",
        "parquet",
        "--target",
        tmp_path / "a.parquet",
    ]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert table["whole"] == [row["whole"] for row in rows] and table["t"] == ["a"] * len(rows)
    assert table["mixed"] == [1.5, None, None, 1, 3, 2.0**70, None]
    assert table["mixed/text"] == [None, "high", None, None, None, None, "[1, 2]"]
    assert table["big"][0] == 2.0**70 and table["config/clip"][0] is None
