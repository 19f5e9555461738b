"""The rows of Table 1: single networks, MC-Dropout, and ensembles made of single networks."""

from collections.abc import Sequence
from dataclasses import dataclass

from toosure.config import RunConfig
from toosure.recipes.benchmark import methods, protocol
from toosure.recipes.benchmark.mixture_scores import kept_mixtures
from toosure.recipes.benchmark.mixture_shifts import judge_mixtures
from toosure.recipes.csam import paper
from toosure.recipes.csam.rows import PAPER_SETTINGS, PaperRow, single_seeds, size_of
from toosure.recipes.recipe import RunMixture, Setting
from toosure.recipes.run_store import RunStore
from toosure.train import Runtime

KINDS = ("Vanilla", "MC-Dropout", "Ensemble")
MEMBERS = 5
DROPOUT = "mc_dropout:samples=5,rate=0.1"


@dataclass(frozen=True)
class EnsembleRow(PaperRow):
    """A row of mixtures of five single runs, one mixture per seed of the row.

    Mixture s has the runs of seeds 5 s to 5 s + 4, so that no two share a member. `shown` are the
    seeds that the row of single networks shows: those runs are trained anyway.
    """

    shown: tuple[int, ...] = ()

    def configs(self, setting: Setting) -> list[RunConfig]:
        """Return no run: none is shown alone."""
        return []

    def mixtures(self, setting: Setting) -> list[RunMixture]:
        """Return the mixtures; of scores kept before, the run that trained the members at once."""
        found = []
        for seed in self.seeds:
            seeds = range(MEMBERS * seed, MEMBERS * (seed + 1))
            members = {each: self.config_at(setting, each) for each in seeds}
            extra = frozenset(run for each, run in members.items() if each not in self.shown)

            together = f"{self.method}+deep_ensemble:members={MEMBERS}"
            at_once = protocol.config(setting, together, self.data, seed, self.size).name
            config = self.config_at(setting, seed)
            found.append(RunMixture(config, tuple(members.values()), extra, at_once))
        return found

    @property
    def label(self) -> str:
        return f"{self.name} ({MEMBERS} runs of `{self.method}`)"


def ood(setting: Setting) -> list[PaperRow]:
    """Return Table 1: ResNet-18 on CIFAR-10, alone, with MC-Dropout and as an ensemble."""
    if "cifar10" not in setting.data_sets:
        return []
    chosen = methods.sharpness_aware("cifar10")
    main = PAPER_SETTINGS["cifar10"] if setting.full else chosen
    size = size_of(setting, "ResNet-18")
    several, few = methods.main_seeds(setting), single_seeds(setting)

    rows: list[PaperRow] = []
    for optimizer in ("SGD", "SAM", "CSAM"):
        method = main[optimizer]
        vanilla, dropout, ensemble = (f"{optimizer}/{kind}" for kind in KINDS)
        dropped = f"{method}+{DROPOUT}"
        rows += [
            PaperRow(vanilla, method, "cifar10", size, several, paper.TABLE_1[vanilla]),
            PaperRow(dropout, dropped, "cifar10", size, few, paper.TABLE_1[dropout]),
            EnsembleRow(
                ensemble, method, "cifar10", size, few, paper.TABLE_1[ensemble], shown=several
            ),
        ]
    return rows


def mixtures(setting: Setting) -> Sequence[RunMixture]:
    """Return the mixtures of Table 1."""
    return [mixture for row in ood(setting) for mixture in row.mixtures(setting)]


def judge_ensembles(setting: Setting, store: RunStore, runtime: Runtime) -> None:
    """Judge the mixtures on shifts, where these are asked for and not kept yet."""
    wanted = mixtures(setting)
    judge_mixtures(wanted, kept_mixtures(setting, wanted, with_shifts=True), store, runtime)
