"""A copy of the weights, and of whatever else a row needs, while training goes on."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from toosure.objectives.contract import HasPredict
from toosure.processes.dtensor import any_sharded
from toosure.watch.criterion import Criterion
from toosure.watch.measurer import device_of
from toosure.watch.sam_numbers import SamRadius


class WeightsCopy:
    """A copy of a network and its loss, refreshed on demand, in the order of the device's queue.

    The loss is copied because a controller may move its gamma; SAM's radius is kept for the same
    reason. On a GPU the copy is read in a `with` block on a separate stream, so that neither
    training nor measuring waits for the other.
    """

    def __init__(
        self, model: nn.Module, loss: nn.Module, rho: SamRadius, device: torch.device
    ) -> None:
        self.sources = [model, loss]
        self.model = deepcopy(model)
        self.loss = deepcopy(loss)
        self._copies = tensors_in(self.model, self.loss)
        self._rho = rho
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            # Of high priority: it runs before the steps in the queue.
            self._stream = torch.cuda.Stream(device, priority=-1)
            self._taken = torch.cuda.Event()
        self.take()

    def take(self) -> None:
        """Queue a copy of the weights and buffers behind the steps that are already queued."""
        originals = tensors_in(*self.sources)
        if [t.shape for t in originals] != [t.shape for t in self._copies]:
            raise ValueError(
                "the network's parameters or buffers are not those it had: make a new watch"
            )

        with torch.no_grad():
            torch._foreach_copy_(self._copies, originals)
            copy_settings(self.sources[1], self.loss)

        # A controller changes the radius in place, so its current value is copied.
        rho = self._rho() if callable(self._rho) else self._rho
        self._kept_rho = rho.clone() if isinstance(rho, Tensor) else rho

        if self._stream is not None:
            self._taken.record()

    def kept_rho(self) -> float | Tensor:
        """Return SAM's radius when the copy was taken."""
        return self._kept_rho

    def wait(self) -> None:
        """Wait until the copy is complete."""
        if self._stream is not None:
            self._taken.synchronize()

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_event(self._taken)
            self._switched = torch.cuda.stream(self._stream)
            self._switched.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:
            self._switched.__exit__(*error)
            torch.cuda.current_stream().wait_stream(self._stream)  # before the next copy is taken


def tensors_in(*modules: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of modules."""
    return [t for module in modules for t in (*module.parameters(), *module.buffers())]


def copy_settings(source: nn.Module, target: nn.Module) -> None:
    """Copy the plain attributes of the modules of a loss; tensors of equal shape in place.

    A replayed CUDA graph reads such a tensor at the address it was recorded with.
    """
    for theirs, own in zip(source.modules(), target.modules(), strict=True):
        for name, value in vars(theirs).items():
            if isinstance(value, Tensor):
                kept = vars(own).get(name)
                if isinstance(kept, Tensor) and kept.shape == value.shape:
                    kept.copy_(value)
                else:
                    setattr(own, name, value.clone())
            elif isinstance(value, int | float):
                setattr(own, name, value)


def copy_weights(
    model: nn.Module, loss: Criterion | None, objective: object, rho: SamRadius
) -> WeightsCopy | None:
    """Copy a network that can be measured later; None if it must be measured at once.

    It must be measured at once if the objective predicts for itself, if the loss is neither torch's
    nor ours (it may change while training), or if the network is sharded or cannot be copied.
    """
    known_loss = type(loss).__module__.startswith(("torch.nn.", "toosure.losses."))
    if isinstance(objective, HasPredict) or any_sharded(model.parameters()):
        return None
    if not known_loss or not isinstance(loss, nn.Module):
        return None
    try:
        return WeightsCopy(model, loss, rho, device_of(model))
    except (RuntimeError, TypeError):  # it holds something that Python cannot copy
        return None
