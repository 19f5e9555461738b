"""All calibrators by their names on the command line; `calibrator_file` reads this table, too.

To add one: write its file, list it here, and export it in `__init__`.
"""

from toosure.posthoc.affine import Dirichlet, Matrix, Vector
from toosure.posthoc.binning import BBQ, HistogramBinning
from toosure.posthoc.calibrator import Calibrator
from toosure.posthoc.ensemble import EnsembleTemperature
from toosure.posthoc.isotonic import Isotonic, RankIsotonic
from toosure.posthoc.one_vs_rest import Beta, Platt
from toosure.posthoc.temperature import Temperature

CALIBRATORS: dict[str, type[Calibrator]] = {
    "temperature": Temperature,
    "ensemble_temperature": EnsembleTemperature,
    "vector": Vector,
    "matrix": Matrix,
    "dirichlet": Dirichlet,
    "platt": Platt,
    "beta": Beta,
    "histogram": HistogramBinning,
    "isotonic": Isotonic,
    "rank_isotonic": RankIsotonic,
    "bbq": BBQ,
}
