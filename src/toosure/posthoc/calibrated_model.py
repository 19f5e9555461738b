"""A model with its calibrator: fitted from a data loader, and wrapped as one module."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from toosure.binary import is_one_column, two_columns
from toosure.eval_mode import evaluating
from toosure.posthoc.all_calibrators import CALIBRATORS
from toosure.posthoc.calibrator import Calibrator
from toosure.posthoc.select import choose


class Calibrated(nn.Module):
    """Apply a calibrator to what a model returns.

    >>> from toosure.posthoc import Identity
    >>> Calibrated(nn.Linear(4, 3), Identity())(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, model: nn.Module, calibrator: Calibrator) -> None:
        super().__init__()
        self.model = model
        self.calibrator = calibrator

    def forward(self, *inputs: object, **named: object) -> Tensor:
        """Return calibrated logits."""
        logits: Tensor = self.calibrator(self.model(*inputs, **named))
        return logits

    def predict_proba(self, *inputs: object, **named: object) -> Tensor:
        """Return calibrated probabilities, (N, C); (N, 2) of a model with one output."""
        logits: Tensor = self(*inputs, **named)
        return (two_columns(logits) if is_one_column(logits) else logits).softmax(1)


def calibrate(
    model: nn.Module,
    loader: Iterable[Sequence[Tensor]],
    method: str | Calibrator = "auto",
    folds: int = 5,
    seed: int = 0,
) -> Calibrated:
    """Fit a calibrator on `(inputs, labels, ...)` batches of rows not trained on; wrap the model.

    The model gives logits (N, C), or one logit per example of a binary classifier.

    "auto" tries all and takes the one with the lowest NLL on rows it was not fitted on, none of
    them if none helps; or name one ("temperature"), or give one (`Dirichlet(lam=0.1)`).

    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> inputs = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> labels = torch.multinomial((inputs / 2).softmax(1), 1).squeeze(1)
    >>> loader = DataLoader(TensorDataset(inputs, labels), batch_size=50)
    >>> calibrate(nn.Flatten(), loader, "temperature").calibrator.note
    ''
    """
    logits, labels = collect_logits(model, loader)
    if isinstance(method, Calibrator):
        return Calibrated(model, method.fit(logits, labels))

    if method == "auto":
        calibrator = choose(logits, labels, CALIBRATORS, folds, seed).calibrator
    elif method in CALIBRATORS:
        calibrator = CALIBRATORS[method]().fit(logits, labels)
    else:
        raise ValueError(f"method must be auto or one of {', '.join(CALIBRATORS)}; got {method!r}")
    return Calibrated(model, calibrator)


@torch.no_grad()
def collect_logits(model: nn.Module, loader: Iterable[Sequence[Tensor]]) -> tuple[Tensor, Tensor]:
    """Return the logits and labels of all batches, with the model in eval mode meanwhile."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with evaluating(model):
        pairs = [(model(batch[0].to(device)), batch[1].to(device)) for batch in loader]

    if not pairs:
        raise ValueError("the loader gave no batches: it must yield (inputs, labels)")
    logits, labels = (torch.cat(part) for part in zip(*pairs, strict=True))
    return logits, labels
