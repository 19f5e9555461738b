"""`--fail-if` of evaluate: judge the conditions, and set the exit code."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from toosure.evaluate import Evaluation, MultilabelEvaluation
    from toosure.evaluate.conditions import Condition


def exit_if_one_holds(verdicts: Mapping[str, bool]) -> None:
    """Print the result of each condition; end with code 1 if one holds."""
    for sentence in verdicts:
        typer.echo(sentence, err=True)
    if any(verdicts.values()):
        raise typer.Exit(1)


def judge_all(
    conditions: Sequence["Condition"], results: Sequence["Evaluation | MultilabelEvaluation"]
) -> dict[str, bool]:
    """Judge the conditions of --fail-if: sentences, which name the file if there are several."""
    from toosure.evaluate.conditions import judge

    verdicts = {}
    for result in results:
        file = f"{result.source}: " if len(results) > 1 else ""
        for condition in conditions:
            judgement = judge(condition, result)
            verdicts[f"{file}--fail-if {judgement.sentence}"] = judgement.holds
    return verdicts
