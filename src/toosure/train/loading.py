"""Load the data of a run onto its device."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from toosure.config import RunConfig
from toosure.data import Dataset
from toosure.data.image_files import usable_cores
from toosure.data.own_data import as_dataset
from toosure.eval_mode import evaluating
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


def check_tokens(model: nn.Module, data: Dataset, name: str) -> None:
    """Raise if inputs are whole numbers, so read as tokens, and the network does not take them."""
    x = data.train.x
    if not isinstance(x, Tensor) or x.dtype != torch.int64:
        return
    try:
        with evaluating(model), torch.no_grad():
            model(x[:2])
    except RuntimeError as error:
        raise ValueError(
            f"inputs are whole numbers, which are read as tokens, and {name} does not take them "
            f"({error}): save a table of numbers as floats, x.astype('float32')"
        ) from error
