"""Check that a saved state belongs to this watch and these examples."""

from collections.abc import Mapping, Sequence
from typing import Any

from toosure.processes import Processes

Notes = Mapping[str, Mapping[str, Any]]  # how the examples of each split were drawn


def check_same_watch(
    state: Mapping[str, Any], measures: Sequence[str], splits: Sequence[str], notes: Notes
) -> None:
    """Raise if a state is of other measures, other splits or other examples."""
    missing = {"steps", "measured", "snapshot_from", "seconds", "trackers"} - set(state)
    if missing:
        raise ValueError(
            "resume takes the `state_dict()` of a watch; this state lacks "
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
                f"the state was measured on other examples of {split} (hash {theirs}, now "
                f"{ours[split]}), and one run would mix both: give the same data, `examples` and "
                "`seed`, or start a run in another folder"
            )


def hashes_in(notes: Notes) -> dict[str, str]:
    """Return the hash of each split's examples; splits without one are left out."""
    return {name: note["sha256"] for name, note in notes.items() if "sha256" in note}


def check_same_everywhere(notes: Notes, processes: Processes) -> None:
    """Raise if the processes of a run hold different examples."""
    if processes.count == 1:
        return
    for name, text in hashes_in(notes).items():
        number = int(text[:15], 16)  # fits 64 bits with its sign
        largest, negative = processes.largest(number, -number)
        if largest != -negative:
            raise ValueError(
                f"the processes of this run hold different examples of {name}, but share one set: "
                "give every process the same tensors or the same Dataset, not a loader of its own "
                "share"
            )
