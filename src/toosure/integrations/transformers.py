"""Hugging Face: `Trainer(callbacks=[WatchCallback(run="runs/mine")])`."""

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import BatchSamplerShard
from torch import nn
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from transformers.trainer_utils import RemoveColumnsCollator

from toosure.batches.reader import LABEL_KEYS, names_of_arguments
from toosure.integrations.sam_trainer import SAMTrainer
from toosure.integrations.watched_loop import WatchedLoop
from toosure.processes.dtensor import any_sharded
from toosure.processes.wrappers import unwrapped
from toosure.watch import Watch
from toosure.watch.criterion import Criterion
from toosure.watch.measurer import Data
from toosure.watch.sample import in_memory

__all__ = ["SAMTrainer", "WatchCallback"]

STATE_FILE = "toosure_watch.pt"  # in each checkpoint
BATCH = 256  # examples that are read together from a data set


class WatchCallback(TrainerCallback):
    """Watch the model while the Trainer trains it; `options` go to `Watch`.

    `train` is the Trainer's loader unless given; give `val`, a data set, whose rows are joined by
    the Trainer's collator, or a loader. The loss that is watched is cross-entropy unless `loss` is
    given. It measures in float32 where the Trainer trains in bf16 or fp16. Checkpoints carry the
    state of the watch. In DDP every process measures its share of the same examples; with FSDP or
    DeepSpeed the first measures alone. The first process writes.
    """

    def __init__(
        self,
        train: Data | None = None,
        val: Data | None = None,
        loss: Criterion | None = None,
        **options: Any,
    ) -> None:
        self.loop = WatchedLoop(train, val, loss, options)

    @property
    def watch(self) -> Watch | None:
        """The watch, from the start of training on."""
        return self.loop.watch

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        file = Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATE_FILE
        self.loop.resume = torch.load(file, weights_only=True) if file.is_file() else None
        shared = not args.fsdp or any_sharded(given["model"].parameters())  # by DDP or FSDP2
        together = args.world_size > 1 and shared and args.deepspeed is None
        if together or state.is_world_process_zero:
            model, optimizer = given["model"], given["optimizer"]
            train = of_all_processes(given["train_dataloader"], args.per_device_train_batch_size)
            if not self.loop.options.keys() & {"inputs", "labels"}:
                removed = args.remove_unused_columns
                self.loop.val = with_collator(self.loop.val, train, model, removed)
            watched = model if any_sharded(model.parameters()) else without_autocast(model)
            self.loop.begin(watched, optimizer, train, None, state.global_step, together)

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            torch.save(self.loop.state_dict(), folder / STATE_FILE)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.loop.end()


def without_autocast(model: nn.Module) -> nn.Module:
    """Return the model without the autocast that Accelerate puts around its `forward`.

    It has the same weights and layers. Curvature needs float32, and is that of the loss without
    the rounding of bf16.
    """
    original = model.__dict__.get("_original_forward")
    if original is None:
        return model
    twin = copy(model)  # shares all parameters, buffers and layers
    del twin._original_forward, twin.forward
    if getattr(original, "__func__", None) is not type(model).forward:
        twin.forward = original  # a forward that was set on this model alone
    return twin


def of_all_processes(loader: Any, batch_size: int) -> Any:
    """Return a loader of the whole data set where Accelerate has given each process a share.

    Its own loader gives the first process its share only, and may wait for the other processes
    when it is iterated over, which only the first one would do here.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if not isinstance(sampler, BatchSamplerShard):
        return loader
    while isinstance(sampler, BatchSamplerShard):
        sampler = sampler.batch_sampler
    return DataLoader(
        loader.dataset, batch_size, sampler=sampler.sampler, collate_fn=loader.collate_fn
    )


def with_collator(data: Any, loader: Any, model: Any, remove_columns: bool = True) -> Any:
    """Return a data set of dicts as a loader that joins rows as the Trainer's loader does.

    Rows of a tokenizer differ in length and have columns of text: the Trainer's collator pads
    them, after columns that the model does not take are left out (`remove_columns`). All else than
    a data set stays as it is.
    """
    is_data_set = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if isinstance(data, DataLoader) or not is_data_set or in_memory(data) is not None:
        return data
    if not len(data) or not isinstance(data[0], Mapping):
        return data

    collate = loader.collate_fn
    if remove_columns:
        takes = names_of_arguments(unwrapped(model)) or tuple(data[0])
        collate = RemoveColumnsCollator(collate, [*takes, *LABEL_KEYS, "label_ids"])
    return DataLoader(data, BATCH, collate_fn=collate)
