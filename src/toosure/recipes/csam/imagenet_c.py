"""Judge finished ImageNet runs on the published corrupted images, and keep that in their folders.

Three corruptions at five severities; images made from those that validate are left out.
"""

import json
from pathlib import Path

import torch

from toosure import metrics
from toosure.data.catalogue import SOURCES
from toosure.data.imagenet import corrupted_files, corrupted_split
from toosure.recipes.benchmark.kept_rows import CORRUPTED_FILE
from toosure.recipes.csam import imagenet_rows
from toosure.recipes.recipe import Setting
from toosure.recipes.run_store import RunStore
from toosure.runs import Run
from toosure.runs.files import write_atomically
from toosure.train import Runtime
from toosure.train.best import WEIGHTS_FILE
from toosure.train.build import load_weights
from toosure.train.restore import RestoredRun, restore_run
from toosure.watch.split import logits_of

CORRUPTIONS = {"C1": "motion_blur", "C2": "defocus_blur", "C3": "impulse_noise"}
SEVERITIES = range(1, 6)
Scores = dict[str, dict[str, float]]  # by severity: accuracy and ECE, as shares of 1


def judge_runs(setting: Setting, store: RunStore, runtime: Runtime) -> None:
    """Judge the complete runs that were not judged yet; none without ImageNet-C."""
    if SOURCES["imagenet_c"].missing(runtime.data_root):
        return
    for run in store.runs(imagenet_rows.configs(setting)):
        if not (run.path / CORRUPTED_FILE).is_file():
            judge_run(run, runtime)


def judge_run(run: Run, runtime: Runtime) -> dict[str, Scores]:
    """Predict the corrupted images with a run's best weights, and write their scores."""
    restored = restore_run(run.path, runtime)
    best = run.path / WEIGHTS_FILE
    if best.is_file():
        state = torch.load(best, map_location=runtime.torch_device, weights_only=True)
        load_weights(restored.model, restored.objective, state)

    scores = {
        corruption: {
            str(severity): scores_on(restored, corruption, severity, runtime)
            for severity in SEVERITIES
        }
        for corruption in CORRUPTIONS.values()
    }
    text = json.dumps(scores, indent=1)
    write_atomically(run.path / CORRUPTED_FILE, lambda file: file.write(text.encode()))
    return scores


def scores_on(
    run: RestoredRun, corruption: str, severity: int, runtime: Runtime
) -> dict[str, float]:
    """Return accuracy and ECE on one corruption at one severity, and how many images there are."""
    word = run.config.word("data")
    root = Path(runtime.data_root)
    files = corrupted_files(corruption, severity, root, word.value("val_share"), word.value("seed"))
    split = corrupted_split(files, run.data, word.value("size"), runtime.decoders)
    logits = logits_of(run.predictor, split.x.to(runtime.torch_device)).cpu().double()
    return {
        "accuracy": float(metrics.accuracy(logits, split.y)),
        "ece": float(metrics.ece(logits, split.y)),
        "images": float(len(split.y)),
    }
