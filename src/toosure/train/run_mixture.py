"""Judge a mixture of finished runs under shifts, restored from their checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from toosure.config import RunConfig
from toosure.data import Dataset, Split
from toosure.data.standardise import raw_pixels
from toosure.ensembles import log_mean_probability
from toosure.runs import Run
from toosure.shifts.judge import Progress
from toosure.shifts.record import ShiftRecord
from toosure.train.restore import restore_run
from toosure.train.runtime import Runtime
from toosure.train.shifts import Shifts, can_be_judged

ENOUGH_IMAGES = 500  # needed to fit a temperature, if members were validated on different images


@dataclass(frozen=True)
class Member:
    """A finished run with its weights; `data` keeps only one training image."""

    name: str
    config: RunConfig
    data: Dataset
    network: nn.Module
    step: int


class MixtureNetwork(nn.Module):
    """Predict the log of the members' mean probability; one member alone gives its own logits.

    Images are standardised as for the first member. A member of another split has another mean and
    deviation, so the images are rescaled for it.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(member.network for member in members)
        self.scales = [scale_between(members[0].data, member.data) for member in members]

    def forward(self, x: Tensor) -> Tensor:
        logits = []
        for network, scale in zip(self.networks, self.scales, strict=True):
            own = x if scale is None else (x * scale[0] + scale[1]).to(scale[0].dtype)
            logits.append(network(own).to(x.dtype))
        return logits[0] if len(logits) == 1 else log_mean_probability(torch.stack(logits))


def scale_between(first: Dataset, other: Dataset) -> tuple[Tensor, Tensor] | None:
    """Return the factor and offset from one data set's standardised images to another's.

    None if both scales are the same, so that no rounding is added.
    """
    same_type = first.mean.dtype == other.mean.dtype
    if same_type and torch.equal(first.mean, other.mean) and torch.equal(first.std, other.std):
        return None
    factor = (first.std / other.std).to(other.mean.dtype)
    return factor, ((first.mean - other.mean) / other.std).to(other.mean.dtype)


def judge_mixture(
    folders: Sequence[str | Path], runtime: Runtime, progress: Progress | None = None
) -> ShiftRecord:
    """Judge the mixture of finished runs by their checkpoints, as `runtime.shifts` says.

    Each set of corrupted images is made once for all members. The temperature is fitted on images
    that validate every member (see `common_validation`).
    """
    members = restore_members(folders, runtime)
    first = members[0]
    data = replace(first.data, val=common_validation(members))

    shifts = Shifts(first.config, data, runtime)
    step = max(member.step for member in members)
    return shifts.judge(MixtureNetwork(members), step, progress)


# -- members --------------------------------------------------------------------------------------


def restore_members(folders: Sequence[str | Path], runtime: Runtime) -> list[Member]:
    """Load finished runs; raise if one has no weights, or does not match the first."""
    if not folders:
        raise ValueError("a mixture needs at least one run")
    for folder in folders:
        check_weights(Path(folder))

    members: list[Member] = []
    for folder in folders:
        run = restore_run(folder, runtime)
        # All training images of all members at once might not fit into memory.
        train = run.data.train
        one = torch.zeros(1, dtype=torch.int64, device=train.y.device)
        data = replace(run.data, train=train.take(one), stream=None)

        step = int(Run(folder).outcome.get("step", 0))
        members.append(Member(Path(folder).name, run.config, data, run.predictor, step))
        check_same_data(members[0], members[-1])
    return members


def check_weights(folder: Path) -> None:
    """Raise if a folder is not a complete run, or has no checkpoint."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"members are folders of runs; got {folder}")
    run = Run(folder)
    if run.status != "complete":
        raise ValueError(
            f"{folder} is {run.status}: a member needs the weights of its end; repeat the command "
            "that trained it"
        )
    if not can_be_judged(run):
        raise ValueError(
            f"{folder} has no checkpoint: a member needs its weights; train it again in another "
            "folder, or leave it out"
        )


def check_same_data(first: Member, other: Member) -> None:
    """Raise if two runs have different classes, inputs or test images."""
    names = [member.config.word("data").name for member in (first, other)]
    if names[0] != names[1]:
        raise ValueError(
            f"{other.name} was trained on {names[1]}, {first.name} on {names[0]}: members of a "
            "mixture need the same data"
        )

    if first.data.names != other.data.names or first.data.inputs != other.data.inputs:
        raise ValueError(
            f"{other.name} has {other.data.classes} classes and inputs of {other.data.inputs}, "
            f"{first.name} {first.data.classes} and {first.data.inputs}: members of a mixture need "
            "the same"
        )

    if not same_test_images(first.data, other.data):
        raise ValueError(
            f"{other.name} and {first.name} have different test images: members of a mixture need "
            "the same; name data whose test set does not depend on its seed"
        )


def same_test_images(first: Dataset, other: Dataset) -> bool:
    """Whether two data sets are tested on the same images in the same order."""
    if not torch.equal(first.test.y, other.test.y):
        return False
    return image_keys(first.test, first) == image_keys(other.test, other)


# -- the images that a temperature is fitted on ---------------------------------------------------


def common_validation(members: Sequence[Member]) -> Split | None:
    """Return the validation images that all members share: no member was trained on them.

    If members were split by different seeds these are few, because most validation images of one
    are training images of another. None if fewer than `ENOUGH_IMAGES` are left.
    """
    splits = [(member.data.val, member.data) for member in members]
    keys = [image_keys(val, data) for val, data in splits if val is not None]
    first = members[0].data.val
    if first is None or len(keys) < len(members):
        return None
    if all(each == keys[0] for each in keys):
        return first

    shared = set(keys[0]).intersection(*keys[1:])
    places = [place for place, key in enumerate(keys[0]) if key in shared]
    if len(places) < ENOUGH_IMAGES:
        return None
    return first.take(torch.tensor(places))


def image_keys(split: Split, data: Dataset) -> list[bytes]:
    """Return keys of images, however they were standardised: their pixels, or file names.

    Indices are no such keys: a data set may draw its test images first, and renumber the others.
    """
    if not isinstance(split.x, Tensor):  # on disk
        return [name.tobytes() for name in split.x.names]
    pixels = raw_pixels(split.x, data.mean, data.std)
    rows = np.ascontiguousarray(pixels.flatten(1).cpu().numpy())
    return [row.tobytes() for row in rows]
