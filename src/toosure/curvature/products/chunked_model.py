"""A model on fixed data, linearised chunk by chunk; the pass of a single chunk is cached."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from toosure.curvature.products.cuda_graphs import GraphCache
from toosure.curvature.products.functional_model import FunctionalModel, Mode, ParameterChoice, flat
from toosure.curvature.products.jacobian_products import LinearisedChunk
from toosure.curvature.products.layer_calls import LayerSlots, linear_layers, record_calls
from toosure.curvature.products.loss_hessian import LossLike, output_loss
from toosure.metrics.inputs import ArrayLike, as_labels, check_count

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MAX_PASS_BYTES = 4 << 30  # of a forward pass that is cached
AGREEMENT = {torch.float32: 1e-3, torch.float64: 1e-8}  # of two ways to compute <u, J v>


class ChunkedModel(FunctionalModel):
    """A model with inputs and labels, linearised in chunks that fit into memory.

    If all data fit into one chunk, its linearised pass is cached until a parameter changes. With
    enabled `graphs` that pass is one CUDA graph, and replaying it refreshes it in place.
    """

    def __init__(
        self,
        model: nn.Module,
        data: tuple[Tensor, Tensor],
        loss: LossLike,
        parameters: ParameterChoice | None,
        chunk: int | None,
        mode: Mode,
    ) -> None:
        super().__init__(model, parameters, mode)
        inputs, labels = inputs_and_labels(data)
        if chunk is not None:
            check_count("chunk", chunk)
        self.loss = output_loss(loss)

        slot_of = {id(p): i for i, p in enumerate(self.originals)}
        self._layer_slots: LayerSlots = linear_layers(self.model, slot_of, mode == "train")
        owned = {i for slots in self._layer_slots.values() for i in slots.values()}
        self._direct = [i for i in range(len(self.names)) if i not in owned]
        self.forward_mode = any(isinstance(m, CONVOLUTIONS) for m in self.model.modules())
        self._copy_outputs = any(getattr(m, "inplace", False) for m in self.model.modules())

        self.inputs = inputs.to(self.device)
        if self.inputs.is_floating_point():
            self.inputs = self.inputs.to(self.dtype)
        self.labels, self.classes = self._check_labels(labels)

        # Weights that are also read outside of their layer's call are differentiated directly.
        if not self._calls_are_only_uses():
            self._layer_slots = {}
            self._direct = list(range(len(self.names)))
        self.chunk = chunk or self._affordable_chunk()

        self.graphs = GraphCache(enabled=False)
        self._cached_pass: LinearisedChunk | None = None  # of all data, if they are one chunk
        self._cached_logits: Tensor | None = None  # if they are several
        self._cached_versions: list[int] = []
        self._pass_is_fresh = False  # made since the last measurement ended

    @property
    def layers(self) -> list[nn.Module]:
        """The layers with parameters that are differentiated through their calls."""
        return list(self._layer_slots)

    def slots(self, layer: nn.Module) -> list[int]:
        """Return the slots of a layer's differentiated parameters."""
        return [slot for slot in self._layer_slots[layer].values() if slot is not None]

    @property
    def dense(self) -> bool:
        """Whether all parameters belong to Linear layers."""
        return not self._direct and all(type(layer) is nn.Linear for layer in self._layer_slots)

    @property
    def chunked(self) -> bool:
        """Whether the data are too large for one cached forward pass."""
        return len(self.inputs) > self.chunk

    def linearise(self, inputs: Tensor, labels: Tensor) -> LinearisedChunk:
        """Run the model once on a chunk and keep what products need."""
        leaves, state = self.state()
        recording = record_calls(self._layer_slots, self._copy_outputs)
        with self.temporary_mode(), recording as calls:
            logits = functional_call(self.model, state, (inputs,))

        if any(call.was_overwritten for call in calls):
            self._copy_outputs = True
            return self.linearise(inputs, labels)

        expected = (len(inputs), self.classes)
        if logits.shape != expected:
            raise ValueError(
                f"the model must give one row of logits per sample: {expected}, "
                f"not {tuple(logits.shape)}"
            )
        logits = logits.to(
            torch.promote_types(logits.dtype, self.dtype)
        )  # autocast may end in bf16
        return LinearisedChunk(logits, labels, leaves, calls, self._direct)

    def chunks(self) -> Iterator[LinearisedChunk]:
        """Yield the whole data, linearised; a single chunk comes from the cache while valid."""
        if self.chunked:
            for inputs, labels in self.data_chunks():
                yield self.linearise(inputs, labels)
            return

        versions = self.versions()
        if self._cached_pass is None or versions != self._cached_versions:
            if not self.graphs.enabled:
                self._cached_pass = None  # free the old graph before the new one is made
            self._cached_pass = self.graphs("forward", self._linearise_all)
            self._cached_versions = versions
            self._pass_is_fresh = True
        yield self._cached_pass

    def data_chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and labels, chunk by chunk."""
        yield from zip(self.inputs.split(self.chunk), self.labels.split(self.chunk), strict=True)

    def _linearise_all(self) -> LinearisedChunk:
        chunk = self.linearise(self.inputs, self.labels)
        if self.graphs.enabled and not chunk.find_slopes():
            # Build the graph of JVPs here, so that it is part of the captured pass.
            chunk.push_forward([torch.zeros_like(p) for p in chunk.entry_points])
        return chunk

    def refresh_pass(self) -> None:
        """Make the cached pass now, if parameters have changed since the last one."""
        for _ in self.chunks():
            pass

    def logits(self) -> Tensor:
        """Return the model's outputs on this process's samples, (n, C), without a graph."""
        if not self.chunked:
            (chunk,) = self.chunks()
            return chunk.logits.detach()

        versions = self.versions()
        if self._cached_logits is None or versions != self._cached_versions:
            _, state = self.state()
            with self.temporary_mode(), torch.no_grad():
                parts = self.inputs.split(self.chunk)
                logits = [functional_call(self.model, state, (x,)) for x in parts]
                self._cached_logits = torch.cat(logits)
            self._cached_versions = versions
            self._pass_is_fresh = True
        return self._cached_logits

    @contextmanager
    def measurement(self) -> Iterator[None]:
        """Use the cached pass for one measurement only, if it is fresh.

        Parameters that were changed through `.data` do not count the change, so version counters
        alone would miss it. Only a new pass sees them.
        """
        self.check_same_parameters()
        if not self._pass_is_fresh:
            self._cached_versions = []
        try:
            yield
        finally:
            self._pass_is_fresh = False

    def release(self) -> None:
        """Free the cached forward pass and all captured graphs."""
        self._cached_pass = None
        self._cached_logits = None
        self.graphs.clear()

    # -- checks before the first product ----------------------------------------------------

    def _check_labels(self, labels: ArrayLike) -> tuple[Tensor, int]:
        """Return the labels on the model's device and the number of classes, or raise."""
        n = len(self.inputs)
        if n == 0:
            raise ValueError("data is empty: curvature needs at least one sample")

        _, state = self.state()
        few = min(n, 2)
        with self.temporary_mode(), torch.no_grad():
            logits = functional_call(self.model, state, (self.inputs[:few],))
        if not torch.is_tensor(logits) or logits.ndim != 2 or len(logits) != few:
            shape = tuple(logits.shape) if torch.is_tensor(logits) else type(logits).__name__
            raise ValueError(f"the model must return logits of shape (N, C); got {shape}")

        classes = logits.shape[1]
        checked = as_labels(labels, n, classes).to(self.device)
        value = self.loss.total(logits, checked[:few])
        if bool(torch.isfinite(logits).all()) and not bool(torch.isfinite(value)):
            raise ValueError(f"the loss is not finite on finite logits: it gave {float(value)}")
        return checked, classes

    def _calls_are_only_uses(self) -> bool:
        """Whether layers use their weights only in their calls: then <u, J v> = <J^T u, v>.

        It fails for weights that are also read elsewhere, as in `h @ layer.weight`: the JVP goes
        through the calls alone, the VJP through everything. Nor do calls in another type count, as
        under an autocast of the model's own: a layer would not take a direction in this one.
        """
        chunk = self.linearise(self.inputs[:2], self.labels[:2])
        if any(call.output.dtype != self.dtype for call in chunk.calls):
            return False
        generator = torch.Generator().manual_seed(0)
        v = torch.randn(self.size, generator=generator).to(chunk.logits)
        u = torch.randn(chunk.logits.shape, generator=generator).to(chunk.logits)
        with self.temporary_mode():
            image = chunk.jvp(self.split(v))
            pulled = flat(chunk.vjp(u))

        left = float((image * u).sum())
        right = float(pulled @ v)
        norm = torch.linalg.vector_norm
        scale = float(norm(image) * norm(u) + norm(pulled))
        return not abs(left - right) > AGREEMENT[self.dtype] * scale  # True where they are NaN

    def _affordable_chunk(self) -> int:
        """Return the number of samples with graphs that fit into MAX_PASS_BYTES, judged by two."""
        n = min(2, len(self.inputs))
        saved: dict[int, int] = {}

        def note_size(tensor: Tensor) -> Tensor:
            saved[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note_size, lambda t: t):
            chunk = self.linearise(self.inputs[:n], self.labels[:n])
        own = {p.data_ptr() for p in chunk.parameters}
        each = sum(size for pointer, size in saved.items() if pointer not in own) / n
        return max(1, min(len(self.inputs), int(MAX_PASS_BYTES / (2 * max(each, 1.0)))))


def inputs_and_labels(data: object) -> tuple[Tensor, ArrayLike]:
    """Return data as a pair, or raise if it is anything else."""
    if isinstance(data, tuple | list) and len(data) == 2 and torch.is_tensor(data[0]):
        return data[0], data[1]
    raise ValueError(
        f"data must be two tensors, (inputs, labels); got {type(data).__name__}. A DataLoader's "
        "batches are joined with `x, y = map(torch.cat, zip(*loader))`"
    )
