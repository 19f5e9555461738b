"""The sections of the page of runs, in their order: report and live page show this one list.

To add a section, write a function from `PageRuns` to HTML in a file here, and add one line.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from toosure.page.page_runs import PageRuns
from toosure.page.sections.calibrators import calibrators
from toosure.page.sections.certificates import certificates
from toosure.page.sections.comparison import comparison
from toosure.page.sections.control import control
from toosure.page.sections.differences import differences
from toosure.page.sections.improvements import improvements
from toosure.page.sections.members import members
from toosure.page.sections.moments import moments
from toosure.page.sections.pareto import pareto
from toosure.page.sections.phase import correlations, phase
from toosure.page.sections.progress import progress
from toosure.page.sections.provenance import provenance
from toosure.page.sections.shifts import shifts
from toosure.page.sections.summary import summary
from toosure.page.sections.tradeoff import multiples, tradeoff
from toosure.page.sections.trajectories import refinement, trajectories
from toosure.page.sections.words import words

Make = Callable[[PageRuns], str]


@dataclass(frozen=True)
class Section:
    """One part of the page.

    `make` returns the HTML of the element with the id `name`, or an empty text. The live page
    replaces this element when runs grow. Sections with figures are not replaced: new rows are added
    to their figures. But `parts`, elements inside such a section, are replaced.
    """

    name: str
    make: Make
    holds_figures: bool = False
    parts: Mapping[str, Make] = field(default_factory=dict)

    def replaced(self) -> dict[str, Make]:
        """Return the elements that a live page replaces, by id."""
        whole = {} if self.holds_figures else {self.name: self.make}
        return {**whole, **self.parts}


SECTIONS = [
    Section("summary", summary),
    Section("progress", progress),
    Section("differences", differences),
    Section("helped", improvements),
    Section("tradeoff", tradeoff, holds_figures=True),
    Section("comparison", comparison),
    Section("members", members),
    Section("pareto", pareto, holds_figures=True),
    Section("trajectories", trajectories, holds_figures=True, parts={"refinement": refinement}),
    Section("multiples", multiples, holds_figures=True),
    Section("phase", phase, holds_figures=True, parts={"correlations": correlations}),
    Section("control", control, holds_figures=True),
    Section("moments", moments, holds_figures=True),
    Section("calibrators", calibrators),
    Section("shifts", shifts, holds_figures=True),
    Section("certificate", certificates),
    Section("provenance", provenance),
    Section("words", words),
]
