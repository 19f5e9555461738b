"""Tables 2 and S14: the runs that the paper describes, and the whole protocol on a small folder."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from made_up_scores import record_with
from typer.testing import CliRunner

from toosure.cli import app
from toosure.recipes import RunStore, Setting
from toosure.recipes.csam import imagenet, imagenet_c, imagenet_rows
from toosure.recipes.csam.imagenet_rows import NETWORKS
from toosure.sweep import sweep
from toosure.train import Runtime

Image = pytest.importorskip("PIL.Image")
PAPER = Setting()


def test_the_runs_are_those_of_the_paper():
    configs = {row.name: row.configs[0] for row in imagenet_rows.all_rows(PAPER)}
    assert len(configs) == 13 and len(set(configs.values())) == 13
    assert {c.data for c in configs.values()} == {"imagenet:val=0,val_share=0.2,augment=true"}

    resnet = configs["ResNet-50/SAM"]
    assert resnet.model == "resnet50" and resnet.optimizer.startswith("sam:lr=0.1")  # rho .05
    assert resnet.steps == 100 * 1_281_167 // 256 and resnet.best == "nll"
    vit = configs["ViT-S/32/CSAM"]
    assert "base=adamw" in vit.optimizer and "rho=0.2" in vit.optimizer
    assert vit.steps == 300 * 1_281_167 // 1024 and vit.at[-1] == vit.steps

    assert configs["ViT-S/32/MBLS"].loss == "mbls"
    epochs = [round(300 * step / vit.steps) for step in vit.at]
    assert {50, 200, 300} <= set(epochs)  # of Figure S4
    theory = [name for name, config in configs.items() if "sam_theory" in config.measure]
    assert theory == ["ViT-S/32/SAM"]


def test_each_row_stands_beside_the_papers_figures():
    """SAM on ViT-S/32 is in both tables, with different figures."""
    table_2 = {row.name: row for row in imagenet_rows.table_2(PAPER)}
    table_s14 = {row.name: row for row in imagenet_rows.table_s14(PAPER)}
    assert table_2["ResNet-50/CSAM"].figures["ECE C3"] == "5.47"
    assert table_2["ViT-S/32/SAM"].figures["ECE"] == "3.04"
    assert table_s14["ViT-S/32/SAM"].figures["ECE"] == "2.47"
    assert table_2["ViT-S/32/SAM"].configs == table_s14["ViT-S/32/SAM"].configs
    assert table_s14["ViT-S/32/MBLS"].figures["ECE"] == "2.21"
    assert "ViT-S/32/MBLS" not in table_2 and "ViT-S/16/SAM" not in table_s14

    known = {row.name: record_with(row.configs[0]) for row in imagenet_rows.all_rows(PAPER)}
    two, s14 = imagenet.tables_of(PAPER, known)
    assert [len(two.rows), len(s14.rows)] == [9, 7]
    assert two.header[-1] == "paper: ECE C3" and "paper: TCE" not in s14.header
    (sam,) = [row for row in s14.rows if row[0].startswith("ViT-S/32/SAM")]
    assert sam[s14.header.index("paper: ECE")] == "2.47"


def test_sam_and_csam_against_the_losses_of_table_s14():
    errors = {"SAM": 0.02, "CSAM": 0.01}
    known = {}
    for row in imagenet_rows.all_rows(PAPER):
        name = row.name.rpartition("/")[2]
        better = name in errors
        record = record_with(
            row.configs[0], accuracy=0.7 if better else 0.6, ece=errors.get(name, 0.03)
        )
        known[row.name] = record
    judged = imagenet.loss_claims(PAPER, known)
    assert [claim.passed for claim in judged] == [True, True, None, None, None]
    assert judged[0].found.startswith("SAM 70.00, CSAM 70.00, MBLS 60.00")

    best = known["ViT-S/32/MBLS"]
    known["ViT-S/32/MBLS"] = replace(best, test={**best.test, "ece": 0.015})  # as in the paper
    corrupted = {name: {"accuracy": 0.4, "ece": 0.1} for name in imagenet_c.CORRUPTIONS.values()}
    known = {name: replace(record, corrupted=corrupted) for name, record in known.items()}
    judged = imagenet.loss_claims(PAPER, known)
    assert [claim.passed for claim in judged] == [True, False, False, False, False]
    quick = imagenet.loss_claims(Setting(quick=True), known)
    assert {claim.note for claim in quick} == {"judged on ImageNet only"}
    assert {c.note for c in imagenet.loss_claims(PAPER, {})} == {"no complete run"}


def known_records(errors, corrupted=None):
    made = {}
    for row in imagenet_rows.table_2(PAPER):
        network, _, optimizer = row.name.rpartition("/")
        place = list(NETWORKS[network].optimizers).index(optimizer)
        record = record_with(row.configs[0], accuracy=0.7 + place / 100, ece=errors[place])
        made[row.name] = replace(record, corrupted=corrupted)
    return made


def test_the_order_of_the_optimizers():
    claims = imagenet.order_claims(PAPER, "ViT-S/16", known_records((0.09, 0.03, 0.02)))
    assert [claim.passed for claim in claims] == [True, True, None, None, None]
    assert claims[0].found == "70.00, 71.00, 72.00 %" and "not judged" in claims[2].note
    claims = imagenet.order_claims(PAPER, "ViT-S/16", known_records((0.09, 0.02, 0.03)))
    assert [claim.passed for claim in claims[:2]] == [True, False]

    same = {name: {"accuracy": 0.4, "ece": 0.1} for name in imagenet_c.CORRUPTIONS.values()}
    claims = imagenet.order_claims(PAPER, "ViT-S/16", known_records((0.09, 0.03, 0.02), same))
    assert [claim.passed for claim in claims] == [True, True, False, False, False]
    absent = imagenet.order_claims(PAPER, "ViT-S/16", {})
    assert {claim.note for claim in absent} == {"no complete run"}


@pytest.fixture
def root(tmp_path):
    """Three classes of images of 20 pixels: 8 to train on, 10 published for validation."""
    generator = np.random.default_rng(0)

    def save(path, level):
        pixels = generator.integers(0, 40, (20, 20, 3)) + level
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)

    for k in range(3):
        for i in range(8):
            save(tmp_path / "imagenet" / "train" / f"n{k}" / f"{i}.png", 70 * k)
        for i in range(10):
            save(tmp_path / "imagenet" / "val" / f"n{k}" / f"val_{i}.png", 70 * k)
            for corruption in imagenet_c.CORRUPTIONS.values():
                for severity in imagenet_c.SEVERITIES:
                    place = tmp_path / "imagenet-c" / corruption / str(severity) / f"n{k}"
                    save(place / f"val_{i}.png", 70 * k)
    return tmp_path


def reproduce(root, out, *words):
    fixed = ["--quick", "--only", "imagenet", "--data-root", root, "--out", out]
    return CliRunner().invoke(app, ["reproduce", "csam", *map(str, (*fixed, *words))])


@pytest.mark.slow
def test_the_whole_protocol_on_a_small_folder(root, tmp_path):
    out = tmp_path / "runs"
    result = reproduce(root, out)
    assert result.exit_code == 0, result.output
    setting = Setting(quick=True)
    known = imagenet.read_records(setting, RunStore(out))
    assert len(known) == 13

    folder = out / known["ViT-S/32/SAM"].name
    kept = json.loads((folder / "imagenet_c.json").read_text())
    images = {scores["images"] for each in kept.values() for scores in each.values()}
    assert images == {24.0}  # 20 % of 30 validate: their twins are left out
    with np.load(folder / "best.npz") as arrays:
        assert len(arrays["val_labels"]) == 6 and len(arrays["test_labels"]) == 24

    record = known["ResNet-50/SGD"]
    levels = [scores["ece"] for scores in kept["motion_blur"].values()]
    sam = known["ViT-S/32/SAM"]
    assert sam.corrupted["motion_blur"]["ece"] == pytest.approx(sum(levels) / 5)
    assert record.test["accuracy"] >= 0 and "fig-s4" in (out / "csam-imagenet.html").read_text()


def test_without_imagenet_c_nothing_is_judged(tmp_path):
    imagenet_c.judge_runs(PAPER, RunStore(tmp_path), Runtime("cpu", tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_part_of_imagenet_c_is_not_judged(root, tmp_path):
    """Without a corruption nothing is, and where images are missing it is said which."""
    setting, runtime = Setting(quick=True), Runtime("cpu", root)
    rows = imagenet_rows.all_rows(setting)
    (config,) = next(row.configs for row in rows if row.name == "ViT-S/32/AdamW")
    out = tmp_path / "runs"
    sweep([config], out, runtime)
    (run,) = RunStore(out).runs([config])

    place = root / "imagenet-c" / "impulse_noise" / "4"
    shutil.move(place / "n1", tmp_path / "aside")
    with pytest.raises(ValueError, match=r"impulse_noise/4 holds 1\d images for 24 test images"):
        imagenet_c.judge_runs(setting, RunStore(out), runtime)
    shutil.rmtree(place)
    imagenet_c.judge_runs(setting, RunStore(out), runtime)
    assert not (run.path / "imagenet_c.json").exists()
