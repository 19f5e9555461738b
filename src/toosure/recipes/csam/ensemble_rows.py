"""The rows of Table 1: single networks, MC-Dropout, and ensembles of single networks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toosure.recipes.benchmark import methods, protocol
from toosure.recipes.benchmark.mixture_shifts import judge_mixtures
from toosure.recipes.benchmark.protocol import Size
from toosure.recipes.benchmark.score_files import saved_names, score_files
from toosure.recipes.benchmark.scored_rows import Row, protocol_row
from toosure.recipes.csam import paper
from toosure.recipes.csam.rows import PAPER_SETTINGS, single_seeds, size_of
from toosure.recipes.recipe import RunMixture, Setting
from toosure.recipes.run_store import RunStore
from toosure.train import Runtime

KINDS = ("Vanilla", "MC-Dropout", "Ensemble")
MEMBERS = 5
DROPOUT = "mc_dropout:samples=5,rate=0.1"


def ensemble_row(
    setting: Setting, single: Row, name: str, seeds: Sequence[int], figures: Mapping[str, str]
) -> Row:
    """Return a row of mixtures of five runs, one mixture per seed.

    Mixture s has the runs with seeds 5 s to 5 s + 4, so that no two mixtures share a member. Some
    of these runs are also in the row `single`.
    """
    mixtures = []
    for seed in seeds:
        members = protocol.configs(
            setting,
            single.method,
            single.data,
            range(MEMBERS * seed, MEMBERS * (seed + 1)),
            single.size,
        )
        compared = protocol.config(setting, single.method, single.data, seed, single.size)
        extra = frozenset(members) - frozenset(single.configs)
        mixtures.append(RunMixture(compared, tuple(members), extra))

    return replace(
        single,
        name=name,
        configs=(),
        expected=len(mixtures),
        figures=figures,
        mixtures=tuple(mixtures),
    )


def ood(setting: Setting) -> list[Row]:
    """Return Table 1: ResNet-18 on CIFAR-10 alone, with MC-Dropout, and as an ensemble."""
    if "cifar10" not in setting.data_sets:
        return []
    chosen = methods.sharpness_aware("cifar10")
    main = PAPER_SETTINGS["cifar10"] if setting.full else chosen
    size = size_of(setting, "ResNet-18")
    several = methods.main_seeds(setting)
    few = single_seeds(setting)

    rows = []
    for optimizer in ("SGD", "SAM", "CSAM"):
        method = main[optimizer]
        vanilla, dropout, ensemble = (f"{optimizer}/{kind}" for kind in KINDS)
        single = table_row(setting, vanilla, method, several, size)
        rows += [
            single,
            table_row(setting, dropout, f"{method}+{DROPOUT}", few, size),
            ensemble_row(setting, single, ensemble, few, paper.TABLE_1[ensemble]),
        ]
    return rows


def table_row(setting: Setting, name: str, method: str, seeds: Sequence[int], size: Size) -> Row:
    """Return a row of single runs beside the paper's figures."""
    return protocol_row(setting, name, method, "cifar10", seeds, size, paper.TABLE_1[name])


def mixtures(setting: Setting) -> Sequence[RunMixture]:
    """Return the mixtures of Table 1."""
    return [mixture for row in ood(setting) for mixture in row.mixtures]


def judge_ensembles(setting: Setting, store: RunStore, runtime: Runtime) -> None:
    """Judge the mixtures on shifts, if shifts are asked for and not saved yet.

    What their predictions give is scored before: judging takes minutes, and a rented machine may
    vanish.
    """
    if setting.scores:
        score_files(setting).add_mixtures(mixtures(setting), store)
    saved = saved_names(setting, with_shifts=True)
    judge_mixtures(mixtures(setting), saved, store, runtime)
