"""Print the benchmark's tables from the kept scores, as markdown.

    python recipes/benchmark/table.py

`toosure reproduce benchmark` prints the same tables, and trains what is missing.
"""

from pathlib import Path

from toosure.page.markdown_table import markdown_table
from toosure.recipes import RunStore, Setting
from toosure.recipes.benchmark.tables import findings

HERE = Path(__file__).parent


def main() -> None:
    setting = Setting(data="cifar10,cifar100", scores=str(HERE))
    no_runs = RunStore(HERE / "runs")
    for table in findings(setting, no_runs).tables:
        print(f"\n## {table.title}\n\n{table.note}\n\n{markdown_table(table.header, table.rows)}")


if __name__ == "__main__":
    main()
