"""`toosure reproduce`: train the runs of a paper, and check its tables and figures by claim."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toosure.cli.app import app, fail
from toosure.cli.file_options import write_text
from toosure.cli.multi_value import MultiValueCommand
from toosure.cli.option_values import Texts, integers
from toosure.cli.output import ignore_broken_pipe
from toosure.cli.run_options import DataRoot, Device, Download, Graph
from toosure.cli.tables import UNLIMITED, console

if TYPE_CHECKING:
    from toosure.recipes import Part, Recipe, Setting
    from toosure.recipes.reproduce import Outcome
    from toosure.shifts.plan import ShiftPlan
    from toosure.sweep import Sweep


@app.command(cls=MultiValueCommand)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="The recipe: too-sharp, gamma-net, ensembles, benchmark, csam, radius."
        ),
    ],
    only: Annotated[Texts, typer.Option(help="Parts: table1,fig2,mse,... (see --list)")] = None,
    quick: Annotated[
        bool,
        typer.Option(help="Small, on digits, in minutes: not the paper's numbers."),
    ] = False,
    data: Annotated[
        str,
        typer.Option(
            help="cifar10, cifar100, or both joined by a comma (not too-sharp, ensembles); "
            "gamma-net and csam's networks also tiny_imagenet."
        ),
    ] = "cifar10",
    seed: Annotated[
        Texts, typer.Option(help="Seeds: 0, 0..2 or 0,5..7. [those of each part]")
    ] = None,
    method: Annotated[
        Texts, typer.Option(help="benchmark: these rows, as sam:rho=0.1; radius: the combination.")
    ] = None,
    full: Annotated[bool, typer.Option(help="csam: the paper's networks and lengths.")] = False,
    scores: Annotated[
        Path | None,
        typer.Option(help="Keep scores in this folder; what it has is not trained again."),
    ] = None,
    shift: Annotated[
        str | None,
        typer.Option(help="benchmark, csam, radius: all or all:images=N judges runs on shifts."),
    ] = None,
    ood: Annotated[
        Texts, typer.Option(help="With --shift all: more unknown data, as svhn=FILE.npz.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where run folders go. [runs/RECIPE]")] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", help="Read the runs here; train nothing.")
    ] = None,
    data_root: DataRoot = Path("data"),
    download: Download = False,
    device: Device = None,
    graph: Graph = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="too-sharp: the length of bulk-every's runs.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Train at most so many runs; repeat to go on.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Start no run after so many minutes; repeat to go on."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs side by side.")] = 1,
    write: Annotated[
        Path | None, typer.Option(help="Write the results as markdown; other parts there stay.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write the page with figures. [OUT/RECIPE.html, but for --from]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Name the parts and their runs.")] = False,
) -> None:
    """Redo a paper's tables and figures, claim by claim.

    Trains what is missing, then shows each claim with our number and the paper's.
    Repeating the command finishes what is missing and trains nothing twice. With --scores, the
    scores of a run are kept as soon as it ends. Ends with code 1 where a judged claim fails or a
    run is missing.
    """
    from toosure.cli.recipe_progress import progress_for
    from toosure.recipes import Setting, recipe
    from toosure.recipes.reproduce import judge_parts, train_parts
    from toosure.sweep import Sweep
    from toosure.train import Runtime

    try:
        paper = recipe(name)
        seeds = tuple(sorted(set(integers(seed)))) if seed else ()
        plan = shift_plan(shift, ood, quick)
        setting = Setting(
            quick,
            data,
            seeds,
            methods=tuple(method or ()),
            full=full,
            scores=str(scores or ""),
            steps=steps,
            shift=shift or "",
            ood=tuple(ood or ()),
        )
        check_setting(paper, setting)
        part_names = [part for text in only or [] for part in text.split(",") if part]
        parts = paper.chosen(part_names)
        folder = from_ or out or Path("runs") / (paper.folder or name)
        if list_:
            list_parts(parts if part_names else paper.parts, setting, folder)
            return
        check_paths(from_, html, write, folder)
        check_page(write, paper, parts, setting)
        warn_of_damage(scores)

        done = Sweep()
        ignore_broken_pipe("the command goes on")
        if not from_:
            check_ood(ood, data_root, download)
            runtime = Runtime(device, data_root, download, graph=graph, shifts=plan)
            listener = partial(progress_for, workers=workers, as_json=as_json)
            done = train_parts(parts, setting, folder, runtime, listener, workers, limit, minutes)
            html = html or folder / f"{'-'.join([name, *part_names])}.html"

        # Print first: a file that cannot be written must not hide the verdicts.
        outcome = judge_parts(paper, parts, setting, folder)
        outcome.problems |= done.failures
        show(outcome, as_json)
        save(outcome, write, html)
    except ValueError as error:
        fail(str(error))

    exit_with(done, outcome)


def exit_with(done: "Sweep", outcome: "Outcome") -> None:
    """End with code 130 if the runs were stopped, 1 if a claim fails or a run is missing."""
    if done.stopped:
        typer.echo("Stopped; repeat the command to go on from here.", err=True)
        raise typer.Exit(130)
    if outcome.failed or outcome.problems:
        raise typer.Exit(1)


def shift_plan(shift: str | None, ood: Texts, quick: bool) -> "ShiftPlan | None":
    """Return the shifts that each run is judged on: the other data set, and those of `--ood`."""
    from toosure.recipes.benchmark.shift_scores import SETS
    from toosure.shifts.plan import plan_of

    if shift is None:
        if ood:
            raise ValueError("--ood goes with --shift all")
        return None
    return plan_of(shift, (*(("noise",) if quick else SETS), *(ood or ())))


def check_ood(words: Texts, root: Path, download: bool) -> None:
    """Raise for images of `--ood` that cannot be read, before anything is trained."""
    from toosure.shifts.ood_sets import read_named
    from toosure.shifts.plan import named_place

    for word in words or ():
        if named_place(word)[1] != "noise":
            read_named(word, root, download)


def check_setting(paper: "Recipe", setting: "Setting") -> None:
    """Raise for an option that a recipe does not know."""
    from toosure.recipes import RECIPES, recipe

    given = {"--method": setting.methods, "--full": setting.full, "--scores": setting.scores}
    given["--shift"] = setting.shift

    for option, value in given.items():
        if value and option not in paper.options:
            takers = ", ".join(name for name in RECIPES if option in recipe(name).options)
            raise ValueError(f"{paper.name} has no {option}: it is for {takers}")
    if len(setting.data_sets) > 1 and not paper.several_data_sets:
        raise ValueError(f"{paper.name} takes one data set; got --data {setting.data}")
    if setting.steps and not any(part.takes_steps for part in paper.parts):
        raise ValueError(f"{paper.name} has no --steps: it is for bulk-every of too-sharp")
    if setting.full and setting.quick:
        raise ValueError("--full and --quick exclude each other")


def check_paths(from_: Path | None, html: Path | None, write: Path | None, folder: Path) -> None:
    """Raise for a wrong path before anything is trained."""
    from toosure.runs.files import check_folder, check_target
    from toosure.runs.storage import check_local

    check_local(folder, "toosure reproduce")
    if not from_:
        check_folder(folder)
    elif not from_.is_dir():
        raise ValueError(f"--from {from_}: there is no such folder")
    if html and html.suffix != ".html":
        raise ValueError(f"--html {html}: the name of a page ends in .html")
    for path in filter(None, (html, write)):
        check_target(path)


def check_page(
    write: Path | None, paper: "Recipe", parts: "Sequence[Part]", setting: "Setting"
) -> None:
    """Raise, before anything is trained, if the page to write holds parts of other runs.

    A part without runs on this data is not made: what the page has of it would stay.
    """
    from toosure.recipes.earlier_page import read_page

    if write is not None and write.is_file():
        made = [part.name for part in parts if part.configs(setting)]
        read_page(write.read_text(encoding="utf-8"), paper, setting, made)


def warn_of_damage(scores: Path | None) -> None:
    """Warn about damaged lines of kept scores; their runs count as missing."""
    from toosure.recipes.benchmark.score_files import SCORES_FILE, damaged_lines

    if scores and (damaged := damaged_lines(scores)):
        typer.echo(f"{scores / SCORES_FILE}: damaged lines, left out: {damaged}", err=True)


def list_parts(parts: "Sequence[Part]", setting: "Setting", folder: Path) -> None:
    """Print each part with its number of runs, and how many of them are still missing."""
    from toosure.recipes.needed_runs import missing_configs

    for part in parts:
        configs = set(part.configs(setting))
        missing = len(list(missing_configs(configs, setting, folder, part.mixtures(setting))))
        only = "" if part.by_default else f"; by name: --only {part.name}"
        typer.echo(f"{part.name:14} {part.summary} ({len(configs)} runs, {missing} missing{only})")


def show(outcome: "Outcome", as_json: bool) -> None:
    """Print tables and claims, or one JSON object."""
    from toosure.cli.recipe_tables import claims_table, recipe_table
    from toosure.recipes import results

    if as_json:
        print(json.dumps(results.as_json(outcome), allow_nan=False))
        return

    terminal = console()
    whole = console(UNLIMITED)  # a log holds every column
    for findings in outcome.findings.values():
        for table in findings.tables:
            whole.print(recipe_table(table, whole.width), "")
    if outcome.claims:
        terminal.print(claims_table(outcome.claims))

    for name in outcome.without_runs:
        typer.echo(f"{name} has no runs on {outcome.setting.data}")
    for name, why in outcome.problems.items():
        typer.echo(f"missing or ended early: {name}: {why}")
    typer.echo(f"\n{results.claims_summary(outcome)}")


def save(outcome: "Outcome", write: Path | None, html: Path | None) -> None:
    """Write the markdown, and the page with its numbers as JSON beside it, to the paths given."""
    from toosure.recipes.html_page import recipe_page
    from toosure.recipes.markdown import markdown
    from toosure.recipes.results import as_json

    files: dict[Path, str] = {}
    if html:
        files[html.with_suffix(".json")] = json.dumps(as_json(outcome), indent=1)
        try:
            files[html] = recipe_page(outcome)
        except ImportError:
            typer.echo(
                f"plotly is not here, so no page: take {outcome.out} where it is, and there "
                f"`toosure reproduce {outcome.recipe.name} --from {outcome.out} --html page.html`",
                err=True,
            )
    if write:
        earlier = write.read_text(encoding="utf-8") if write.is_file() else ""
        files[write] = markdown(outcome, write.parent / "figures", earlier)

    for path, text in files.items():
        write_text(path, text)
        typer.echo(f"written: {path}", err=True)
