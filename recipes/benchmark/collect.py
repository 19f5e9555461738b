"""Turn finished runs into lines of `scores.jsonl` and files of `examples/`.

    python recipes/benchmark/collect.py RUNS OUT

Runs of several days or machines are gathered by appending to the files of OUT. The command
`toosure reproduce benchmark --out RUNS --scores OUT` does the same for the runs of the protocol.
"""

import sys
from pathlib import Path

from toosure.recipes.benchmark.score_files import ScoreFiles
from toosure.runs import find_runs


def main(folder: Path, out: Path) -> None:
    for record in ScoreFiles(out).add(find_runs(folder)):
        print(record.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
