"""Whether a state that a watch is to go on from is one of the same watch, on the same examples."""

from collections.abc import Mapping, Sequence
from typing import Any

from toosure.processes import Processes

Notes = Mapping[str, Mapping[str, Any]]  # how the examples of each split came about


def check_same_watch(
    state: Mapping[str, Any], measures: Sequence[str], splits: Sequence[str], notes: Notes
) -> None:
    """Raise where a state measured something else, or on other examples."""
    missing = {"steps", "measured", "snapshot_from", "seconds", "trackers"} - set(state)
    if missing:
        raise ValueError(
            "resume takes what `state_dict()` of a watch gave; this has no "
            f"{', '.join(sorted(missing))}: is it the state of something else?"
        )
    for name, own in (("measure", measures), ("splits", splits)):
        other = tuple(state.get(name, own))
        if set(other) != set(own):
            raise ValueError(f"the state is of a watch with {name} {other}; got {own}")

    ours = hashes_in(notes)
    for split, theirs in state.get("examples", {}).items():
        if split in ours and ours[split] != theirs:
            raise ValueError(
                f"the state was measured on other examples of {split} (hash {theirs}; these have "
                f"{ours[split]}), and one run would mix the two: give the same data, `examples` "
                "and `seed`, or start a run in another folder"
            )


def hashes_in(notes: Notes) -> dict[str, str]:
    """Return the hash of each split's examples, where one was taken."""
    return {name: note["sha256"] for name, note in notes.items() if "sha256" in note}


def check_same_everywhere(notes: Notes, processes: Processes) -> None:
    """Raise where the processes of a run do not hold the same examples."""
    if processes.count == 1:
        return
    for name, text in hashes_in(notes).items():
        number = int(text[:15], 16)  # fits 64 bits with its sign
        largest, negative = processes.largest(number, -number)
        if largest != -negative:
            raise ValueError(
                f"the processes of this run hold different examples of {name}, and each measures "
                "its part of one set: give each the same tensors, or a Dataset and not a loader "
                "of the process's own share"
            )
