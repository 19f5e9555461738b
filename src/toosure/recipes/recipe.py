"""What a recipe is made of: parts that name runs and judge them, claims, tables, figures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toosure.config import RunConfig
from toosure.runs import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Setting:
    """What is asked of a recipe: the quick version or the paper's, the data set, the seeds.

    Without `seeds`, each part takes its own.

    >>> Setting(seeds=(3,)).among(0, 1), Setting().among(0, 1)
    ((3,), (0, 1))
    """

    quick: bool = False
    data: str = "cifar10"
    seeds: tuple[int, ...] = ()

    def among(self, *usual: int) -> tuple[int, ...]:
        """Return the seeds asked for, or the usual ones of a part."""
        return self.seeds or usual

    @property
    def first(self) -> int:
        """The seed of what is run with one seed."""
        return min(self.among(0))

    @property
    def elsewhere(self) -> str:
        """Why a figure of the paper decides nothing here; empty where it does."""
        papers = not self.quick and self.data == "cifar10"
        return "" if papers else "judged on CIFAR-10 only"


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, what was found, what the paper has, and whether it holds.

    `passed` is None where nothing is judged; `note` then says why.
    """

    says: str
    found: str
    paper: str = ""
    passed: bool | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        return {True: "pass", False: "FAIL", None: "not judged"}[self.passed]


def judged(says: str, found: str, paper: str, holds: bool, rule: str = "", *unless: str) -> Claim:
    """Return a claim judged by `holds`, or not judged for the reasons that are not empty.

    >>> judged("ECE falls", "0.1", "falls", True, "ours: below .2").verdict
    'pass'
    >>> claim = judged("ECE falls", "0.1", "falls", True, "", "", lacking(3, 4))
    >>> claim.verdict, claim.note
    ('not judged', '1 of 4 runs missing or ended early')
    """
    why = "; ".join(reason for reason in unless if reason)
    return Claim(says, found, paper, None if why else bool(holds), why or rule)


def lacking(found: int, wanted: int) -> str:
    """Say how many of the wanted runs are not there; nothing where all are."""
    missing = wanted - found
    return f"{missing} of {wanted} runs missing or ended early" if missing else ""


def unrun(*sayings: str) -> list[Claim]:
    """Return claims for which there is no run."""
    return [Claim(says, "–", note="no complete run") for says in sayings]


@dataclass(frozen=True)
class Table:
    """Numbers side by side: a title, how they were made, a header and rows of texts."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.header) for row in self.rows), self.title


@dataclass(frozen=True)
class Drawing:
    """A figure to be: its file name, a title, what to see in it, and a function that draws it."""

    name: str
    title: str
    note: str
    draw: "Callable[[], Figure]"


@dataclass
class Findings:
    """What a part found."""

    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)  # for the JSON, unrounded


class Shelf:
    """Find the runs of configs in a folder; keep those that ended well, and remember the others."""

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self.read: dict[str, Run] = {}
        self.ill: dict[str, str] = {}  # run name -> what is wrong with it

    def runs(self, configs: Iterable[RunConfig], diverged: bool = False) -> list[Run]:
        """Return the complete runs among `configs`, in order; those that `diverged` if asked."""
        return [run for config in configs if (run := self.run(config, diverged)) is not None]

    def run(self, config: RunConfig, diverged: bool = False) -> Run | None:
        """Return the run of a config, or nothing where it is missing or did not end well."""
        if config.name not in self.read:
            folder = self.out / config.name
            if not (folder / "config.json").is_file():
                self.ill[config.name] = "missing"
                return None
            self.read[config.name] = Run(folder)
        run = self.read[config.name]
        if run.status == "complete" and len(run.rows) > 1:
            return run
        if run.status == "complete":
            self.ill[run.name] = f"complete, but only {len(run.rows)} rows are left of it"
            return None
        self.ill[run.name] = run.ending
        return run if diverged and run.status == "diverged" and len(run.rows) > 2 else None


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper: the runs it needs and what is said of them."""

    name: str
    says: str
    configs: Callable[[Setting], Sequence[RunConfig]]
    findings: Callable[[Setting, Shelf], Findings]
    drawings: "Callable[[Setting, Shelf], list[Drawing]]" = lambda setting, shelf: []
    usual: bool = True  # made when nothing is asked for in particular


@dataclass(frozen=True)
class Recipe:
    """A paper: its parts by name."""

    name: str
    title: str
    reference: str
    parts: tuple[Part, ...]

    def part(self, name: str) -> Part:
        for part in self.parts:
            if part.name == name:
                return part
        known = ", ".join(part.name for part in self.parts)
        raise ValueError(f"{self.name} has no part {name!r}. Known: {known}")

    def chosen(self, only: Sequence[str]) -> list[Part]:
        """Return the parts asked for in the recipe's order, or the usual ones."""
        asked = {self.part(name).name for name in only}
        return [p for p in self.parts if (p.name in asked if asked else p.usual)]
