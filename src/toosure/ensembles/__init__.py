"""Ensembles: several members, one prediction. Each is an objective that predicts for itself."""

from torch import nn

from toosure.ensembles.batch_ensemble import BatchEnsemble
from toosure.ensembles.deep_ensemble import DeepEnsemble
from toosure.ensembles.mc_dropout import MCDropout
from toosure.ensembles.mimo import MIMO
from toosure.ensembles.mixture import Mixture, log_mean_probability
from toosure.ensembles.rank1 import Rank1
from toosure.ensembles.spread import disagreement, mean_pairwise_kl, member_numbers
from toosure.ensembles.vi import VI

# To add an ensemble: write its file, import it above, and list it here by its name on the command
# line. `mixture.py` says what it must have.
ENSEMBLES: dict[str, type[nn.Module]] = {
    "deep_ensemble": DeepEnsemble,
    "mc_dropout": MCDropout,
    "batch_ensemble": BatchEnsemble,
    "mimo": MIMO,
    "vi": VI,
    "rank1": Rank1,
}

__all__ = [
    "ENSEMBLES",
    "MIMO",
    "VI",
    "BatchEnsemble",
    "DeepEnsemble",
    "MCDropout",
    "Mixture",
    "Rank1",
    "disagreement",
    "log_mean_probability",
    "mean_pairwise_kl",
    "member_numbers",
]
