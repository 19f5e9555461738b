"""What each method costs by the common protocol: seconds alone on the device, and the gain.

Short runs are trained one at a time. The time between two rows, divided by the steps between them,
is multiplied by the length of the protocol, instead of training twenty long runs one at a time.
"""

from dataclasses import dataclass, replace

from toosure.config import RunConfig
from toosure.recipes.benchmark import protocol
from toosure.recipes.benchmark.record import ran_alone
from toosure.recipes.benchmark.scored_rows import Rows, ScoredRow, by_name, score_rows
from toosure.recipes.gamma_net import common
from toosure.recipes.gamma_net.rows import OURS
from toosure.recipes.gamma_net.sweeps import single_data
from toosure.recipes.parameters import learned_size
from toosure.recipes.recipe import Claim, Findings, Setting, Table, claim_without_runs
from toosure.recipes.run_store import RunStore
from toosure.runs import Run
from toosure.train.runtime import STEPS_TO_SEARCH

# The time is taken between rows at these steps, after cuDNN has searched its kernels.
FIRST, LAST = 2000, STEPS_TO_SEARCH
QUICK_STEPS = (2, 8)
HEADER = (
    "method",
    "device",
    "as a graph",
    "ms a step",
    "times CE",
    "seconds of 5,273 steps",
    "parameters",
    "ECE",
    "gain over CE, points",
    "gain per minute",
)
NOTE = (
    "Time of a step between steps 2,000 and 2,500 of a run of its own, without what measuring "
    "took, and of a whole run at that rate. It stands only where the command had one worker, so "
    "that the device was shared with no other run. ECE is the mean of the tables by the common "
    "protocol on the same data; the gain is cross-entropy's ECE minus it, in points, and per "
    "minute of the method's whole run."
)
CLAIM = "a step of gamma-net costs at most 1.5 steps of cross-entropy"


def timed_config(setting: Setting, name: str) -> RunConfig:
    """Return the short run of a method, at one seed."""
    data = single_data(setting, "cifar10")
    word = common.methods(setting)[name]
    first, last = QUICK_STEPS if setting.quick else (FIRST, LAST)
    config = protocol.config(setting, word, data, setting.first_seed)
    return replace(config, steps=last, at=(first, last))


def configs(setting: Setting) -> list[RunConfig]:
    """Return one short run per method."""
    return [timed_config(setting, name) for name in common.methods(setting)]


@dataclass(frozen=True)
class Cost:
    """The time of a step, if the run was alone on its device, and the run."""

    run: Run
    step_seconds: float | None

    @property
    def seconds(self) -> float | None:
        """The seconds of a whole run by the common protocol."""
        return None if self.step_seconds is None else self.step_seconds * protocol.COMMON.steps


def cost_of(run: Run) -> Cost:
    """Return the time of a step between two rows of a run; None if it shared the device."""
    if not ran_alone(run):
        return Cost(run, None)
    first, last = run.rows[-2:]
    seconds = last["seconds"] - first["seconds"] - last["seconds_measuring"]
    return Cost(run, float(seconds) / (int(last["step"]) - int(first["step"])))


def findings(setting: Setting, store: RunStore) -> Findings:
    """Return the table of times and gains, and the claim on gamma-net's step."""
    costs = {}
    for name in common.methods(setting):
        run = store.run(timed_config(setting, name))
        if run is not None:
            costs[name] = cost_of(run)

    # Available scores of the long runs. A store of its own, so that this part misses no others.
    others = RunStore(store.folder, store.saved)
    data = "digits" if setting.quick else single_data(setting, "cifar10")
    scored, _ = score_rows(setting, others, common.rows(setting, data))
    rows = by_name(scored)
    cells = tuple(cost_cells(cost, rows[name], costs, rows) for name, cost in costs.items())
    values = {name: cost.step_seconds for name, cost in costs.items()}
    return Findings([step_claim(costs)], [Table("Cost and gain", HEADER, cells, NOTE)], values)


def cost_cells(cost: Cost, row: ScoredRow, costs: dict[str, Cost], rows: Rows) -> tuple[str, ...]:
    """Return the cells of one method; unknown numbers are dashes."""
    run = cost.run
    step = cost.step_seconds
    ce = costs["CE"].step_seconds if "CE" in costs else None
    gain = gain_over_ce(row, rows["CE"])
    per_minute = None
    if gain is not None and cost.seconds is not None:
        per_minute = 60 * gain / cost.seconds

    return (
        row.name,
        str(run.environment.get("device")),
        "yes" if run.environment.get("graph") else "no",
        number(None if step is None else 1000 * step, ".2f"),
        number(None if step is None or ce is None else step / ce, ".2f"),
        number(cost.seconds, ".0f"),
        f"{learned_size(RunConfig.of(run.config)):,}",
        number(100 * row.mean("ece") if row.records else None, ".2f"),
        number(gain, "+.2f"),
        number(per_minute, "+.2f"),
    )


def gain_over_ce(row: ScoredRow, ce: ScoredRow) -> float | None:
    """Return how far a method's mean ECE is below CE's in points; None without runs of both."""
    if not row.records or not ce.records:
        return None
    return 100 * (ce.mean("ece") - row.mean("ece"))


def number(value: float | None, form: str) -> str:
    """Return a number as text, or a dash for None."""
    return "–" if value is None else f"{value:{form}}"


def step_claim(costs: dict[str, Cost]) -> Claim:
    """Report the cost of gamma-net's step, in steps of cross-entropy."""
    if OURS not in costs or "CE" not in costs:
        return claim_without_runs(CLAIM)

    ours = costs[OURS].step_seconds
    ce = costs["CE"].step_seconds
    if ours is None or ce is None:
        return Claim(
            CLAIM, "–", note="the runs shared the device: repeat with one worker and another --out"
        )

    return Claim(
        CLAIM,
        f"{ours / ce:.2f} steps",
        "not reported",
        None,
        "reported only: benchmarks/results/gamma_net.md measures the bar in 25 rounds",
    )
