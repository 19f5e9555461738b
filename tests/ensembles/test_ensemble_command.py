"""`toosure ensemble`: finished runs averaged, judged, and shown with their members."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from toosure.cli import app
from toosure.config import RunConfig, sweep_of
from toosure.evaluate.ensemble import average_predictions
from toosure.page.report import report
from toosure.predictions import from_logits, read_predictions
from toosure.train import Runtime, train

CONFIG = {
    "data": ["digits:train=200,val=100,test=300"],
    "model": ["mlp:width=8"],
    "optimizer": ["adamw:lr=0.01"],
    "batch": [50],
    "steps": [30],
    "every": [30],
    "measure": [()],
    "average": ["ema:decay=0.9"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    configs = sweep_of(**CONFIG, seed=[0, 1, 2])
    return [train(config, folder, Runtime("cpu")) for config in configs]


def call(*arguments):
    return CliRunner().invoke(app, ["ensemble", *map(str, arguments)])


def test_finished_runs_become_one_prediction(runs, tmp_path):
    file, page = tmp_path / "mixture.npz", tmp_path / "page.html"
    paths = [run.path for run in runs]
    done = call(*paths, "-o", file, "--html", page)
    assert done.exit_code == 0, done.output
    assert "3 members with an NLL of" in done.output and "adds" in done.output
    assert all(run.name[-11:] in done.output for run in runs)  # seed and id

    logits = [np.load(path / "predictions.npz")["test_logits"] for path in paths]
    p = torch.from_numpy(np.stack(logits)).double().softmax(-1).mean(0)
    with np.load(file) as arrays:
        assert {"val_logits", "test_logits", "test_labels"} <= set(arrays.files)
        np.testing.assert_allclose(np.exp(arrays["test_logits"]), p, atol=1e-12)
    assert read_predictions(file, split="test").logits.shape == (300, 10)
    text = page.read_text()
    assert "Members and mixture" in text and "two members differ" in text


def test_json_holds_members_and_what_each_adds(runs):
    done = call(*(run.path for run in runs), "--json", "--split", "val")
    found = json.loads(done.stdout)
    assert [member["name"] for member in found["members"]] == [run.name for run in runs]
    assert 0 <= found["disagreement"] <= 1 and found["member_kl"] > 0

    logits = torch.stack(
        [torch.from_numpy(np.load(r.path / "predictions.npz")["val_logits"]) for r in runs]
    ).double()
    labels = torch.from_numpy(np.load(runs[0].path / "predictions.npz")["val_labels"])

    def mixture_nll(members):
        return torch.nn.functional.nll_loss(logits[members].softmax(-1).mean(0).log(), labels)

    wanted = mixture_nll([0, 2]) - mixture_nll([0, 1, 2])
    assert found["members"][1]["nll_gain"] == pytest.approx(float(wanted))


def test_averages_of_the_weights_can_be_members(runs):
    done = call(*(run.path for run in runs), "--of", "ema", "--json")
    assert done.exit_code == 0, done.output
    done = call(*(run.path for run in runs), "--of", "swa")
    assert done.exit_code == 2 and "it has ema" in done.output


def test_files_are_members_too(tmp_path):
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", logits=np.eye(3) * 2, labels=np.arange(3))
    done = call(tmp_path / "a.npz", tmp_path / "b.npz")
    assert done.exit_code == 0, done.output


def test_one_member_twice_changes_nothing():
    logits = torch.randn(30, 3, dtype=torch.float64)
    both = {name: {"": from_logits(logits, torch.arange(30) % 3)} for name in "ab"}
    result = average_predictions(both, "", metrics=["nll", "ece", "accuracy"])
    torch.testing.assert_close(result.predictions[""].logits, logits.log_softmax(1))
    assert result.disagreement == 0 and result.kl == pytest.approx(0, abs=1e-12)
    assert result.members[0].nll_gain == pytest.approx(0, abs=1e-12)


def test_rows_of_one_image_are_resampled_together_in_the_mixture(tmp_path):
    """As those of each member are: they are alike, and a mixture of them is, too."""
    generator = torch.Generator().manual_seed(0)
    images = torch.arange(400) // 20
    labels = (torch.rand(20, generator=generator) < 0.5).long()[images]
    for name in ("a", "b"):
        logits = 2 * torch.randn(20, 2, generator=generator)[images]
        of_row = {"labels": labels, "image_of_row": images}
        np.savez(tmp_path / f"{name}.npz", logits=logits, **of_row)

    output = tmp_path / "mixture.npz"
    done = call(tmp_path / "a.npz", tmp_path / "b.npz", "-o", output, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["groups"] == 20
    low, high = found["intervals"]["accuracy"]
    assert high - low > 0.2  # of 400 single rows 0.1

    read = read_predictions(output)
    assert read.group_name == "image" and torch.equal(read.groups, images)


def test_members_of_other_rows_or_classes_are_no_ensemble():
    logits, labels = torch.randn(30, 3), torch.arange(30) % 3
    rows = replace(from_logits(logits, labels), extras={"id": np.arange(30)})
    moved = replace(rows, extras={"id": np.roll(np.arange(30), 3)})  # of the same labels
    with pytest.raises(ValueError, match=r"b was judged on other rows than a.*sort both by id"):
        average_predictions({"a": {"": rows}, "b": {"": moved}}, "")

    cats, dogs = (
        replace(rows, names=["cat", "dog", "owl"]),
        replace(rows, names=["dog", "cat", "owl"]),
    )
    with pytest.raises(ValueError, match=r"^a and b name or order their classes differently"):
        average_predictions({"a": {"": cats}, "b": {"": dogs}}, "")

    # Equal ids in other types, and the numbers of columns p_0, p_1, p_2, are no difference.
    floats = replace(rows, extras={"id": np.arange(30.0)}, names=("0", "1", "2"))
    average_predictions({"a": {"": cats}, "b": {"": floats}}, "")


@pytest.mark.parametrize("case", ["one", "rows", "twice", "none", "suffix", "confidence"])
def test_mistakes_are_found(case, runs, tmp_path):
    first, second = runs[0].path, runs[1].path
    np.savez(tmp_path / "other.npz", logits=np.eye(3), labels=np.arange(3))
    np.savez(tmp_path / "more.npz", logits=np.eye(3) + 1, labels=np.array([0, 1, 1]))
    np.savez(tmp_path / "sure.npz", confidence=np.full(3, 0.9), correct=np.ones(3, bool))
    arguments, message = {
        "one": ([first], "two members or more; got 1"),
        "rows": ([tmp_path / "other.npz", tmp_path / "more.npz", "--kind"], ""),
        "twice": ([first, first], "is given twice"),
        "none": ([first, tmp_path], "holds no predictions.npz"),
        "suffix": ([first, second, "-o", tmp_path / "a.csv"], "is written as .npz"),
        "confidence": ([tmp_path / "sure.npz", tmp_path / "sure.npz"], "given twice"),
    }[case]
    if case == "rows":
        arguments = [tmp_path / "more.npz", tmp_path / "third.npz"]
        np.savez(tmp_path / "third.npz", logits=np.eye(3) + 1, labels=np.array([0, 1, 2]))
        message = "was judged on other rows"
    done = call(*arguments)
    assert done.exit_code == 2 and message in " ".join(done.output.split())


def test_the_report_shows_members_and_mixture(tmp_path):
    settings = {name: values[0] for name, values in CONFIG.items()}
    config = RunConfig(
        **settings | {"objective": "batch_ensemble:members=2", "steps": 4, "every": 2}
    )
    train(config, tmp_path, Runtime("cpu"))
    page = report(tmp_path)
    assert "Members and mixture" in page and "disagree" in page
