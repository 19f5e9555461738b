"""Load the data of a run onto its device."""

from dataclasses import replace
from functools import partial

from torch import Tensor

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.data.image_files import usable_cores
from toosure.data.own_data import as_dataset
from toosure.processes import join
from toosure.processes.group import local_count
from toosure.train.runtime import Runtime


def load_data(config: RunConfig, runtime: Runtime) -> Dataset:
    """Load the data set that the config names, onto the device."""
    device = runtime.torch_device
    decoders = runtime.decoders
    if decoders is None:
        decoders = max(1, usable_cores() // local_count())

    build = partial(
        config.word("data").build,
        root=runtime.data_root,
        download=runtime.download,
        workers=decoders,
    )
    # One process downloads while the others wait; then they find the files.
    made = join(device).in_turn(build) if runtime.download else build()
    return as_dataset(made, config.data).to(device)


def in_float64(data: Dataset) -> Dataset:
    """Return the data in double precision; whole numbers, such as tokens, stay."""
    if isinstance(data.train.x, Tensor) and not data.train.x.is_floating_point():
        return data
    splits = {name: getattr(data, name) for name in ("train", "val", "test", "stream")}
    doubled = {name: s and replace(s, x=s.x.double()) for name, s in splits.items()}
    return replace(data, **doubled, mean=data.mean.double(), std=data.std.double())
