"""What the benchmark keeps of a run under shifts: means over corruptions, and AUROCs."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toosure.finite import json_ready
from toosure.recipes.series import spread_text
from toosure.runs import Run
from toosure.runs.json_text import read_json
from toosure.shifts.plan import ShiftPlan, named_place
from toosure.shifts.record import AVERAGE_FILE, METRICS, ShiftRecord

if TYPE_CHECKING:
    from toosure.recipes.benchmark.record import Record

UNKNOWN = {"cifar10": "cifar100", "cifar100": "cifar10", "digits": "noise"}
SETS = ("cifar10", "cifar100", "cifar10-c", "cifar100-c")  # of `--shift all` in a recipe
COLUMNS = ("OOD AUROC", "ECE under 15 x 5 corruptions")
NOTE = (
    "OOD AUROC, in per cent, is that of the largest probability of CIFAR-10 against CIFAR-100 test "
    "images, and the reverse. The ECE under corruptions is the mean over 15 kinds at 5 severities "
    "made from the test images. Both come from the runs that were judged at their end; those of "
    "bSAM are of its mean weights, whatever samples its other scores are of."
)


def shift_summary(run: Run) -> dict[str, Any] | None:
    """Return what is kept of a run's shifts; None where it was not judged on any.

    An average of weights predicts for the run in the benchmark: then it is what was judged of it.
    """
    values = run.shifts
    if average := run.config.get("average"):
        name = str(average).partition(":")[0]
        values = read_json(run.path / AVERAGE_FILE.format(name), if_damaged={})
    record = ShiftRecord.read(values)
    return None if record is None else summary_of(record)


def summary_of(record: ShiftRecord) -> dict[str, Any]:
    """Return what is kept of a record: means, and how well unknown images are told apart."""
    return {
        "images": record.images,
        "available": record.available,
        "corruptions": len(record.corruptions),
        "severities": record.severities,
        "mean": json_ready(record.means()),
        "by_severity": {
            str(severity): json_ready({metric: record.mean(metric, severity) for metric in METRICS})
            for severity in record.severities
        },
        "ood": {name: found.as_json() for name, found in record.ood.items()},
    }


def has_sets(shifts: Mapping[str, Any], words: Sequence[str], data: str) -> bool:
    """Whether what is kept of a run on `data` has all sets that words of `--ood` name."""
    wanted = ShiftPlan(ood=tuple(words)).without(data).ood
    return all(named_place(word)[0] in shifts.get("ood", {}) for word in wanted)


def adds_sets(record: "Record", names: Collection[str]) -> bool:
    """Whether a record has no shifts yet, or not all of the unknown sets that were judged now."""
    return record.shifts is None or not set(names) <= set(record.shifts.get("ood", {}))


def auroc_against(record: "Record", name: str, score: str = "confidence") -> float | None:
    """Return the AUROC of a run against a set of unknown images; None where it was not judged."""
    found = (record.shifts or {}).get("ood", {}).get(name)
    return None if found is None else float(found["scores"][score]["auroc"])


def corrupted_ece(record: "Record") -> float | None:
    """Return the mean ECE over 15 corruptions at 5 severities; None where it is not of them all."""
    shifts = record.shifts or {}
    if shifts.get("corruptions") != 15 or len(shifts.get("severities", ())) != 5:
        return None
    error = shifts["mean"]["ece"]
    return None if error is None else float(error)


def corrupted_ece_after_temperature(record: "Record") -> float | None:
    """Return the same after a temperature fitted on clean images; None where it was not kept."""
    if corrupted_ece(record) is None:
        return None
    error = (record.shifts or {})["mean"].get("ece_after_temperature")
    return None if error is None else float(error)


def cells(records: "Sequence[Record]") -> list[str]:
    """Print the columns of shifts of one method; fewer images than there are, are said."""
    unknown = UNKNOWN.get(records[0].data, "")
    judged = [record.shifts for record in records if record.shifts]
    some = {each["images"] for each in judged if each["images"] < each["available"]}
    remark = f", {min(some):,} images" if some else ""
    return [
        known_text([auroc_against(record, unknown) for record in records], remark),
        known_text([corrupted_ece(record) for record in records], remark),
    ]


def known_text(values: Sequence[float | None], remark: str = "") -> str:
    """Print the mean and spread of those that are known, and how many where they are not all.

    >>> known_text([0.5, None]), known_text([None]), known_text([0.8, 0.9])
    ('50.00 (1 of 2)', '–', '85.00 ± 7.07')
    """
    known = [100 * value for value in values if value is not None]
    if not known:
        return "–"
    some = f" ({len(known)} of {len(values)})" if len(known) < len(values) else ""
    return spread_text(known, ".2f") + some + remark
