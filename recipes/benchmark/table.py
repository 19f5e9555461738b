"""Print the benchmark's tables from the kept scores, as markdown.

    python recipes/benchmark/table.py

`toosure reproduce benchmark` prints the same tables, and trains what is missing.
"""

from pathlib import Path

from toosure.recipes import RunStore, Setting
from toosure.recipes.benchmark.tables import findings
from toosure.recipes.markdown import pipe_table

HERE = Path(__file__).parent


def main() -> None:
    setting = Setting(data="cifar10,cifar100", scores=str(HERE))
    no_runs = RunStore(HERE / "runs")
    for table in findings(setting, no_runs).tables:
        print(f"\n## {table.title}\n\n{table.note}\n\n{pipe_table(table.header, table.rows)}")


if __name__ == "__main__":
    main()
