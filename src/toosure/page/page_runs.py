"""What a page is made of: the runs of a folder, grouped and named."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from toosure.figures import Group, group_runs
from toosure.figures.groups import name_of
from toosure.runs import Run


@dataclass(frozen=True)
class PageRuns:
    """The runs of a page; `source` is what to call them together."""

    runs: Sequence[Run]
    source: str = ""

    @cached_property
    def groups(self) -> list[Group]:
        """Runs that differ in their seed alone, together."""
        return group_runs(self.runs)

    @cached_property
    def named(self) -> list[tuple[str, Run]]:
        """Each run with what to call it, in the order of the groups."""
        return [(name_of(run, group), run) for group in self.groups for run in group.runs]
