"""`wtawp report`: show stored results without training anything, and check the numbers of texts against them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtawp.base import write_atomic
from wtawp.cli.options import Html, Json, Labels, Size, StorePath, check_outputs
from wtawp.cli.shared import app, errors_without_traceback, example, stderr_console
from wtawp.cli.sweeps import plans_of, reports_of, show_reports

if TYPE_CHECKING:
    from wtawp.experiments.results.summary import PlanReport
    from wtawp.experiments.spec import Record


@app.command(epilog=example("wtawp report", "wtawp report tab:natacc --html report.html"))
def report(
    labels: Labels = None,
    scale: Size = "full",
    html: Html = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown to this file.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Write Markdown and figures to this folder.")] = None,
    artifacts: Annotated[
        Path | None,
        typer.Option(help="Show on the page what landscape, smoothness, sharpness and bound wrote to this folder."),
    ] = None,
    looks: Annotated[Path | None, typer.Option(hidden=True, help="The former name of --artifacts.")] = None,
    records: Annotated[
        list[Path] | None, typer.Option(help="Read exported records, files or folders of files, instead of the store.")
    ] = None,
    verify: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            help="Recompute the marked numbers of this Markdown file or folder of files, and fail where one is wrong.",
        ),
    ] = None,
    correct: Annotated[
        bool, typer.Option("--correct", help="Write the right numbers into the files of --verify, and list them.")
    ] = False,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Show stored results without training anything: those of the paper beside its numbers, and your own.

    Without a label, everything that is stored is shown.
    """
    with errors_without_traceback():
        from wtawp.experiments.report.artifacts import read_artifacts
        from wtawp.experiments.results.facts import IMPORT_ADVICE
        from wtawp.experiments.results.summary import summarise
        from wtawp.experiments.store import Store, default_path, load_all

        check_outputs({"--html": html, "--markdown": markdown}, [*(records or ()), store or default_path()])
        artifacts = artifacts or looks
        if artifacts is not None and html is None:
            raise typer.BadParameter("--artifacts are shown on a page; add --html FILE")
        shown = [] if artifacts is None else read_artifacts(artifacts)
        plans = plans_of(labels or ["all"], scale)
        if records:
            stored = load_all(records)
            of_paper = [summarise(plan, stored) for plan in plans]
            reports = of_paper if labels else _with_own_runs(of_paper, stored)
        elif shown and not labels and store is None and not default_path().exists():
            of_paper, reports = [], []  # a page of artifacts alone
        else:
            with Store(store, create=False) as opened:
                if labels:
                    of_paper = reports = reports_of(plans, opened)
                else:
                    stored = opened.records()
                    of_paper = [summarise(plan, stored) for plan in plans]
                    reports = _with_own_runs(of_paper, stored)
        if correct and not verify:
            raise typer.BadParameter("--correct changes the files of --verify; add --verify FILE")
        if verify and not any(each.records for each in (*of_paper, *reports)):
            what = f"nothing of {', '.join(labels)}" if labels else "nothing"
            raise typer.BadParameter(
                f"{what} is stored, so no number can be checked; {IMPORT_ADVICE}", param_hint="'--verify'"
            )
        if folder is not None:
            from wtawp.experiments.report.markdown import write_folder

            write_folder(reports, folder)
        if html is not None:
            from wtawp.experiments.report.html import render_html

            write_atomic(html, render_html(reports, shown).encode())
        if markdown is not None:
            from wtawp.experiments.report.markdown import render_markdown

            write_atomic(markdown, render_markdown(reports).encode())
    for path in (html, markdown, folder):
        if path is not None:
            stderr_console.print(f"Written: {path.resolve()}", highlight=False, soft_wrap=True)
    if as_json or (html is markdown is folder is None and not verify):
        show_reports(reports, as_json)
    if verify:
        # Also plans that are not shown because nothing of them is stored.
        _verify(verify, [*of_paper, *reports], is_corrected=correct)


def _verify(paths: list[Path], reports: "list[PlanReport]", *, is_corrected: bool) -> None:
    """Hold the marked numbers of texts against reports; ends the program with status 1 where one stays wrong."""
    from wtawp.experiments.report.verification import correct, verify

    with errors_without_traceback():
        count, wrong = verify(paths, reports)
        if is_corrected and wrong:
            left = correct(wrong)
            for mismatch in wrong:
                if mismatch.correction is not None:
                    typer.echo(f"corrected: {mismatch}")
            wrong = left
    for mismatch in wrong:
        stderr_console.print(str(mismatch), style="red", highlight=False, markup=False, soft_wrap=True)
    if not count and not wrong:
        raise typer.BadParameter("no number is marked there: NUMBER<!-- = ... -->", param_hint="'--verify'")
    if wrong:
        raise typer.Exit(1)
    stderr_console.print(f"Marked numbers that are those of the records: {count:,}, which is all.", highlight=False)


def _with_own_runs(of_paper: "list[PlanReport]", records: "list[Record]") -> "list[PlanReport]":
    """Summarise the user's own runs, and add the plans of the paper of which a run is stored; all if there are none."""
    from wtawp.experiments.plans.own_runs import is_fragment, own_plans
    from wtawp.experiments.results.summary import summarise

    own, num_unreadable = own_plans(records)
    if num_unreadable:
        stderr_console.print(
            f"{num_unreadable} records are left out: their settings name a model, an attack or a data set that is not "
            "registered here, or are of another version; `wtawp results ls` shows them.",
            style="yellow", highlight=False, soft_wrap=True,
        )  # fmt: skip
    measured = [r for r in of_paper if (r.records or r.failed) and not is_fragment(r.plan, records)]
    return [summarise(plan, records) for plan in own] + measured or of_paper
