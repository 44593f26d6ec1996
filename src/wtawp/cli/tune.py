"""`wtawp tune`: search hyper-parameters on validation nodes, then compare what was found on other splits."""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtawp.base import matching_name, unknown_name, write_atomic
from wtawp.cli.options import Html, Json, StorePath, Workers, as_bad_parameter, check_outputs
from wtawp.cli.printing import escape, print_table
from wtawp.cli.shared import (
    StopSignal,
    announce,
    app,
    console,
    end_by_signal,
    example,
    progress_bar,
    stderr_console,
    stop_signals_as_interrupts,
)
from wtawp.cli.sweeps import make_engine
from wtawp.cli.training_options import Training, takes

if TYPE_CHECKING:
    from wtawp.core import AwpConfig
    from wtawp.experiments.tuning.report import TuningReport

COMPARED_SPLITS = 20
PERTURBATION_OPTIONS = ("rho", "lam", "layers", "balance")

Minutes = Annotated[
    float, typer.Option(min=0.01, help="Time for everything: the search, and the comparison that follows it.")
]
Trials = Annotated[
    int | None,
    typer.Option(min=1, help="Trials of each way to train, with those of earlier calls.", show_default="any number"),
]
StudyPath = Annotated[
    Path | None,
    typer.Option(
        "--study",
        help="File of the trials; the same command continues it.",
        show_default="one for each search, in $WTAWP_HOME or the data folder",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the search: of its sampler and of its random splits.")]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="Tune this method as well; may be repeated. See docs/tuning.md for their names.",
                 show_default="none"),
]  # fmt: skip
Compared = Annotated[
    int,
    typer.Option("--splits", min=2, help="Most splits of the comparison; of a single split, most initialisations."),
]


@app.command(epilog=example("wtawp tune wine --minutes 2 --html tuned.html"))
@takes(Training)
def tune(
    training: Training,
    *,
    minutes: Minutes = 5.0,
    trials: Trials = None,
    method: Methods = None,
    study: StudyPath = None,
    seed: Seed = 0,
    splits: Compared = COMPARED_SPLITS,
    workers: Workers = None,
    store: StorePath = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Tune a model with and without WT-AWP on validation nodes, and compare the results on other splits.

    Plain training is tuned with as many trials as WT-AWP, and so are other methods that you name. Hyper-parameters that
    you set are not varied.
    """
    methods = _checked_methods(method or [], training.user_set)
    awp = training.awp()
    if awp is None:
        raise typer.BadParameter(f"the weights of {training.model} cannot be perturbed; tune another model")
    if awp.is_auto:
        raise typer.BadParameter(
            "auto is no number to tune with; leave it out: the comparison has a row in which lam follows the training",
            param_hint="'--lam'",
        )
    search_and_compare(
        training, awp, methods=methods, includes_untuned=True, minutes=minutes, trials=trials, study=study, seed=seed,
        splits=splits, workers=workers, store=store, html=html, as_json=as_json,
    )  # fmt: skip


def search_and_compare(
    training: Training,
    awp: "AwpConfig",
    *,
    methods: Sequence[str],
    includes_untuned: bool,
    minutes: float,
    trials: int | None,
    study: Path | None,
    seed: int,
    splits: int,
    workers: int | None,
    store: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Tune plain training, WT-AWP and other methods with equally many trials, compare the best, and show the results.

    Args:
        training: What is trained, on what, and how.
        awp: WT-AWP without tuning.
        methods: The names of the other methods.
        includes_untuned: Whether WT-AWP without tuning is compared, too.
        minutes: The time for everything.
        trials: The number of trials of each arm, those of earlier calls included; None for any number.
        study: The file of the trials; None uses one for each search.
        seed: The seed of the search.
        splits: The largest number of splits of the comparison, or of initialisations of a single split.
        workers: The number of worker processes; None uses one for each core if that saves time.
        store: The file of the store; None uses the default one.
        html: A file for the page with the results; None writes none.
        as_json: Whether results are printed as JSON.

    Raises:
        typer.BadParameter: If an output cannot be written, or an option is of no use for a search.
        typer.Exit: With status 1 if a run of the comparison failed, 130 after Ctrl-C; SIGTERM and SIGHUP end the
            process.
    """
    started = time.monotonic()
    from wtawp.experiments.store import Store, default_path

    check_outputs({"--html": html, "--study": study}, [training.dataset, store or default_path()])
    if training.split == "k-fold":
        raise typer.BadParameter("a search has no folds; use --split random", param_hint="'--split'")
    if training.inductive:
        raise typer.BadParameter(
            "a search is on the full graph; compare its result with --inductive afterwards", param_hint="'--inductive'"
        )
    base = training.setting(training.split_rule())
    from wtawp.experiments.tuning.runner import num_processes, prepare_search, run_tuning
    from wtawp.experiments.tuning.search import TimeBudget
    from wtawp.experiments.tuning.study import open_study

    budget = TimeBudget.of_minutes(minutes, start=started)
    with as_bad_parameter():
        search = prepare_search(base, awp, user_set=training.user_set, seed=seed, methods=methods)
    is_on_cpu = training.device == "cpu"
    processes = workers or (num_processes(search, max_trials=trials, budget=budget) if is_on_cpu else 1)
    engine = make_engine("local", workers, training.device, None)
    path = study or search.default_path
    with Store(store) as records, open_study(path, search.identity, search.spaces, seed=seed) as trials_so_far:
        try:
            with stop_signals_as_interrupts(), progress_bar("searching", quiet=as_json) as progress:
                report, counts = run_tuning(
                    search, trials_so_far, records, max_trials=trials, most_compared=splits, budget=budget,
                    workers=processes, device=training.device, engine=engine, progress=progress, announce=announce,
                    includes_untuned=includes_untuned,
                )  # fmt: skip
        except KeyboardInterrupt as stop:
            records.close()
            with suppress(OSError):  # the terminal may be gone
                announce(f"Stopped. Finished trials are in {path}: the same command continues from here.")
            if isinstance(stop, StopSignal):
                end_by_signal(stop.number)
            raise typer.Exit(130) from None
        _show(report, as_json, html)
        num_trials = min(len(trials_so_far.trials(arm)) for arm in search.spaces)
    minutes_taken = (time.monotonic() - started) / 60
    if trials is not None and num_trials < trials:
        announce(
            f"The time was enough for {num_trials} of {trials} trials of each arm; the same command makes more, and "
            "--minutes gives it more time."
        )
    if minutes_taken > minutes:
        announce(
            f"It took {minutes_taken:.1f} minutes instead of {minutes:g}: one trial of each arm and a comparison "
            "on two splits are made in any case, and a training that has begun is ended."
        )
    elif counts is None:
        announce("The time was over before all splits were compared; the same command compares the others.")
    if counts is not None and counts.failed:
        announce(f"{counts.failed} runs of the comparison failed: `wtawp results ls --failed` lists them.")
        raise typer.Exit(1)


def refuse_options(user_set: Collection[str], reasons: Mapping[str, str]) -> None:
    """Refuse options that the user set and that contradict another option.

    Args:
        user_set: The names of the options that the user set.
        reasons: For each name of an option that is refused, why, and what to do.

    Raises:
        typer.BadParameter: If the user set one of them.
    """
    for name, reason in reasons.items():
        if name in user_set:
            raise typer.BadParameter(reason, param_hint=f"'--{name.replace('_', '-')}'")


def _checked_methods(names: list[str], user_set: frozenset[str]) -> list[str]:
    """The methods to tune, each once; refuses what is not registered, and options that would mean two things."""
    from wtawp.experiments.tuning.methods import method_names

    if names:
        reason = "it would have to mean the same for every method; leave it out, or leave out --method"
        refuse_options(user_set, dict.fromkeys((*PERTURBATION_OPTIONS, "average"), reason))
    for name in names:
        if matching_name(name, method_names()) is None:
            message = unknown_name(f"there is no method {name!r}", name, method_names())
            raise typer.BadParameter(message, param_hint="'--method'")
    return list(dict.fromkeys(matching_name(name, method_names()) or name for name in names))


def _show(report: "TuningReport", as_json: bool, html: Path | None) -> None:
    """Print the result, and write the page."""
    if as_json:
        typer.echo(json.dumps(report.to_data()))
    else:
        from wtawp.experiments.report.contents import tables_of

        plan = report.comparison.plan
        print_table(f"Search: {report.base.model} on {report.base.dataset}", report.best_table())
        for table in tables_of(report.comparison):
            print_table(f"{plan.name}: {plan.title}", table)
        for sentence in report.sentences():
            console.print(escape(sentence) + "\n", highlight=False)
        for arm, command in report.commands.items():
            text = f"To train with the best setting of {arm}:\n{command}"
            console.print(escape(text), highlight=False, soft_wrap=True)
    if html is not None:
        write_atomic(html, report.to_html().encode())
        stderr_console.print(f"Written: {html.resolve()}", highlight=False, soft_wrap=True)
