"""ImageNet's way in the small: JPEG folders streamed, bf16, deep networks; the benchmarks of it."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from toosure import metrics
from toosure.config import RunConfig
from toosure.train import train

Image = pytest.importorskip("PIL.Image")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three colours of photographs in JPEG, larger than they are read, of many shapes."""
    path = tmp_path_factory.mktemp("jpegs")
    random = np.random.default_rng(0)
    for part, count in (("train", 16), ("val", 4)):
        for label, name in enumerate(("n01", "n02", "n03")):
            (path / part / name).mkdir(parents=True)
            for i in range(count):
                height, width = random.integers(40, 90, 2)
                pixels = random.integers(0, 120, (height, width, 3), np.uint8)
                pixels[..., label] += 100
                Image.fromarray(pixels).save(path / part / name / f"{i}.JPEG")
    return path


def streamed(folder, model, steps, size=32, measure=("gn_sharpness",)):
    data = f"imagefolder:{folder},size={size},stream=true,watched=12,val=6,augment=true"
    return RunConfig(
        data=data, model=model, optimizer="adamw:lr=0.003", precision="bf16", batch=8,
        steps=steps, at=(0, steps), measure=measure,
    )  # fmt: skip


@pytest.mark.parametrize(
    "model", ["resnet50:width=4,stem=imagenet", "vit:depth=2,heads=2,width=32,patch=16"]
)
def test_a_streamed_folder_of_jpegs_trains_in_bf16(folder, tmp_path, model):
    run = train(streamed(folder, model, 30), tmp_path)
    first, last = run.rows
    assert run.status == "complete" and last["train/loss"] < 0.7 * first["train/loss"]
    assert last["train/gn_sharpness"] > 0 and "train/gn_sharpness_unconverged" not in last
    assert np.load(run.path / "predictions.npz")["test_logits"].shape == (12, 3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet50", "vit_s16"])
def test_the_networks_themselves_train_so(folder, tmp_path, model):
    run = train(streamed(folder, model, 3, size=224, measure=()), tmp_path)
    assert run.status == "complete" and np.isfinite(run.rows[-1]["val/loss"])
    assert np.load(run.path / "predictions.npz")["test_logits"].shape == (12, 3)


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in ("large", "sampling"):
        sys.modules.pop(name, None)


def test_the_formula_for_ece_on_a_subset_is_what_subsets_show(benchmarks):
    import sampling

    generator = torch.Generator().manual_seed(0)
    confidence = 0.2 + 0.8 * torch.rand(20_000, generator=generator, dtype=torch.float64)
    chance = confidence - 0.04 * (confidence > 0.6)  # some bins calibrated, some not
    correct = (torch.rand(20_000, generator=generator) < chance).double()
    draws = torch.randint(20_000, (400, 1000), generator=generator)
    found = torch.stack([metrics.ece_from_confidence(confidence[r], correct[r]) for r in draws])
    mean, sd = sampling.folded(confidence, correct, 1000)
    standard_error = float(found.std()) / 20
    assert abs(float(found.mean()) - mean) < 4 * standard_error
    assert float(found.std()) == pytest.approx(sd, rel=4 / np.sqrt(2 * 400))
    whole = float(metrics.ece_from_confidence(confidence, correct))
    assert sampling.folded(confidence, correct, 1e12)[0] == pytest.approx(whole, rel=1e-6)
    assert mean - whole > 0.01  # the bias that a plain estimate would leave out


def test_the_benchmark_of_large_networks_runs(benchmarks, tmp_path, capsys):
    import large

    file = tmp_path / "large.md"
    large.main(["--quick", "--device", "cpu", "--models", "vit", "--out", str(file)])
    text = file.read_text()
    assert text == capsys.readouterr().out
    for what in ("training step, bf16", "row without curvature", *large.PASSES, "sharpness, warm"):
        assert f"| vit | {what} | " in text
    assert "14 vectors" in text  # as docs/large.md counts them
