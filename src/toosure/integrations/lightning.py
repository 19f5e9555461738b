"""Lightning: `Trainer(callbacks=[WatchCallback(run="runs/mine")])`."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.nn.parallel import DistributedDataParallel

from toosure.integrations.watched_loop import WatchedLoop
from toosure.optim import SAM
from toosure.optim.wrapper import innermost
from toosure.processes.dtensor import any_sharded
from toosure.watch import Watch
from toosure.watch.criterion import Criterion
from toosure.watch.measurer import Data


class WatchCallback(Callback):
    """Watch the module while Lightning trains it; `options` go to `Watch`.

    `train` and `val` are the trainer's loaders unless given. The module's `forward` gives the
    logits, or that of its attribute `network`. The loss that is watched is cross-entropy unless
    `loss` is given. `optimizer` is the place of the one whose steps count, if there are several.
    Checkpoints carry the state of the watch. In DDP and FSDP2 every process measures its share of
    the same examples; with other strategies the first measures alone. The first process writes.
    """

    def __init__(
        self,
        train: Data | None = None,
        val: Data | None = None,
        loss: Criterion | None = None,
        *,
        network: str | None = None,
        optimizer: int = 0,
        **options: Any,
    ) -> None:
        self.loop = WatchedLoop(train, val, loss, options)
        self.network = network
        self.optimizer = optimizer

    @property
    def watch(self) -> Watch | None:
        """The watch, from the start of training on."""
        return self.loop.watch

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        optimizer = innermost(trainer.optimizers[self.optimizer])
        if isinstance(optimizer, SAM) and trainer.accumulate_grad_batches > 1:
            raise ValueError(
                f"{type(optimizer).__name__} would step on the last micro-batch only, as it clears "
                "the gradients before each of its passes: set accumulate_grad_batches=1 (and a "
                "larger batch), or use manual optimisation with step([closure, ...])"
            )
        by_ddp = isinstance(trainer.model, DistributedDataParallel)
        together = by_ddp or any_sharded(pl_module.parameters())  # by FSDP2
        if not (together or trainer.is_global_zero):
            return

        # One may be set on the module alone, `self.forward = self.net.forward`.
        forward = getattr(pl_module.forward, "__func__", pl_module.forward)
        if self.network is None and forward is LightningModule.forward:
            raise ValueError(
                f"{type(pl_module).__name__} has no forward that gives the logits: write one, or "
                'name the attribute that does, WatchCallback(network="...")'
            )
        model = pl_module if self.network is None else getattr(pl_module, self.network)
        val = trainer.val_dataloaders
        first_val = val[0] if isinstance(val, list) else val
        step = trainer.global_step
        self.loop.begin(model, optimizer, trainer.train_dataloader, first_val, step, together)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.loop.end()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.loop.end(exception)

    def state_dict(self) -> dict[str, Any]:
        return self.loop.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.loop.resume = state_dict or None
