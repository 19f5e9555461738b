"""Calibrators: fit(logits, labels) on rows the model did not train on, then logits to logits.

Where to find what:

    calibrator         the class that all derive from, and the checks of a fit
    all_calibrators    the table of names, `CALIBRATORS`
    temperature        temperature scaling; ensemble: its mixture with other softmaxes
    affine             vector, matrix and Dirichlet scaling; affine_loss: what they minimise
    one_vs_rest        Platt scaling and beta calibration
    curves             one curve per class; binning: histogram and BBQ; isotonic
    select             choose among calibrators by cross-validation; same_rows: rows in two sets
    calibrated_model   a model with its calibrator; calibrator_file: save and load
"""

from toosure.posthoc.affine import Dirichlet, Matrix, Vector
from toosure.posthoc.all_calibrators import CALIBRATORS
from toosure.posthoc.binning import BBQ, HistogramBinning
from toosure.posthoc.calibrated_model import Calibrated, calibrate
from toosure.posthoc.calibrator import Calibrator, Identity
from toosure.posthoc.calibrator_file import load_calibrator, save_calibrator
from toosure.posthoc.ensemble import EnsembleTemperature
from toosure.posthoc.isotonic import Isotonic, RankIsotonic
from toosure.posthoc.one_vs_rest import Beta, Platt
from toosure.posthoc.select import Choice, Trial, choose
from toosure.posthoc.temperature import SplitTemperature, Temperature, split_temperature

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
