"""What one temperature does to the predictions of a run."""

from torch import Tensor

from toosure.metrics import ece, nll
from toosure.metrics.inputs import known_outputs
from toosure.posthoc.temperature import Temperature


def temperature_scaling(
    val: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> dict[str, float | int | str]:
    """Fit one temperature on validation logits and labels; return what it does to test ones.

    A run writes this at its end (`temperature.json`), so that pages need not compute it.

    >>> import torch
    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> pair = logits, torch.tensor([0, 0, 1, 1])
    >>> round(temperature_scaling(pair, pair)["temperature"], 3)
    3.641
    """
    calibrator = Temperature().fit_quietly(val[0].double(), val[1])
    logits = test[0].double()
    labels = test[1]
    scaled = calibrator(logits)

    with known_outputs():  # checked for the fit
        return {
            "temperature": float(calibrator.temperature),
            "ece": float(ece(logits, labels)),
            "ece_after": float(ece(scaled, labels)),
            "nll": float(nll(logits, labels)),
            "nll_after": float(nll(scaled, labels)),
            "n": len(labels),
            "note": calibrator.note,
        }
