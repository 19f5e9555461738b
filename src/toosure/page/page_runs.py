"""The runs of a page: grouped, named, ranked and compared, each computed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from toosure.figures import Group, group_runs, panel_keys
from toosure.figures.groups import seed_of
from toosure.page.data_sets import UNNAMED, data_sets_of
from toosure.page.paired import SettingComparison, compare_settings
from toosure.page.ranking import ENDED_EARLY, RankedSetting, rank_settings
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
    left_out: Sequence[str] = ()  # sentences on copies of these runs, which are not among them

    @cached_property
    def ranked_settings(self) -> list[RankedSetting]:
        """Every setting, in the one order of the page: data set by data set, by validation NLL."""
        if self.given_settings:
            return list(self.given_settings)
        data_sets = data_sets_of(self.runs)
        early = {run for run in self.runs if run.status in ENDED_EARLY}
        groups = group_runs(self.runs, [data_sets[run.id] for run in self.runs], early)
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
    def distinct_groups(self) -> list[Group]:
        """The groups that are settings; others repeat seeds of one of them."""
        return [group for group in self.groups if not group.repeats]

    @cached_property
    def cautions(self) -> list[str]:
        """Which runs are copies or repeats, and do not count as seeds, a sentence each."""
        repeated = [group for group in self.groups if group.repeats]
        return [*self.left_out, *(text for group in repeated for text in on_repeats(group, self))]

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
        return compare_settings(self.distinct_groups)

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
        settings = self.distinct_groups
        candidates = [group for group in settings if group.label in compared] or settings
        return min(candidates, key=baseline_rank)


def on_repeats(group: Group, page: PageRuns) -> list[str]:
    """Say of every run of a group which run has the same setting and seed."""
    setting = next(each for each in page.groups if each.label == group.repeats)
    counted = {seed_of(run): run for run in setting.runs}
    return [
        f"`{counted[seed_of(run)].id}` and `{run.id}` share their setting and seed "
        f"{seed_of(run)}: they are repeats, not seeds, and only the first counts as one. If "
        "anything else differs, name it in their config."
        for run in group.runs
    ]


def optimizer_of(group: Group) -> str:
    """Return the name of the optimizer in the config of a group."""
    return str(group.runs[0].config.get("optimizer", "")).partition(":")[0]
