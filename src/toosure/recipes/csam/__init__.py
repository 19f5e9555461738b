"""The recipe of "Towards Understanding the Calibration Benefits of SAM" (Tan et al., 2026)."""

from collections.abc import Callable

from toosure.config import RunConfig
from toosure.recipes.benchmark.scored_rows import Row, configs_of
from toosure.recipes.csam import (
    ensemble_rows,
    figure_findings,
    figure_rows,
    figures,
    imagenet,
    imagenet_c,
    imagenet_rows,
    parts,
    rows,
)
from toosure.recipes.recipe import Part, Recipe, Setting

CIFAR = ("cifar10", "cifar100")


def cifar_configs(
    table_rows: Callable[[Setting], list[Row]], also_on: tuple[str, ...] = ()
) -> Callable[[Setting], list[RunConfig]]:
    """Return a part's `configs`: the runs of its rows on the CIFAR sets and on `also_on`."""

    def configs(setting: Setting) -> list[RunConfig]:
        if set(setting.data_sets) - {*CIFAR, *also_on}:
            raise ValueError(
                f"csam runs on {' and '.join(CIFAR)}, --only networks also on tiny_imagenet; got "
                f"--data {setting.data}"
            )
        return configs_of(table_rows(setting))

    return configs


RECIPE = Recipe(
    "csam",
    "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization",
    "Tan et al., ICLR 2026",
    (
        Part(
            "sam-variants",
            "SGD, SAM, ASAM, VASSO, CSAM (Tables S11, S12)",
            cifar_configs(rows.sam_variants),
            parts.sam_variants,
        ),
        Part(
            "baselines",
            "sixteen methods (Tables 3, S5)",
            cifar_configs(rows.baselines),
            parts.baselines,
        ),
        Part("losses", "calibration losses (Table S13)", cifar_configs(rows.losses), parts.losses),
        Part("grid", "rho by gamma (Table S4)", cifar_configs(rows.grid), parts.grid),
        Part(
            "sharpness",
            "kappa_max, CIFAR-100 (Table S16)",
            cifar_configs(rows.sharpness),
            parts.sharpness,
        ),
        Part(
            "ood",
            "MC-Dropout and ensembles, CIFAR-10; unknown data (Table 1)",
            cifar_configs(ensemble_rows.ood),
            parts.ood,
            after_training=ensemble_rows.judge_ensembles,
            mixtures=ensemble_rows.mixtures,
        ),
        Part(
            "combined",
            "SAM and CSAM on other losses, CIFAR-100 (Table S15)",
            cifar_configs(rows.combined),
            parts.combined,
            by_default=False,
        ),
        Part(
            "networks",
            "four networks, nine methods; also Tiny-ImageNet (Tables S6 to S10)",
            cifar_configs(rows.networks, also_on=("tiny_imagenet",)),
            parts.networks,
            by_default=False,
        ),
        Part(
            "figures",
            "confidence, SAM's theory, calibration along training, radii, gammas (1, 2, 3, S5, S6)",
            cifar_configs(figure_rows.all_rows),
            figure_findings.findings,
            figures.drawings,
            by_default=False,
        ),
        Part(
            "imagenet",
            "ImageNet and ImageNet-C, at the paper's size (Tables 2, S14; Figure S4)",
            imagenet_rows.configs,
            imagenet.findings,
            imagenet.drawings,
            by_default=False,
            after_training=imagenet_c.judge_runs,
            saves="nothing",  # only later, by the findings, when it is judged on ImageNet-C
        ),
    ),
    options=frozenset({"--full", "--scores", "--shift"}),
    several_data_sets=True,
    folder="benchmark",
)
