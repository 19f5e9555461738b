"""The paper's figures: "Too Sharp, Too Sure", arXiv 2604.20614."""

from math import e

# Table 1: Pearson r with Gauss-Newton sharpness, mean and standard deviation over 4 learning rates.
TABLE_1: dict[str, dict[str, tuple[float, float]]] = {
    "train ECE": {
        "GD": (0.83, 0.08),
        "SGD": (0.84, 0.07),
        "AdamW": (0.72, 0.07),
        "Muon": (0.63, 0.26),
        "SAM": (0.92, 0.04),
    },
    "train KCE": {
        "GD": (0.83, 0.08),
        "SGD": (0.84, 0.07),
        "AdamW": (0.70, 0.08),
        "Muon": (0.61, 0.28),
        "SAM": (0.91, 0.04),
    },
    "test ECE": {
        "GD": (0.96, 0.02),
        "SGD": (0.97, 0.01),
        "AdamW": (0.15, 0.15),
        "Muon": (-0.10, 0.28),
        "SAM": (0.98, 0.01),
    },
    "test KCE": {
        "GD": (0.97, 0.01),
        "SGD": (0.97, 0.01),
        "AdamW": (0.21, 0.22),
        "Muon": (-0.16, 0.31),
        "SAM": (0.98, 0.01),
    },
}

# The number of each optimizer's figure along training: on CIFAR-10, on CIFAR-100.
TRAJECTORIES = {
    "GD": ("A2", "A9"),
    "SGD": ("A3", "A10"),
    "SAM": ("A4", "A11"),
    "Muon": ("A5", "A12"),
    "AdamW": ("A6", "A13"),
    "BulkSGD": ("A7", "A14"),
}
SQUARED_ERROR = {"GD": ("A16",), "SGD": ("A17",)}

# CalMO (version 1 of the paper): test accuracy in per cent and ECE at the least validation loss.
CALMO = {
    ("SGD", "CE"): (75.2, 0.081),
    ("SGD", "smoothness only"): (80.8, 0.053),
    ("SGD", "robustness only"): (78.2, 0.062),
    ("SGD", "CalMO"): (80.1, 0.056),
    ("SGD", "label smoothing"): (81.0, 0.082),
    ("SGD", "focal"): (78.0, 0.029),
    ("AdamW", "CE"): (80.7, 0.061),
    ("AdamW", "smoothness only"): (83.3, 0.047),
    ("AdamW", "robustness only"): (82.4, 0.039),
    ("AdamW", "CalMO"): (83.2, 0.045),
    ("AdamW", "label smoothing"): (85.8, 0.059),
    ("AdamW", "focal"): (80.5, 0.042),
    ("Muon", "CE"): (80.3, 0.065),
    ("Muon", "smoothness only"): (81.0, 0.046),
    ("Muon", "robustness only"): (81.9, 0.052),
    ("Muon", "CalMO"): (81.7, 0.019),
    ("Muon", "label smoothing"): (82.4, 0.045),
    ("Muon", "focal"): (78.7, 0.025),
    ("SAM", "CE"): (85.0, 0.020),
    ("SAM", "smoothness only"): (84.1, 0.016),
    ("SAM", "robustness only"): (85.5, 0.021),
    ("SAM", "CalMO"): (85.2, 0.017),
    ("SAM", "label smoothing"): (86.2, 0.067),
    ("SAM", "focal"): (84.0, 0.089),
}


def mse_confidence(classes: int) -> float:
    """Return the confidence at the optimum of squared error, e / (e + K - 1) (App. D.1).

    >>> round(mse_confidence(10), 4)
    0.232
    """
    return e / (e + classes - 1)
