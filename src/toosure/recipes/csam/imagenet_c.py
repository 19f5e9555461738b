"""Judge finished ImageNet runs on the published corrupted images, and save that in their folders.

There are three corruptions at five severities. Images made from validation images are left out.
"""

from pathlib import Path

import torch
from torch import nn

from toosure import metrics
from toosure.data import Split
from toosure.data.catalogue import SOURCES
from toosure.data.class_folders import LabelledFiles
from toosure.data.imagenet import corrupted_files, corrupted_split
from toosure.data.locate import locate
from toosure.recipes.benchmark.saved_rows import CORRUPTED_FILE
from toosure.recipes.csam import imagenet_rows
from toosure.recipes.recipe import Setting
from toosure.recipes.run_store import RunStore
from toosure.runs import Run
from toosure.runs.files import write_json
from toosure.train import Runtime
from toosure.train.best import WEIGHTS_FILE
from toosure.train.build import load_weights
from toosure.train.restore import RestoredRun, restore_run
from toosure.watch.split import logits_of

CORRUPTIONS = {"C1": "motion_blur", "C2": "defocus_blur", "C3": "impulse_noise"}
SEVERITIES = range(1, 6)
Scores = dict[str, dict[str, float]]  # by severity: accuracy and ECE, as shares of 1


def judge_runs(setting: Setting, store: RunStore, runtime: Runtime) -> None:
    """Judge the complete runs that are not judged yet, if the folders of ImageNet-C exist."""
    if SOURCES["imagenet_c"].missing(runtime.data_root):
        return
    (published,) = locate("imagenet_c", runtime.data_root)
    folders = [published / name / str(s) for name in CORRUPTIONS.values() for s in SEVERITIES]
    if not all(folder.is_dir() for folder in folders):
        return
    for run in store.runs(imagenet_rows.configs(setting)):
        if not (run.path / CORRUPTED_FILE).is_file():
            judge_run(run, runtime)


def judge_run(run: Run, runtime: Runtime) -> dict[str, Scores]:
    """Predict the corrupted images with a run's best weights, and write the scores."""
    restored = restore_run(run.path, runtime)
    best = run.path / WEIGHTS_FILE
    if best.is_file():
        state = torch.load(best, map_location=runtime.torch_device, weights_only=True)
        load_weights(restored.model, restored.objective, state)

    files = files_of(restored, runtime.data_root)
    size = restored.config.word("data").value("size")
    scores: dict[str, Scores] = {}
    for (corruption, severity), own in files.items():
        split = corrupted_split(own, restored.data, size, runtime.decoders)
        by_severity = scores.setdefault(corruption, {})
        by_severity[str(severity)] = scores_on(restored.predictor, split, runtime)
    write_json(run.path / CORRUPTED_FILE, scores)
    return scores


def files_of(run: RestoredRun, root: Path) -> dict[tuple[str, int], LabelledFiles]:
    """List the corrupted versions of a run's test images, by corruption and severity.

    Raise ValueError if some are missing: means over severities would use different images.
    """
    word = run.config.word("data")
    share = word.value("val_share")
    seed = word.value("seed")

    by_cell = {}
    for corruption in CORRUPTIONS.values():
        for severity in SEVERITIES:
            files = corrupted_files(corruption, severity, Path(root), share, seed)
            if len(files) != len(run.data.test):
                raise ValueError(
                    f"imagenet-c/{corruption}/{severity} holds {len(files):,} images for "
                    f"{len(run.data.test):,} test images: unpack it again, it may be cut short"
                )
            by_cell[corruption, severity] = files
    return by_cell


def scores_on(predictor: nn.Module, split: Split, runtime: Runtime) -> dict[str, float]:
    """Return accuracy and ECE on one corruption at one severity, and the number of images."""
    logits = logits_of(predictor, split.x.to(runtime.torch_device)).cpu().double()
    return {
        "accuracy": float(metrics.accuracy(logits, split.y)),
        "ece": float(metrics.ece(logits, split.y)),
        "images": float(len(split.y)),
    }
