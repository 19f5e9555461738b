"""What is saved of a run under shifts: means over corruptions, and AUROCs."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toosure.finite import json_ready
from toosure.recipes.recipe import Setting
from toosure.recipes.series import NOTHING, in_points, mean_std_text
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
    """Return the summary of a run's shifts, or None if it was not judged on any.

    If the run has an average of weights, the average predicts for it in the benchmark and is
    summarised.
    """
    values = run.shifts
    if average := run.config.get("average"):
        name = str(average).partition(":")[0]
        values = read_json(run.path / AVERAGE_FILE.format(name), if_damaged={})
    record = ShiftRecord.read(values)
    return None if record is None else summary_of(record)


def summary_of(record: ShiftRecord) -> dict[str, Any]:
    """Return what is saved of a record: means over corruptions, scores against unknown images."""
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
        "ood": {name: ood.as_json() for name, ood in record.ood.items()},
    }


def covers(shifts: Mapping[str, Any], setting: Setting, data: str) -> bool:
    """Whether the saved shifts of a run on `data` have the sets and images that are asked for."""
    plan = setting.shift_plan or ShiftPlan(ood=setting.ood)
    names = {named_place(word)[0] for word in plan.without(data).ood}
    wanted = min(plan.images or shifts["available"], shifts["available"])
    return shifts["images"] >= wanted and names <= set(shifts.get("ood", {}))


def adds_shifts(record: "Record", images: int, names: Collection[str]) -> bool:
    """Whether a record has no shifts yet, or fewer images, or lacks one of these unknown sets."""
    known = record.shifts
    if known is None or known["images"] < images:
        return True
    return not set(names) <= set(known.get("ood", {}))


def auroc_against(record: "Record", name: str) -> float | None:
    """Return the AUROC of a run against a set of unknown images, or None if it was not judged."""
    judged = (record.shifts or {}).get("ood", {}).get(name)
    return None if judged is None else float(judged["scores"]["confidence"]["auroc"])


def fewest_images(records: "Sequence[Record]") -> int | None:
    """Return on how many test images runs were judged, if not on all; the least of several."""
    judged = [record.shifts for record in records if record.shifts]
    some = [each["images"] for each in judged if each["images"] < each["available"]]
    return min(some, default=None)


def corrupted_ece(record: "Record") -> float | None:
    """Return the mean ECE over 15 corruptions at 5 severities, or None if it covers fewer."""
    shifts = record.shifts or {}
    if shifts.get("corruptions") != 15 or len(shifts.get("severities", ())) != 5:
        return None
    error = shifts["mean"]["ece"]
    return None if error is None else float(error)


def corrupted_ece_after_temperature(record: "Record") -> float | None:
    """Return the mean corrupted ECE after a temperature fitted on clean images, or None."""
    if corrupted_ece(record) is None:
        return None
    error = (record.shifts or {})["mean"].get("ece_after_temperature")
    return None if error is None else float(error)


def cells(records: "Sequence[Record]") -> list[str]:
    """Return the shift cells of one method; a remark says if only some images were judged."""
    unknown = UNKNOWN.get(records[0].data, "")
    some = fewest_images(records)
    remark = f", {some:,} images" if some else ""

    aurocs = [auroc_against(record, unknown) for record in records]
    errors = [corrupted_ece(record) for record in records]
    texts = [mean_std_text(in_points(values)) for values in (aurocs, errors)]
    return [text if text == NOTHING else text + remark for text in texts]
