"""What a newcomer adds by one entry or one line is found everywhere it should be."""

import json
from html import unescape

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from toosure import Watch
from toosure.cli import app
from toosure.page.live import make_app
from toosure.page.report import report
from toosure.page.sections import SECTIONS, Section
from toosure.quantities import QUANTITIES, Quantity, register

SETTINGS = ["--data", "digits:train=60,val=40,test=40", "--model", "mlp:width=8", "--steps", "4"]
SETTINGS += ["--batch", "20", "--every", "2", "--measure", "none", "--device", "cpu"]


def share_unsure(confidence: torch.Tensor, below: float) -> torch.Tensor:
    """A made-up quantity: how many examples the model is not sure of."""
    return (confidence < below).double().mean()


@pytest.fixture
def made_up_quantity(monkeypatch):
    monkeypatch.setattr("toosure.quantities.quantity.QUANTITIES", QUANTITIES)
    register(
        Quantity(
            "unsure",
            "unsure share",
            "share of examples below a confidence of 0.9",
            unit="%",
            scale=100,
            better="lower",
            compute="test_extending:share_unsure",
            takes=("confidence",),
            options={"below": 0.9},
            shown={"table": 9, "panel": 90, "progress": 9},
            group="Scores",
        )
    )
    yield QUANTITIES["unsure"]
    del QUANTITIES["unsure"]


def live_client(folder):
    testing = pytest.importorskip("starlette.testclient")
    return testing.TestClient(make_app(folder), base_url="http://127.0.0.1")


def run_command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_quantity_by_one_entry(made_up_quantity, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    out = run_command("train", *SETTINGS, "--optimizer", "sgd:lr=0.1", "sgd:lr=0.5", "--out", runs)
    assert "unsure share" in out  # the progress line

    folder = next(path.parent for path in runs.glob("*/metrics.jsonl"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(0 <= row["val/unsure"] <= 1 and "train/unsure" in row for row in rows)

    monkeypatch.setenv("COLUMNS", "200")
    assert "unsure" in run_command("runs", "--out", runs).splitlines()[0]

    page = report(runs)
    assert ">unsure share, %<" in page  # a column of the comparison
    meaning = 'data-tip="share of examples below a confidence of 0.9"'
    name = (
        f'<h3><a class="term" href="#term-unsure" {meaning}>Unsure share</a>, <small>%</small></h3>'
    )
    assert name in page

    evaluated = json.loads(run_command("evaluate", folder, "--split", "val", "--json"))
    assert evaluated["unsure"] == pytest.approx(rows[-1]["val/unsure"], abs=1e-9)

    client = live_client(runs)
    live = client.get("/").text
    assert ">unsure share, %<" in live and 'data-role="unsure"' in live
    cursors = {path.name: [0, 0] for path in runs.iterdir()}
    answer = client.post("/rows", json={"cursors": cursors}).json()
    assert all("val/unsure" in run["columns"] for run in answer["runs"].values())


def test_a_number_of_the_users_own_is_kept_and_shown(tmp_path, monkeypatch):
    data = torch.randn(30, 4), torch.arange(30) % 3
    net = nn.Linear(4, 3)
    runs = tmp_path / "runs"
    with Watch(
        net, nn.CrossEntropyLoss(), data, data, run=runs / "a", measure=(), every=1
    ) as watch:
        for step in range(3):
            watch.step(gradient_noise=0.25 * step)

    monkeypatch.setenv("COLUMNS", "200")
    assert "gradient_noise" in run_command("runs", "--out", runs).splitlines()[0]
    page = unescape(report(runs))
    assert ">Gradient noise</h3>" in page and 'data-role="gradient_noise"' in page
    assert '<button type="button">gradient noise</button>' in page


def test_a_section_by_one_line(tmp_path, monkeypatch):
    def count(page):
        return f'<section id="count"><p>{len(page.runs)} runs, counted</p></section>'

    monkeypatch.setattr("toosure.page.report.SECTIONS", [*SECTIONS, Section("count", count)])
    monkeypatch.setattr("toosure.page.live_answers.SECTIONS", [*SECTIONS, Section("count", count)])
    data = torch.randn(30, 4), torch.arange(30) % 3
    Watch(nn.Linear(4, 3), nn.CrossEntropyLoss(), data, run=tmp_path / "a", measure=()).close()
    assert "1 runs, counted" in report(tmp_path)
    client = live_client(tmp_path)
    assert "1 runs, counted" in client.get("/").text
    assert "1 runs, counted" in client.get("/sections").json()["html"]["count"]


class DoubledLoss(nn.CrossEntropyLoss):
    """Twice the cross-entropy: a made-up loss."""

    def forward(self, logits, labels):
        return 2 * super().forward(logits, labels)


class HalvedSGD(torch.optim.SGD):
    """Take half of each step: a made-up optimizer."""

    def __init__(self, params, lr: float = 0.1):
        super().__init__(params, lr=lr / 2)


def test_a_loss_and_an_optimizer_by_one_line(tmp_path, monkeypatch):
    import toosure.losses
    import toosure.optim

    monkeypatch.setitem(toosure.losses.LOSSES, "doubled", DoubledLoss)
    monkeypatch.setitem(toosure.optim.OPTIMIZERS, "halved", HalvedSGD)
    words = ["--loss", "doubled", "--optimizer", "halved:lr=0.2", "--out", tmp_path / "new"]
    run_command("train", *SETTINGS, *words)
    run_command("train", *SETTINGS, "--optimizer", "sgd:lr=0.2", "--out", tmp_path / "old")
    rows = []
    for name in ("new", "old"):
        (file,) = (tmp_path / name).glob("*/metrics.jsonl")
        rows.append(json.loads(file.read_text().splitlines()[-1]))
    assert rows[0]["val/nll"] == pytest.approx(rows[1]["val/nll"])
    assert rows[0]["val/loss"] == pytest.approx(2 * rows[1]["val/loss"])


def test_a_calibrator_by_one_line(tmp_path, monkeypatch):
    from toosure.posthoc import CALIBRATORS, Identity

    class Nothing(Identity):
        """Change nothing: a made-up calibrator."""

    monkeypatch.setitem(CALIBRATORS, "nothing", Nothing)
    generator = torch.Generator().manual_seed(0)
    lines = ["a,b,label"]
    for _ in range(80):
        p = float(torch.rand(1, generator=generator))
        lines.append(f"{p},{1 - p},{int(torch.rand(1, generator=generator) > p)}")
    (tmp_path / "val.csv").write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(
        app, ["calibrate", str(tmp_path / "val.csv"), "--kind", "probs", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert "nothing" in [trial["name"] for trial in json.loads(done.stdout)["trials"]]
