"""Draw the examples that a watch measures from the loop's data, once."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from toosure.batches.inputs import Inputs, rows_of, tensors_of
from toosure.batches.reader import BatchReader, Examples, InputsOf, LabelsOf, one_batch
from toosure.data.dataset import Split
from toosure.metrics.inputs import check_count
from toosure.watch.drawn_indices import chosen_rows, indices_of, known_labels

EXAMPLES = 2000  # drawn from a loader or a data set by default
SPLITS = ("train", "val", "test")
MAX_EMPTY_BATCHES = 100  # of a loader that may be endless
MAX_HASHED_BYTES = 1 << 26  # of a tensor; of a larger one, evenly spaced rows are hashed


@dataclass
class Sample:
    """Examples of one split, and how they were drawn."""

    inputs: Inputs
    labels: Tensor
    note: dict[str, Any]  # for the run's folder

    def __len__(self) -> int:
        return len(self.labels)


class ExampleSource:
    """Draw the examples of a split; `inputs` and `labels` name the parts of a batch.

    Tensors in memory are taken whole, unless `examples` says how many. From a loader or a data set
    `examples` (2000) are drawn by the seed, stratified by class if the labels are known without
    reading everything. `examples` may differ by split: {"train": 250, "val": 500}. With `hashes`
    each sample notes a hash of itself.
    """

    def __init__(
        self,
        inputs: InputsOf = None,
        labels: LabelsOf = None,
        examples: int | Mapping[str, int] | None = None,
        seed: int = 0,
        hashes: bool = True,
    ) -> None:
        counts = list(examples.values()) if isinstance(examples, Mapping) else [examples]
        for count in counts:
            if count is not None:
                check_count("examples", count)
        unknown = set(examples) - set(SPLITS) if isinstance(examples, Mapping) else set()
        if unknown:
            raise ValueError(
                f"examples by split names {', '.join(SPLITS)}; got {', '.join(sorted(unknown))}"
            )

        self.reader = BatchReader(inputs, labels)
        self.examples = examples
        self.seed = seed
        self.hashes = hashes
        self.is_example: Callable[[Inputs], bool] | None = None  # asks the model, if there is one

    def wanted(self, name: str) -> int | None:
        """Return how many examples of a split were asked for; None by default."""
        return self.examples.get(name) if isinstance(self.examples, Mapping) else self.examples

    def sample(self, name: str, data: Any) -> Sample:
        """Return the examples of a split: of tensors, arrays, a Dataset, a DataLoader, batches."""
        sample = self._drawn(name, data)
        check_not_empty(name, len(sample))
        if self.hashes:
            sample.note["sha256"] = hash_of(sample.inputs, sample.labels)
        return sample

    def _drawn(self, name: str, data: Any) -> Sample:
        """Draw from tensors in memory, from batches, or from a data set by index."""
        batch = in_memory(data)
        if batch is not None:
            return self._from_memory(name, batch)

        check_kind(name, data)
        loader = data if isinstance(data, DataLoader) else None
        source = data if loader is None else loader.dataset
        indices = indices_of(loader, source)
        with random_state_restored(data, self.seed):
            if indices is None or self._are_batches(name, data):
                return self._from_batches(name, data)
            return self._from_dataset(name, source, indices, loader)

    def _are_batches(self, name: str, data: Any) -> bool:
        """Whether a list holds batches rather than examples.

        A first item with two rows or more, and a label for each of them, is a batch, unless the
        model takes it as one example, such as a sequence of vectors. One sequence of numbers with a
        label for each is an example, as is what `inputs` or `labels`, functions of a batch, cannot
        be called with.
        """
        if not isinstance(data, list | tuple) or not len(data):
            return False
        try:
            inputs, labels = self.reader.read(name, data[0])
        except Exception:  # one label, say; a function of yours may raise anything
            return False
        if len(labels) < 2 or all(tensor.ndim < 2 for tensor in tensors_of(inputs)):
            return False
        return self.is_example is None or not self.is_example(inputs)

    def _from_memory(self, name: str, batch: Any) -> Sample:
        """Take all examples of tensors in memory, or draw as many as were asked for."""
        inputs, labels = self.reader.read(name, batch)
        count = len(labels)
        wanted = self.wanted(name)
        if wanted is None or wanted >= count:
            return Sample(inputs, labels, {"examples": count, "of": count})

        rows, stratified = chosen_rows(count, wanted, labels.cpu(), self.seed)
        note = self._note(len(rows), count, stratified)
        return Sample(rows_of(inputs, rows), labels[rows.to(labels.device)], note)

    def _note(self, examples: int, count: int | None, stratified: bool) -> dict[str, Any]:
        return {"examples": examples, "of": count, "seed": self.seed, "stratified": stratified}

    def _from_dataset(
        self,
        name: str,
        source: Any,
        indices: Sequence[int],
        loader: "DataLoader[Any] | None",
    ) -> Sample:
        """Draw examples of a data set by their index, and read only these."""
        check_not_empty(name, len(indices))
        labels = known_labels(source, self.reader.labels)
        if labels is not None:
            labels = labels[torch.as_tensor(indices)]
        wanted = self.wanted(name) or EXAMPLES
        places, stratified = chosen_rows(len(indices), wanted, labels, self.seed)

        collate = default_collate if loader is None else loader.collate_fn
        size = (None if loader is None else loader.batch_size) or 256
        parts = []
        for own in places.split(size):
            batch = collate([source[int(indices[place])] for place in own.tolist()])
            parts.append(self.reader.read(name, batch))

        note = self._note(len(places), len(indices), stratified)
        return Sample(*self.reader.join(name, parts), note)

    def _from_batches(self, name: str, batches: Iterable[Any]) -> Sample:
        """Take the first examples of batches, in the order in which they come."""
        wanted = self.wanted(name) or EXAMPLES
        parts: list[Examples] = []
        count = 0
        empty = 0
        for batch in batches:
            part = self.reader.read(name, batch)
            if len(part[1]):
                parts.append(part)
                count += len(part[1])
            else:
                empty += 1
            if count >= wanted:
                break
            if empty > MAX_EMPTY_BATCHES:
                raise ValueError(f"{name} gave {empty} empty batches: give a loader of examples")

        check_not_empty(name, count)
        inputs, labels = self.reader.join(name, parts)
        rows = torch.arange(min(count, wanted))
        note = self._note(len(rows), None, stratified=False)
        return Sample(rows_of(inputs, rows), labels[: len(rows)], note)


def in_memory(data: Any) -> Any:
    """Return the data if they are one batch of tensors or arrays, else None."""
    return one_batch(tuple(data) if isinstance(data, Split) else data)


def check_kind(name: str, data: Any) -> None:
    """Raise on data that give no batches, or give them only once."""
    if isinstance(data, Iterator):
        raise ValueError(
            f"{name} is an iterator; reading it would consume your training batches: pass the "
            "loader itself"
        )
    indexable = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if isinstance(data, Tensor | np.ndarray | str) or not (indexable or isinstance(data, Iterable)):
        raise ValueError(
            f"{name} must be (inputs, labels), a DataLoader, a Dataset, or a dict of tensors with "
            f"labels; got {type(data).__name__}"
        )


def check_not_empty(name: str, count: int) -> None:
    if not count:
        raise ValueError(f"{name} is empty: give it examples, or leave it out")


@contextmanager
def random_state_restored(data: Any, seed: int) -> Iterator[None]:
    """Draw by a seed inside, and restore the random state of the loop."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 (what data sets draw from)
    own = getattr(data, "generator", None)  # of a loader
    generator = own if isinstance(own, torch.Generator) else torch.Generator()
    own_state = generator.get_state()

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # not those of devices, as manual_seed does
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        generator.manual_seed(seed)

        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
            generator.set_state(own_state)


def hash_of(inputs: Inputs, labels: Tensor) -> str:
    """Return a hash of examples, so that a resumed run can tell whether they are the same."""
    digest = hashlib.sha256()
    named: dict[str | int, Tensor] = {"": inputs} if isinstance(inputs, Tensor) else inputs
    for name, tensor in [*named.items(), ("labels", labels)]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        step = max(1, tensor.nbytes // MAX_HASHED_BYTES)
        rows = tensor[::step].detach().cpu().contiguous()
        digest.update(rows.view(torch.uint8).numpy().tobytes() if rows.ndim else b"")
    return digest.hexdigest()[:16]


def hash_of_labels(labels: Tensor) -> str:
    """Return a hash of class numbers: runs of one data set have it in common, whatever their model.

    >>> hash_of_labels(torch.tensor([0, 1])) == hash_of_labels(torch.tensor([0.0, 1.0]))
    True
    """
    return hashlib.sha256(labels.long().cpu().numpy().tobytes()).hexdigest()[:16]
