"""Rows in W&B and MLflow, read back from the `.wandb` file and from sqlite."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_trackers import ODD, made, watched
from typer.testing import CliRunner

from toosure.integrations.row_sender import numbers_of

pytestmark = pytest.mark.slow
needs_wandb = pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="no wandb")
needs_mlflow = pytest.mark.skipif(not importlib.util.find_spec("mlflow"), reason="no mlflow")
BLOCK = 32768

OUT_OF_ORDER = """
import wandb
from toosure.integrations.wandb import rows_to

with wandb.init(project="toosure", mode="offline") as run:
    run.log({"mine": 1}, step=100)
    with rows_to(run) as rows:
        for step in (0, 10, 5):
            rows({"step": step, "val/ece": step / 100, "train/slack 4.1 (i)": -0.5})
"""


def history(folder):
    """The rows of the `.wandb` files below a folder: LevelDB records in blocks, of protobuf."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for file in folder.rglob("*.wandb"):
        for record in records(file.read_bytes()):
            message = Record.FromString(record)
            if message.WhichOneof("record_type") == "history":
                items = message.history.item
                rows.append(
                    {
                        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                        for item in items
                    }
                )
    return rows


def records(data):
    """Join the parts of each record: a header of 7 bytes says how long one is, and of what type."""
    whole = b""
    place = 7  # after the file's own header
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:  # the rest of a block is empty
            place += BLOCK - place % BLOCK
            continue
        length = int.from_bytes(data[place + 4 : place + 6], "little")
        kind = data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield whole
            whole = b""


def in_process(folder, *command):
    """Run Python elsewhere: a `.wandb` file is whole only after its process has ended."""
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@needs_wandb
def test_wandb_keeps_rows_out_of_order(tmp_path):
    in_process(tmp_path, "-c", OUT_OF_ORDER)
    rows = [row for row in history(tmp_path) if "toosure/step" in row]
    assert [row["toosure/step"] for row in rows] == [0, 10, 5]
    assert [row["toosure/val/ece"] for row in rows] == [0, 0.1, 0.05]
    assert all(row["toosure/train/slack_4_1_i"] == -0.5 for row in rows)


@needs_wandb
def test_wandb_export(tmp_path):
    run = watched(tmp_path / "runs/b")
    said = in_process(tmp_path, "-m", "toosure", "runs", "export", "--to", "wandb")
    assert f"{run.count} rows of 1 runs: wandb" in said

    rows = history(tmp_path)
    sent = {row["step"]: row for row in rows if "val/ece" in row}
    names = {ODD: "train/slack_4_1_i"}
    for row in run.rows:
        values = {names.get(key, key): value for key, value in numbers_of(row).items()}
        assert {key: sent[row["step"]][key] for key in values} == values
    assert len(sent) == run.count
    assert [r["step"] for r in rows if any("val/reliability" in key for key in r)] == run.snapshots
    assert len(list(tmp_path.rglob("media/images/val/*.png"))) == len(run.snapshots)


@needs_mlflow
def test_mlflow_live_and_export(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    in_process(tmp_path, "-c", MLFLOW_LIVE, str(Path(__file__).parent))
    for count in (4, 0):  # repeated, it adds what is new: nothing
        said = in_process(tmp_path, "-m", "toosure", "runs", "export", "--to", "mlflow")
        assert f"{count} rows of 1 runs" in said
    in_process(tmp_path, "-c", MLFLOW_READ)


MLFLOW_LIVE = """
import sys; sys.path.insert(0, sys.argv[1])
from mlflow import MlflowClient
from test_trackers import watched
from toosure.integrations.mlflow import rows_to

client = MlflowClient("sqlite:///mlflow.db")
run = client.create_run("0")
with rows_to(client, run.info.run_id, run="runs/b") as rows:
    watched("runs/b", rows)
    rows({"step": 1, "late": 7.0})
"""

MLFLOW_READ = """
from mlflow import MlflowClient
from toosure.integrations.row_sender import numbers_of
from toosure.runs import Run

run = Run("runs/b")
client = MlflowClient("sqlite:///mlflow.db")
names = {"train/slack 4.1 (i)": "train/slack 4.1 i"}
exported = client.get_experiment_by_name("toosure").experiment_id
for experiment, prefix in (("0", "toosure/"), (exported, "")):
    (found,) = client.search_runs([experiment])
    number = found.info.run_id
    for key in run.columns:
        expected = [(r["step"], numbers_of(r)[key]) for r in run.rows if key in numbers_of(r)]
        name = prefix + names.get(key, key)
        history = client.get_metric_history(number, name) if expected else []
        assert sorted((m.step, m.value) for m in history) == expected, key
    files = [f.path for f in client.list_artifacts(number, "reliability")]
    assert len(files) == 2 * len(run.snapshots), files
    if experiment == exported:
        assert found.info.status == "FINISHED" and found.data.tags["toosure.rows"] == "4"
    else:
        (late,) = client.get_metric_history(number, "toosure/late")
        assert (late.step, late.value) == (1, 7.0)
"""


@needs_mlflow
def test_mlflow_that_cannot_be_reached(tmp_path, monkeypatch):
    from toosure.cli import app

    made(tmp_path / "a", [{"step": 0, "lr": 0.1}])
    words = ["runs", "export", "--out", str(tmp_path), "--to", "mlflow", "--target", "nowhere://x"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "MLflow at nowhere://x" in done.stderr
