"""The pieces of a recipe: parts that name runs and judge them, claims, tables and figures."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from toosure.config import RunConfig
from toosure.recipes.run_store import RunStore

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from toosure.train import Runtime


# What is kept of a run when it ends: its scores with or without those of each image, or nothing.
Saves = Literal["examples", "scores", "nothing"]


@dataclass(frozen=True)
class Setting:
    """How a recipe is carried out: small or as in the paper, on which data, with which seeds.

    What a word such as `sam:rho=0.1` sets is called its options in recipes, to keep the two apart.
    Without `seeds`, each part uses its own. `methods`, `full` and `scores` are for recipes that
    keep scores: rows to add by their words, the paper's full size, the folder of the score files.
    `steps` is the length of parts whose length the device decides.
    With `shifts`, a run that was not judged on shifts counts as missing, and one that was not
    judged against the sets of `ood`, words of `--ood`.

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
    shifts: bool = False
    ood: tuple[str, ...] = ()

    @property
    def data_sets(self) -> tuple[str, ...]:
        """The names in `data`, for recipes that take several."""
        return tuple(dict.fromkeys(name.strip() for name in self.data.split(",") if name.strip()))

    def seeds_or(self, *default: int) -> tuple[int, ...]:
        """Return the seeds of the command line, or the default ones of a part."""
        return self.seeds or default

    @property
    def first_seed(self) -> int:
        """The seed of everything that runs with a single seed."""
        return min(self.seeds_or(0))

    @property
    def on_paper_data(self) -> bool:
        """Whether the runs are on the paper's data, so that its figures may stand beside them."""
        return not self.quick and self.data == "cifar10"

    @property
    def why_not_judged(self) -> str:
        """Why the paper's figures decide nothing here; empty where they do."""
        return "" if self.on_paper_data else "judged on CIFAR-10 only"

    @property
    def why_not_judged_on_cifar(self) -> str:
        """Why nothing is judged where both CIFAR sets count; empty for full runs on them."""
        judged = not self.quick and set(self.data_sets) <= {"cifar10", "cifar100"}
        return "" if judged else "judged on CIFAR-10 and CIFAR-100 only"


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, what our runs show, what the paper shows, and whether it holds.

    `passed` is None where the claim is not judged; `note` then says why.
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
    """Return a claim judged by `holds`; it is not judged if a reason in `reasons` is not empty.

    `rule` states the threshold, where it is ours and not the paper's.

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
    """Say how many of the expected runs are missing; empty where none is, or more are present."""
    missing = expected - present
    return f"{missing} of {expected} runs missing or ended early" if missing > 0 else ""


def single_run(*counts: int) -> str:
    """Say that one run alone decides nothing; empty where every side has several.

    >>> single_run(1, 3), single_run(2, 3)
    ('n = 1: reported, not judged', '')
    """
    return "n = 1: reported, not judged" if min(counts, default=0) == 1 else ""


def claim_without_runs(statement: str) -> Claim:
    """Return a claim that cannot be judged because no run is complete."""
    return Claim(statement, "–", note="no complete run")


def claims_without_runs(*sentences: str) -> list[Claim]:
    """Return one such claim per sentence."""
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
    """A figure that is drawn on demand: file name, title, what to see in it, and the function."""

    name: str
    title: str
    note: str
    draw: "Callable[[], Figure]"


@dataclass
class Findings:
    """What the runs of a part show; `values` are the unrounded numbers for the JSON file."""

    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunMixture:
    """Runs of one method whose probabilities are averaged into one prediction.

    `config` is the single run that it is compared with. `extra` are the members that no part of
    the recipe shows alone.
    """

    config: RunConfig
    members: tuple[RunConfig, ...]
    extra: frozenset[RunConfig] = frozenset()

    @property
    def name(self) -> str:
        """A name for files: that of the first member, and a hash of the names of all."""
        names = [member.name for member in self.members]
        digest = hashlib.sha256(" + ".join(names).encode()).hexdigest()[:8]
        return f"{names[0]}-and-{len(names) - 1}-{digest}"


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper: the runs it needs, and functions that read them.

    A part that is not `by_default` is made only when it is asked for by name. The runs of one with
    `takes_steps` are as long as the setting's `steps` say. `after_training` is what remains to be
    done with its complete runs, where data and a device are needed. `mixtures` are made of its
    runs: `configs` has their members. `saves` says what is kept of a run as soon as it ends, where
    the recipe keeps scores.
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
    """A paper: its parts by name.

    `options` are those of `toosure reproduce` that it takes and not every recipe has. With
    `several_data_sets` it takes more than one in `--data`. `folder` is the default folder of its
    runs below `runs/`, by default its name.
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
        """Return the parts named in `only`, in the recipe's order; without names the usual ones."""
        names = {self.part(name).name for name in only}
        if names:
            return [part for part in self.parts if part.name in names]
        return [part for part in self.parts if part.by_default]
