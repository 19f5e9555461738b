"""Calibrators: fit(logits, labels) on rows the model did not train on, then logits to logits."""

from toosure.posthoc.affine import Dirichlet, Matrix, Vector
from toosure.posthoc.binning import BBQ, HistogramBinning
from toosure.posthoc.calibrator import Calibrator, Identity
from toosure.posthoc.ensemble import EnsembleTemperature
from toosure.posthoc.isotonic import Isotonic, RankIsotonic
from toosure.posthoc.one_vs_rest import Beta, Platt
from toosure.posthoc.select import Choice, Trial, choose
from toosure.posthoc.table import CALIBRATORS
from toosure.posthoc.temperature import SplitTemperature, Temperature, split_temperature
from toosure.posthoc.wrapped import Calibrated, calibrate, load_calibrator, save_calibrator

__all__ = [
    "BBQ",
    "CALIBRATORS",
    "Beta",
    "Calibrated",
    "Calibrator",
    "Choice",
    "Dirichlet",
    "EnsembleTemperature",
    "HistogramBinning",
    "Identity",
    "Isotonic",
    "Matrix",
    "Platt",
    "RankIsotonic",
    "SplitTemperature",
    "Temperature",
    "Trial",
    "Vector",
    "calibrate",
    "choose",
    "load_calibrator",
    "save_calibrator",
    "split_temperature",
]
