"""The watch of a framework's loop: made when training begins, stepped by the optimizer itself."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from toosure.optim.wrapper import innermost
from toosure.watch import Watch
from toosure.watch.criterion import Criterion
from toosure.watch.measurer import Data
from toosure.watch.sample import in_memory

# Examples of a loader that a callback looks at, where nothing else is asked. A row every 100 steps
# of batch 128 then costs less than 3 % of the training (docs/loops.md, "What it costs").
EXAMPLES = {"train": 200, "val": 400}


class WatchedLoop:
    """Make a watch, count the optimizer's steps into it, close it, and carry its state.

    Steps are counted on the optimizer (a hook after its `step`), because frameworks count other
    things: micro-batches, passes, nothing at all in manual optimisation.
    """

    def __init__(
        self, train: Data | None, val: Data | None, loss: Criterion | None, options: dict[str, Any]
    ) -> None:
        self.train = train
        self.val = val
        self.loss = loss
        self.options = options
        self.watch: Watch | None = None
        self.resume: Mapping[str, Any] | None = None  # the state of an earlier watch
        self._hook: RemovableHandle | None = None
        self._numbers: dict[str, float] = {}  # that join the row of the latest step

    def begin(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        train: Data | None,
        val: Data | None,
        steps_taken: int = 0,
        together: bool = False,
    ) -> None:
        """Measure the start; `train` and `val` are the framework's, unless the user gave some.

        With `together` all processes of the loop call this, and measure in shares.
        """
        if steps_taken and self.resume is None:
            raise ValueError(
                f"training goes on at step {steps_taken}, but its checkpoint holds no state of the "
                "watch: save checkpoints with the callback in place, or train from the start"
            )
        if self.watch is not None and not self.watch.closed:
            self.end(RuntimeError("training did not come to its end"))

        own_train = train if self.train is None else self.train
        own_val = val if self.val is None else self.val
        options = with_examples(self.options, {"train": own_train, "val": own_val})
        if together:
            options = {"processes": "all", **options}
        self.watch = Watch(model, self.loss, own_train, own_val, resume=self.resume, **options)
        self.watch.sink.fail_unless_closed(self.watch)
        self._hook = innermost(optimizer).register_step_post_hook(self._count)

    def _count(self, optimizer: Optimizer, arguments: object, options: object) -> None:
        if self.watch is not None and not self.watch.closed:
            self._numbers = {"lr": float(optimizer.param_groups[0]["lr"])}
            self.watch.step(**self._numbers)

    def end(self, error: BaseException | None = None) -> None:
        """Measure the end, or note that training failed, and release the folder."""
        if self.watch is None or self.watch.closed:
            return
        if self._hook is not None:
            self._hook.remove()
        if error is not None:
            self.watch.__exit__(None, error, None)
            return

        self.watch.finish(**self._numbers)
        self.resume = self.watch.state_dict()  # for a second call of fit
        self.watch.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint of the framework; empty if no watch was made."""
        if self.watch is None or self.watch.closed:
            return dict(self.resume or {})
        return self.watch.state_dict()


def with_examples(options: dict[str, Any], splits: Mapping[str, Data | None]) -> dict[str, Any]:
    """Return the options with a default number of examples.

    Tensors in memory are taken whole. Under a budget rows are spaced by what they cost, and those
    of a loader have the watch's own number of examples.
    """
    if options.get("examples") is not None or options.get("budget") is not None:
        return options
    drawn = [name for name, data in splits.items() if data is not None and in_memory(data) is None]
    return {**options, "examples": {name: EXAMPLES[name] for name in drawn}}
