"""The pieces of a recipe: parts with runs and judgements, claims, tables and figures."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from toosure.config import RunConfig
from toosure.recipes.run_store import RunStore
from toosure.shifts.plan import ShiftPlan, plan_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from toosure.train import Runtime


# What is saved of a run when it ends: scores with or without per-image values, or nothing.
Saves = Literal["examples", "scores", "nothing"]


@dataclass(frozen=True)
class Setting:
    """How to carry out a recipe: small or full, on which data, with which seeds.

    In recipes, `sam:rho=0.1` is a word, and `rho` is one of its options. Without `seeds`, each part
    uses its own. `methods`, `full` and `scores` are for recipes that save scores: rows to add by
    their words, the paper's full size, and the folder of the score files. `steps` is the length of
    runs in parts that take it. With `shift`, the word of `--shift`, a run is missing if it was not
    judged on so many images and on all sets of `ood`, which are words of `--ood`.

    >>> Setting(seeds=(3,)).seeds_or(0, 1), Setting().seeds_or(0, 1)
    ((3,), (0, 1))
    >>> Setting(data="cifar10,cifar100").data_sets
    ('cifar10', 'cifar100')
    """

    quick: bool = False
    data: str = "cifar10"
    seeds: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    full: bool = False
    scores: str = ""
    steps: int | None = None
    shift: str = ""
    ood: tuple[str, ...] = ()

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The names in `data`; some recipes take several."""
        return tuple(dict.fromkeys(name.strip() for name in self.data.split(",") if name.strip()))

    @property
    def shift_plan(self) -> ShiftPlan | None:
        """The shifts that runs are judged on, as far as the command names them."""
        return plan_of(self.shift, self.ood) if self.shift else None

    def seeds_or(self, *default: int) -> tuple[int, ...]:
        """Return the seeds of the command, or a part's default ones."""
        return self.seeds or default

    @property
    def first_seed(self) -> int:
        """The seed of parts with a single seed."""
        return min(self.seeds_or(0))

    @property
    def on_paper_data(self) -> bool:
        """Whether the runs use the paper's data, so that its figures may stand beside them."""
        return not self.quick and self.data == "cifar10"

    @property
    def why_not_judged(self) -> str:
        """The reason not to judge by the paper's figures; empty on the paper's data."""
        return "" if self.on_paper_data else "judged on CIFAR-10 only"

    @property
    def why_not_judged_on_cifar(self) -> str:
        """The reason not to judge; empty for full runs on the CIFAR sets."""
        judged = not self.quick and set(self.data_sets) <= {"cifar10", "cifar100"}
        return "" if judged else "judged on CIFAR-10 and CIFAR-100 only"


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, what our runs show, what the paper shows, and whether it holds.

    `passed` is None if the claim is not judged; `note` gives the reason.
    """

    statement: str
    found: str
    paper: str = ""
    passed: bool | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        return {True: "pass", False: "FAIL", None: "not judged"}[self.passed]


def judge(
    statement: str,
    *,
    found: str,
    paper: str,
    holds: bool,
    rule: str = "",
    reasons: Iterable[str] = (),
) -> Claim:
    """Return a claim that `holds` decides; it is not judged if one of `reasons` is not empty.

    `rule` states the threshold if it is ours and not the paper's.

    >>> judge("ECE falls", found="0.1", paper="falls", holds=True, rule="ours: below .2").verdict
    'pass'
    >>> claim = judge("ECE falls", found="0.1", paper="falls", holds=True,
    ...               reasons=["", missing_runs(3, 4)])
    >>> claim.verdict, claim.note
    ('not judged', '1 of 4 runs missing or ended early')
    """
    note = "; ".join(reason for reason in reasons if reason)
    if note:
        return Claim(statement, found, paper, None, note)
    return Claim(statement, found, paper, bool(holds), rule)


def missing_runs(present: int, expected: int) -> str:
    """Return a text with the number of missing runs; empty if none is missing."""
    missing = expected - present
    return f"{missing} of {expected} runs missing or ended early" if missing > 0 else ""


def single_run(*counts: int) -> str:
    """Return the reason not to judge a single run; empty if every side has several.

    >>> single_run(1, 3), single_run(2, 3)
    ('n = 1: reported, not judged', '')
    """
    return "n = 1: reported, not judged" if min(counts, default=0) == 1 else ""


def claim_without_runs(statement: str) -> Claim:
    """Return a claim that cannot be judged because no run is complete."""
    return Claim(statement, "–", note="no complete run")


def claims_without_runs(*sentences: str) -> list[Claim]:
    """Return a claim without runs for each statement."""
    return [claim_without_runs(statement) for statement in sentences]


@dataclass(frozen=True)
class Table:
    """A printed table: title, header, rows of text, and a note on how the numbers were made."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.header) for row in self.rows), self.title


@dataclass(frozen=True)
class Drawing:
    """A figure drawn on demand: file name, title, note, and the function that draws it."""

    name: str
    title: str
    note: str
    draw: "Callable[[], Figure]"


@dataclass
class Findings:
    """Claims and tables of a part; `values` holds unrounded numbers for the JSON file."""

    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunMixture:
    """Runs of one method whose probabilities are averaged.

    `config` is the single run to compare with. `extra` holds the members that the recipe does not
    show alone.
    """

    config: RunConfig
    members: tuple[RunConfig, ...]
    extra: frozenset[RunConfig] = frozenset()

    @property
    def name(self) -> str:
        """A name for files: the name of the first member, and a hash of all names."""
        names = [member.name for member in self.members]
        digest = hashlib.sha256(" + ".join(names).encode()).hexdigest()[:8]
        return f"{names[0]}-and-{len(names) - 1}-{digest}"


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper: its runs, and functions that read them.

    A part that is not `by_default` is made only if it is named. The runs of a part that
    `takes_steps` have the length of the setting's `steps`. `after_training` does the remaining work
    on complete runs that needs data and a device. `mixtures` are made of runs in `configs`. `saves`
    is what is saved of a run as soon as it ends, if the recipe saves scores.
    """

    name: str
    summary: str
    configs: Callable[[Setting], Sequence[RunConfig]]
    findings: Callable[[Setting, RunStore], Findings]
    drawings: Callable[[Setting, RunStore], list[Drawing]] = lambda setting, store: []
    by_default: bool = True
    takes_steps: bool = False
    after_training: "Callable[[Setting, RunStore, Runtime], None] | None" = None
    mixtures: Callable[[Setting], Sequence[RunMixture]] = lambda setting: ()
    saves: Saves = "examples"


@dataclass(frozen=True)
class Recipe:
    """A paper as parts: each a table or a figure with its runs and claims.

    `options` are the options of `toosure reproduce` that only some recipes take. With
    `several_data_sets`, `--data` may name several. `folder` is the default folder of its runs below
    `runs/`; without it, the name of the recipe.
    """

    name: str
    title: str
    reference: str
    parts: tuple[Part, ...]
    options: frozenset[str] = frozenset()
    several_data_sets: bool = False
    folder: str = ""

    def part(self, name: str) -> Part:
        for part in self.parts:
            if part.name == name:
                return part
        known = ", ".join(part.name for part in self.parts)
        raise ValueError(f"{self.name} has no part {name!r}. Known: {known}")

    def chosen(self, only: Sequence[str]) -> list[Part]:
        """Return the parts named in `only`, in the recipe's order, or the default parts."""
        names = {self.part(name).name for name in only}
        if names:
            return [part for part in self.parts if part.name in names]
        return [part for part in self.parts if part.by_default]
