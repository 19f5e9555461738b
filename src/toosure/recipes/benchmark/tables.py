"""The tables of the benchmark: one row per method, and paired differences between methods."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from toosure.config import RunConfig
from toosure.recipes.benchmark import methods, protocol, shift_scores
from toosure.recipes.benchmark.paired import PairedScores
from toosure.recipes.benchmark.record import Record
from toosure.recipes.benchmark.score_files import ScoreFiles, score_files
from toosure.recipes.commits import commits_text
from toosure.recipes.parameters import network_size
from toosure.recipes.recipe import Claim, Findings, Setting, Table
from toosure.recipes.run_store import RunStore
from toosure.recipes.series import mean_std_text
from toosure.runs import find_runs

SCORES: dict[str, tuple[str, float, str]] = {
    "accuracy": ("accuracy %", 100, ".2f"),
    "nll": ("NLL", 1, ".4f"),
    "ece": ("ECE", 100, ".2f"),
    "debiased_ece": ("debiased ECE", 100, ".2f"),
    "smece": ("smECE", 100, ".2f"),
    "adaptive_ece": ("AdaECE", 100, ".2f"),
    "classwise_ece": ("classwise ECE", 100, ".3f"),
    "auroc_ovr_binned": ("AUROC", 100, ".2f"),
    "aurc": ("AURC", 1, ".4f"),
}
AFTER = ("TCE", "NLL after T", "T", "validation NLL")
COST = ("seconds", "passes", "parameters", "commit")
HEADER = (
    "method",
    "seeds",
    *(name for name, _, _ in SCORES.values()),
    *AFTER,
    *shift_scores.COLUMNS,
    *COST,
)
NOTE = (
    f"ResNet-18 (CIFAR stem), {protocol.DESCRIPTION}; 10,000 test images at the end of training. "
    "Mean ± standard deviation over seeds; errors in points; TCE is the ECE after a temperature "
    "T fitted on the validation images; AUROC (in %) is one class against the rest on 15 "
    "thresholds, as the CSAM paper's seems to be. Seconds of training stand where no other run "
    "shared the device. Passes are forward and backward passes per training image and step. A "
    "perfectly calibrated network as sure as these shows an ECE of .3 to 1.0 (CIFAR-10) or .8 to "
    "1.3 (CIFAR-100) by chance at this n, so the debiased ECE and smECE stand beside it. "
    f"{shift_scores.NOTE}"
)
PAIRED_NOTE = (
    "Means over the seeds that both have; 95 % intervals resample the test images (2,000 times). "
    "The interval of an ECE's difference need not lie around the difference: resampling adds noise "
    "to bins, and so to small errors."
)
PAIRED_HEADER = ("second - first", "seeds", "accuracy, points", "NLL", "ECE, points")

PASSES = {"sam": 2, "asam": 2, "vasso": 2, "csam": 2, "bsam": 2}
OBJECTIVE_PASSES: dict[str, Callable[[RunConfig], float]] = {
    "mit": lambda config: 2,
    "batch_ensemble": lambda config: objective_value(config, "members"),
    "rank1": lambda config: objective_value(config, "members"),
    "mimo": lambda config: objective_value(config, "repeat"),
    "deep_ensemble": lambda config: objective_value(config, "members"),
    "ccat": lambda config: (
        1 + objective_value(config, "share") * objective_value(config, "attack_steps")
    ),
}
UNCOUNTED = ("gamma_net", "meta_smoothing", "calmo", "margin_tail")  # passes through other graphs

Groups = dict[str, list[Record]]  # by the method's label


def findings(setting: Setting, store: RunStore) -> Findings:
    """Score the runs that are new, and return the tables of all scored methods."""
    files = protocol_scores(setting, store)
    tables = []
    values: dict[str, object] = {}

    for data in data_names(setting):
        groups = grouped(files, setting, data)
        rows = tuple(row(name, records) for name, records in groups.items())
        tables.append(Table(data, HEADER, rows, NOTE))
        paired = paired_rows(groups, files, data)
        if paired:
            tables.append(Table(f"{data}: paired differences", PAIRED_HEADER, paired, PAIRED_NOTE))
        values[data] = {name: [r.test for r in records] for name, records in groups.items()}
    return Findings(unavailable_rows(setting), tables, values)


def protocol_scores(setting: Setting, store: RunStore) -> ScoreFiles:
    """Return the saved scores, extended by the finished runs of the store's folder."""
    files = score_files(setting)
    folder = store.folder
    runs = find_runs(folder) if folder.is_dir() else []
    files.add(run for run in runs if is_of_protocol(run.config, setting))
    return files


def is_of_protocol(values: dict[str, object], setting: Setting) -> bool:
    """Whether a run folder's config follows the protocol; a config with unknown words does not."""
    try:
        return protocol.follows_protocol(RunConfig.of(values), setting)
    except ValueError:
        return False


def data_names(setting: Setting) -> tuple[str, ...]:
    """Return the data sets that have a table; quick runs use digits."""
    return ("digits",) if setting.quick else setting.data_sets


def grouped(files: ScoreFiles, setting: Setting, data: str) -> Groups:
    """Return the records of a data set by method, ordered by seed."""
    groups: Groups = {}
    chosen = [record for record in files.records.values() if record.data == data]
    for record in sorted(chosen, key=lambda r: (protocol.label(r.config), r.config.seed)):
        if protocol.follows_protocol(record.config, setting):
            groups.setdefault(protocol.label(record.config), []).append(record)
    return groups


def unavailable_rows(setting: Setting) -> list[Claim]:
    """Return a claim without a verdict for each method that has an unknown word."""
    return [
        Claim(name, "–", note=why) for name, why in methods.unavailable_methods(setting).items()
    ]


# -- rows -----------------------------------------------------------------------------------------


def row(name: str, records: Sequence[Record]) -> tuple[str, ...]:
    """Return the cells of one method."""

    def spread(values: Iterable[float], scale: float, form: str) -> str:
        return mean_std_text([scale * value for value in values], form)

    cells = [f"`{name}`", str(len(records))]
    for key, (_, scale, form) in SCORES.items():
        cells.append(spread((r.test[key] for r in records), scale, form))

    cells.append(spread((r.test_after_temperature["ece"] for r in records), 100, ".2f"))
    cells.append(spread((r.test_after_temperature["nll"] for r in records), 1, ".4f"))
    cells.append(mean_std_text([r.temperature for r in records], ".3f"))
    cells.append(spread((r.val["nll"] for r in records), 1, ".4f"))
    cells += shift_scores.cells(records)

    cells.append(spread((r.training_seconds for r in records if r.alone), 1, ".0f"))
    config = records[0].config
    commits = commits_text(record.commit for record in records)
    return *cells, passes_text(config), f"{network_size(config):,}", commits


def objective_value(config: RunConfig, name: str) -> float:
    """Return an option of a run's objective: the given value, or the default."""
    return float(config.word("objective").value(name))


def passes_text(config: RunConfig) -> str:
    """Return the passes per training image and step; a dash if they cannot be counted so."""
    objective = config.word("objective").name if config.objective else ""
    if objective in UNCOUNTED:
        return "–"
    passes: float = PASSES.get(config.word("optimizer").name, 1)
    if objective in OBJECTIVE_PASSES:
        passes *= OBJECTIVE_PASSES[objective](config)
    return f"{passes:g}"


def paired_rows(groups: Groups, files: ScoreFiles, data: str) -> tuple[tuple[str, ...], ...]:
    """Return differences of methods with several seeds: to SGD, and among SAM's variants."""
    names = sorted((name for name in groups if len(groups[name]) > 1), key=lambda n: n != "sgd")
    scores = PairedScores(files.examples)
    rows = []
    for one, other in combinations(names, 2):
        if not shown_as_pair(one, other, data):
            continue
        result = scores.differences(groups[one], groups[other])
        if result is not None:
            texts = (result.accuracy.text(), result.nll.text("+.4f"), result.ece.text())
            rows.append((f"`{other}` - `{one}`", str(result.seeds), *texts))
    return tuple(rows)


def shown_as_pair(one: str, other: str, data: str) -> bool:
    """Whether one of two methods is SGD, or both are sharpness-aware with their chosen settings."""
    chosen = methods.SHARPNESS_AWARE.get(data, {}).values()
    return "sgd" in (one, other) or (one in chosen and other in chosen)
