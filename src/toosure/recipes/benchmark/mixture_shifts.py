"""Judge mixtures of runs under shifts by checkpoints, and save the results beside the runs."""

from collections.abc import Collection, Iterable
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
    """Return the file that holds the shifts of a mixture."""
    return runs / FOLDER / f"{mixture.name}.json"


def read_shifts(runs: Path, mixture: RunMixture) -> ShiftRecord | None:
    """Return the shifts of a mixture, or None if it was not judged or the file is damaged."""
    return ShiftRecord.read(read_json(shifts_file(runs, mixture), if_damaged={}))


def judge_mixtures(
    mixtures: Iterable[RunMixture], saved: Collection[str], store: RunStore, runtime: Runtime
) -> None:
    """Judge the mixtures whose names are not in `saved` and whose members all have weights.

    Nothing is judged if `runtime` asks for no shifts.
    """
    if runtime.shifts is None:
        return
    for mixture in mixtures:
        known = read_shifts(store.folder, mixture)
        if mixture.name in saved or fulfils(known, runtime.shifts, mixture.config.data):
            continue

        runs = store.runs(mixture.members)
        if len(runs) < len(mixture.members) or not all(can_be_judged(run) for run in runs):
            continue
        with runtime.cpu_threads():
            record = judge_mixture([run.path for run in runs], runtime)
        write_json(shifts_file(store.folder, mixture), record.as_json())
