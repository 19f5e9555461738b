"""Runs with a controller: the sensor with its dead band, and the actuator."""

from toosure.figures import Group
from toosure.figures.control import SENSORS, control_figure, control_panels
from toosure.figures.groups import Measured
from toosure.figures.style import PALETTE
from toosure.page.html import FIGURE_TOOLS, plot, section
from toosure.page.page_runs import PageRuns
from toosure.runs.looks import with_looks

NOTE = (
    "On top what the controller saw on its control split, which is cut from training data and "
    "reported nowhere else: above 0 the network is too sure. Between the dashed lines it leaves "
    "the actuator alone. Below, what it moved; a point of the upper line says whether that look "
    "raised or lowered it."
)
EVENTS = {
    "control/gave_up": "At a cross it gave up and set the actuator back, since its moves did not "
    "help.",
    "control/held": "From a square on the actuator is held; soon after, the control split is "
    "trained on.",
}


def control(page: PageRuns) -> str:
    """Return sensor, dead band and actuator of runs with a controller; empty without one."""
    groups = [(page.places[group.label], steered_part(group)) for group in page.groups]
    groups = [(place, group) for place, group in groups if group.runs]
    steered = [run for _, group in groups for run in group.runs]
    if not steered:
        return ""

    colours = {place % len(PALETTE) for place, _ in groups}
    if len(colours) < len(groups):  # of many settings, which could not be told apart here
        groups = [(place, group) for place, (_, group) in enumerate(groups)]

    title = "How the radius was steered"
    drawing = plot(control_figure(steered, groups=groups), title)
    seen = [text for flag, text in EVENTS.items() if any(happened(run, flag) for run in steered)]
    note = " ".join([NOTE, *seen])
    return section(title, note, f"<figure>{drawing}{FIGURE_TOOLS}</figure>", name="control")


def steered_part(group: Group) -> Group:
    """Return the steered runs of a setting with every look, under their names on the page."""
    steered = [
        (run, name)
        for run, name in zip(group.runs, group.names, strict=True)
        if any(key in SENSORS for key in control_panels([run]))
    ]
    runs = tuple(with_looks(run) for run, _ in steered)
    return Group(group.label, runs, tuple(name for _, name in steered))


def happened(run: Measured, flag: str) -> bool:
    """Whether some row of a run raises a flag."""
    return flag in run.columns and bool((run.columns[flag] == 1).any())
