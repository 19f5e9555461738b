"""What more members do to a deep ensemble: score mixtures of 1, 2, 3, 5 and 10 finished runs.

    PYTHONPATH=src python recipes/ensembles/members.py RUNS    # members.jsonl, table, picture
    PYTHONPATH=src python recipes/ensembles/members.py         # table and picture of that file

Of each size up to twenty sets of runs are drawn, and their scores averaged. The sets overlap, so
the numbers of one optimizer are not independent.
"""

import itertools
import json
import math
import random
import sys
from pathlib import Path

import numpy as np
import torch

from toosure.ensembles import log_mean_probability
from toosure.figures.style import PALETTE, QUIET
from toosure.recipes import Setting
from toosure.recipes.ensembles import sweeps
from toosure.recipes.ensembles.tables import ensemble_scores, held_out_rows
from toosure.recipes.run_store import RunStore

HERE = Path(__file__).parent
FILE = HERE / "members.jsonl"
PICTURE = HERE.parents[1] / "docs" / "images" / "members.svg"
SIZES = (1, 2, 3, 5, 10)
SETS = 20
NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def scored(folder: Path) -> list[dict]:
    """Return the mean scores of mixtures of each size, per data set and optimizer."""
    lines = []
    for data in NAMES:
        setting = Setting(data=data)
        for optimizer, configs in (("SGD", sweeps.plain(setting)), ("SAM", sweeps.sam(setting))):
            pairs = [held_out_rows(r, "predictions.npz") for r in RunStore(folder).runs(configs)]
            logits = torch.stack([pair[0] for pair in pairs])
            labels = pairs[0][1]
            for size in SIZES:
                if size > len(logits):
                    continue
                chosen = sets_of(size, len(logits))
                found = [ensemble_scores(log_mean_probability(logits[s]), labels) for s in chosen]
                means = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
                about = {"data": data, "optimizer": optimizer, "members": size}
                lines.append({**about, "sets": len(chosen), **means})
    return lines


def sets_of(size: int, runs: int) -> list[list[int]]:
    """Return all sets of a size, or twenty of them."""
    every = [list(each) for each in itertools.combinations(range(runs), size)]
    return random.Random(0).sample(every, SETS) if len(every) > SETS else every


def print_table(lines: list[dict]) -> None:
    print("| data | optimizer | members | sets | accuracy % | NLL | ECE | gap |\n|" + "---|" * 8)
    for line in lines:
        print(
            f"| {NAMES[line['data']]} | {line['optimizer']} | {line['members']} | {line['sets']} | "
            f"{100 * line['accuracy']:.2f} | {line['nll']:.4f} | {100 * line['ece']:.2f} | "
            f"{100 * line['gap']:+.2f} |"
        )


def drawn(lines: list[dict]) -> str:
    """Return the gap against the number of members, a panel per data set."""
    from draw import path, picture, text  # of the benchmark's pictures

    height, top, bottom, low, high = 300, 40, 240, -4.0, 10.0

    def y_of(gap: float) -> float:
        return bottom - (bottom - top) * (gap - low) / (high - low)

    parts = []
    for number, data in enumerate(NAMES):
        left = 60 + 440 * number
        right = left + 340

        def x_of(members: int, left: float = left, right: float = right) -> float:
            return left + (right - left) * math.log(members) / math.log(SIZES[-1])

        parts.append(text(left, 22, f"{NAMES[data]}: confidence minus accuracy, points"))
        for gap in range(-4, 11, 2):
            shade, width = (QUIET, 1.5) if gap == 0 else ("#e5e5e5", 1)
            parts.append(path([(left, y_of(gap)), (right, y_of(gap))], shade, width))
            parts.append(text(left - 8, y_of(gap) + 4, f"{gap}", "end", QUIET))
        for size in SIZES:
            parts.append(text(x_of(size), bottom + 18, f"{size}", "middle", QUIET))
        parts.append(text((left + right) / 2, bottom + 40, "members", "middle", QUIET))

        for colour, optimizer in zip(PALETTE, ("SGD", "SAM"), strict=False):
            own = [a for a in lines if (a["data"], a["optimizer"]) == (data, optimizer)]
            points = [(x_of(a["members"]), y_of(100 * a["gap"])) for a in own]
            parts.append(path(points, colour, 2))
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points
            ]
            x, y = points[-1]
            parts.append(text(x, y + 22, optimizer, "middle", colour))
    return picture(
        height, parts, "How far mixtures of 1 to 10 networks are over- or under-confident"
    )


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent / "benchmark"))
    if len(sys.argv) > 1:
        FILE.write_text("".join(json.dumps(x) + "\n" for x in scored(Path(sys.argv[1]))))
    kept = [json.loads(line) for line in FILE.read_text().splitlines()]
    print_table(kept)
    PICTURE.write_text(drawn(kept))
