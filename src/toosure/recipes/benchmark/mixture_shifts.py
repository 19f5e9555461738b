"""How mixtures of runs fare under shifts: judged by checkpoints, written beside the runs."""

from collections.abc import Collection, Sequence
from pathlib import Path

from toosure.recipes.recipe import RunMixture
from toosure.recipes.run_store import RunStore
from toosure.runs.files import write_json
from toosure.runs.json_text import read_json
from toosure.shifts.record import ShiftRecord
from toosure.train import Runtime
from toosure.train.run_mixture import judge_mixture
from toosure.train.shifts import can_be_judged, fulfils

FOLDER = "mixtures"  # in the folder of the runs


def shifts_file(runs: Path, mixture: RunMixture) -> Path:
    """Return where the record of a mixture lies."""
    return runs / FOLDER / f"{mixture.name}.json"


def read_shifts(runs: Path, mixture: RunMixture) -> ShiftRecord | None:
    """Return how a mixture fares under shifts; None where it was not judged, or not readably."""
    return ShiftRecord.read(read_json(shifts_file(runs, mixture), if_damaged={}))


def judge_mixtures(
    mixtures: Sequence[RunMixture], kept: Collection[RunMixture], store: RunStore, runtime: Runtime
) -> None:
    """Judge the mixtures that are not `kept` and whose members all have their weights.

    Nothing is judged where `runtime` asks for no shifts.
    """
    if runtime.shifts is None:
        return
    for mixture in mixtures:
        known = read_shifts(store.folder, mixture)
        if mixture in kept or fulfils(known, runtime.shifts, mixture.config.data):
            continue

        runs = store.runs(mixture.members)
        if len(runs) < len(mixture.members) or not all(can_be_judged(run) for run in runs):
            continue
        with runtime.cpu_threads():
            record = judge_mixture([run.path for run in runs], runtime)
        write_json(shifts_file(store.folder, mixture), record.as_json())
