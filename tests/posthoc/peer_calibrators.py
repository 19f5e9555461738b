"""What netcal answers on rows that both sides make for themselves; run by test_references.py."""

import json

import numpy as np


def softmax(logits):
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def rows(n=600, classes=3, seed=0):
    """Over-confident log-probabilities in float64, and labels."""
    generator = np.random.default_rng(seed)
    logits = 3 * generator.normal(size=(n, classes))
    true = softmax(logits / 2 + np.linspace(-0.5, 0.5, classes))
    labels = (true.cumsum(1) < generator.random((n, 1))).sum(1)
    return np.log(softmax(logits)), labels


def answers():
    """Fit netcal's calibrators in float64; return the probabilities they give."""
    from netcal.binning import HistogramBinning, IsotonicRegression
    from netcal.scaling import BetaCalibration, LogisticCalibration, TemperatureScaling

    log_p, labels = rows()
    p, two = np.exp(log_p), np.exp(rows(classes=2)[0])[:, 1]
    two_labels = rows(classes=2)[1]
    probs = {
        "temperature": TemperatureScaling().fit(p, labels).transform(p),
        "vector": LogisticCalibration().fit(p, labels).transform(p),
        "histogram": HistogramBinning(bins=10).fit(p, labels).transform(p),
        "isotonic": IsotonicRegression().fit(p, labels).transform(p),
        "beta": BetaCalibration().fit(two, two_labels).transform(two),
    }
    return {name: np.asarray(values).tolist() for name, values in probs.items()}


if __name__ == "__main__":
    print(json.dumps(answers()))
