"""From the word of a run to its data, on the device."""

from dataclasses import replace
from functools import partial

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.data.image_files import usable_cores
from toosure.processes import join
from toosure.processes.group import local_count
from toosure.train.means import Means


def load_data(config: RunConfig, means: Means) -> Dataset:
    """Load what the word names, onto the device."""
    device = means.torch_device
    decoders = max(1, usable_cores() // local_count()) if means.decoders is None else means.decoders
    build = partial(
        config.word("data").build,
        root=means.data_root,
        download=means.download,
        workers=decoders,
    )
    return (join(device).in_turn(build) if means.download else build()).to(device)


def in_float64(data: Dataset) -> Dataset:
    """Return the data in double precision."""
    splits = {name: getattr(data, name) for name in ("train", "val", "test", "stream")}
    wide = {name: s and replace(s, x=s.x.double()) for name, s in splits.items()}
    return replace(data, **wide, mean=data.mean.double(), std=data.std.double())
