"""The runs of a page: grouped, named, ranked and compared, each computed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from toosure.figures import Group, group_runs, panel_keys
from toosure.page.data_sets import UNNAMED, data_sets_of
from toosure.page.paired import SettingComparison, compare_settings
from toosure.page.ranking import RankedSetting, rank_settings
from toosure.page.run_verdict import RunVerdict, judge
from toosure.runs import Run

# The optimizers that others are compared with, in this order.
BASELINES = ("sgd", "gd", "adam", "adamw")


@dataclass(frozen=True)
class PageRuns:
    """The runs of a page.

    `source` names them together, `conclusion` is a sentence by their author. `colours` holds the
    colours of an earlier page, by label, so that a live page keeps them when the order changes.
    """

    runs: Sequence[Run]
    source: str = ""
    conclusion: str = ""
    colours: Mapping[str, int] = field(default_factory=dict)
    given_settings: Sequence[RankedSetting] = ()  # of a part of a page, with its labels

    @cached_property
    def ranked_settings(self) -> list[RankedSetting]:
        """Every setting, in the one order of the page: data set by data set, by validation NLL."""
        if self.given_settings:
            return list(self.given_settings)
        data_sets = data_sets_of(self.runs)
        groups = group_runs(self.runs, [data_sets[run.id] for run in self.runs])
        ranked = rank_settings(groups, self.verdicts, data_sets)
        names = list(dict.fromkeys(data_sets.values()))
        return sorted(ranked, key=lambda setting: names.index(setting.data))

    @cached_property
    def by_data_set(self) -> "dict[str, PageRuns]":
        """The page in parts, by data set: numbers of different data cannot be ranked together."""
        settings: dict[str, list[RankedSetting]] = {}
        for setting in self.ranked_settings:
            settings.setdefault(setting.data, []).append(setting)

        if len(settings) < 2:
            return dict.fromkeys(settings, self)
        return {
            name: replace(
                self,
                runs=[run for setting in own for run in setting.group.runs],
                colours=self.places,
                given_settings=own,
            )
            for name, own in settings.items()
        }

    @property
    def headed_parts(self) -> "list[tuple[str, PageRuns]]":
        """The parts with the names of their data sets as headings; a single part needs none."""
        several = len(self.by_data_set) > 1
        return [
            ((name or UNNAMED) if several else "", part) for name, part in self.by_data_set.items()
        ]

    @cached_property
    def verdicts(self) -> dict[str, RunVerdict]:
        """The verdict on each run, by its id."""
        return {run.id: judge(run) for run in self.runs}

    @cached_property
    def groups(self) -> list[Group]:
        """Groups of runs that differ only in their seed, in the order of the page."""
        return [setting.group for setting in self.ranked_settings]

    @cached_property
    def named(self) -> list[tuple[str, Run]]:
        """Each run with its name on the page, in the order of the groups."""
        return [pair for group in self.groups for pair in zip(group.names, group.runs, strict=True)]

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each setting in the palette, by label."""
        places = dict(self.colours)
        for group in self.groups:
            places.setdefault(group.label, len(places))
        return places

    @cached_property
    def panel_keys(self) -> list[str]:
        """The quantities that have a panel: those that some run measured."""
        return panel_keys(self.runs)

    @property
    def training_only(self) -> bool:
        """Whether no run has validation data, or only its training data under that name."""
        return all(run.training_only for run in self.runs)

    @cached_property
    def comparison(self) -> SettingComparison | None:
        """The settings on the same examples, with resampled scores; None if there are none."""
        return compare_settings(self.groups)

    @property
    def why_reference(self) -> str:
        """Why others are compared with it, after its name."""
        name = optimizer_of(self.reference)
        if name in BASELINES:
            return f"the plain optimizer {name}"
        return "the first of the ranking, since no setting is a plain optimizer"

    @cached_property
    def reference(self) -> Group:
        """The setting that others are compared with by default: the plainest optimizer."""

        def baseline_rank(group: Group) -> tuple[int, int, int]:
            config = group.runs[0].config
            name = optimizer_of(group)
            extras = sum(config.get(key) is not None for key in ("objective", "ensemble"))
            is_plain = str(config.get("loss") or "ce").partition(":")[0] in ("ce", "cross_entropy")
            rank = BASELINES.index(name) if name in BASELINES else len(BASELINES)
            return extras + (not is_plain), rank, self.groups.index(group)

        compared = self.comparison.settings if self.comparison else {}
        candidates = [group for group in self.groups if group.label in compared] or self.groups
        return min(candidates, key=baseline_rank)


def optimizer_of(group: Group) -> str:
    """Return the name of the optimizer in the config of a group."""
    return str(group.runs[0].config.get("optimizer", "")).partition(":")[0]
