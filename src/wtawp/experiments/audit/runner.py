"""Run an audit: plan its sizes from measured speed, run its plans into the store, and collect what they say.

Everything of an audit lies beside the store: the sizes of its first start, by which an audit that was killed continues
with the same runs, and until it ends the weights of its models, which are trained once for all sections.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from wtawp.base import AnalysisError, DataError, WtawpError, shortened, write_atomic
from wtawp.experiments.audit.findings import Audit, collect
from wtawp.experiments.audit.page import audit_page
from wtawp.experiments.audit.probing import Abilities, audited_attacks, probe
from wtawp.experiments.audit.sections import Section, chunk_seconds, make_sections, total_seconds
from wtawp.experiments.audit.sizes import Sizes, describe_reductions, fit_sizes
from wtawp.experiments.audit.subject import Subject, dataset_name, make_subject, model_name
from wtawp.experiments.execution.building import data_of, default_split
from wtawp.experiments.execution.costs import START_SECONDS, worthwhile_workers
from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.kept_weights import has_same_outputs, keep_checkpoint
from wtawp.experiments.execution.provenance import device_name, versions
from wtawp.experiments.execution.runner import run_plans
from wtawp.experiments.execution.training import untrained_model
from wtawp.experiments.inspection.checkpoints import load_weights
from wtawp.experiments.plans.defaults import default_awp
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Option, Run, Setting, SplitRule
from wtawp.experiments.store import Store, default_path
from wtawp.graphs import is_collection

if TYPE_CHECKING:
    from torch import nn
    from torch_geometric.data import Data

    from wtawp.core.config import AwpConfig, Lam

FORMAT = 1  # of the file of sizes
MINUTES = 8.0
OUTPUT_TOLERANCE = 1e-4  # relative, between outputs of the same weights, which sums in another order may change
PROBING_SHARE = 0.05  # of the progress
RESERVED_SECONDS = 20.0  # for checks and the page
Progress = Callable[[float, str], None]


class AuditError(WtawpError):
    """Raised if the file of an audit's sizes cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What was decided when an audit was first started.

    Attributes:
        sizes: How often and how long it measures.
        abilities: What can be measured of the model, and how long it takes.
        created: When, as UTC in ISO 8601.
    """

    sizes: Sizes
    abilities: Abilities
    created: str


def audit(
    model: "str | type[nn.Module] | nn.Module",
    data: "str | Path | Data",
    *,
    minutes: float = MINUTES,
    splits: int | None = None,
    split: SplitRule | None = None,
    options: Mapping[str, Option] | None = None,
    rho: float | None = None,
    lam: "Lam | None" = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float | None = None,
    checkpoint: Path | str | None = None,
    html: Path | str | None = None,
    store: Path | str | None = None,
    workers: int | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    fresh: bool = False,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> Audit:
    """Measure how accurate, robust, certain and flat a model for nodes is, with and without WT-AWP.

    Results are stored. An audit that was stopped, also by `kill -9`, continues if it is called again with the same
    arguments.

    Args:
        model: A name such as "GCN", "package.module:Class", a class, or a trained instance, which is then audited as it
            is. A class is called as `Class(num_features, num_classes, **options)`, its instances as
            `model(x, edge_index)`, or with edge weights as the third argument.
        data: A name as `wtawp data list` shows it, the path of a graph, or a PyG `Data`.
        minutes: About how long it may take on this machine. Sizes follow from it and from measured speed.
        splits: The number of splits; by default as many as fit, up to 10.
        split: How the data are divided; by default by the masks of a graph of the user, else at random. With given
            weights, which are tested on split 0, it must be passed unless such a graph has masks.
        options: Options of the class.
        rho: The radius of the perturbation; by default the paper's.
        lam: The weight of the perturbed loss in the second row; by default the paper's.
        epochs: Epochs of each training.
        lr: The learning rate.
        weight_decay: The weight decay; by default that of the model.
        checkpoint: A file with a state dict of the model, which is audited in place of trainings.
        html: A file for the page; by default none is written.
        store: The file of the stored results; by default that of all commands.
        workers: The number of worker processes; by default one for each core if that saves time.
        device: "cpu" or "cuda".
        fresh: Whether everything is planned, trained and measured anew.
        progress: Called with the share that is done, and a description.
        announce: Called with sentences about what is going to be done.

    Returns:
        The summary in sentences, the tables, and what was reduced or left out.

    Raises:
        PlanError: If the model cannot be trained on the data.
        AnalysisError: If a checkpoint, or an instance, has other weights than the model, or if an instance computes
            something else than the model that is built with `options`.
        DataError: If the data are several graphs.
        ValueError: If an option is out of its range, or weights are given and the split of their training is not.

    Example:
        >>> import tempfile, wtawp
        >>> from wtawp.experiments.spec import SplitRule
        >>> folder = tempfile.mkdtemp()
        >>> result = wtawp.audit(
        ...     "GCN", "karate", split=SplitRule(train=0.4, val=0.3), minutes=0.01, epochs=5, workers=1,
        ...     store=f"{folder}/results.sqlite",
        ... )
        >>> result.rows
        ('GCN', 'GCN+WT-AWP', 'GCN+WT-AWP auto')
    """
    import torch

    home = (default_path() if store is None else Path(store)).absolute().parent / "audits"
    name, dataset = model_name(model), dataset_name(data, home / "data")
    instance = model if isinstance(model, torch.nn.Module) else None
    if split is None:
        has_weights = instance is not None or checkpoint is not None
        split = split_of_weights(dataset) if has_weights else default_split(dataset)
    base = Setting(
        dataset=dataset, model=name, options=tuple((options or {}).items()), epochs=epochs, lr=lr,
        weight_decay=weight_decay, split=split,  # type: ignore[arg-type]  # None: the model's
    )  # fmt: skip
    awp = default_awp(name, dataset, rho=rho, lam=lam)
    return run_audit(
        base, awp, minutes=minutes, splits=splits, checkpoint=None if checkpoint is None else Path(checkpoint),
        instance=instance, html=None if html is None else Path(html), store=None if store is None else Path(store),
        workers=workers, device=device, fresh=fresh, progress=progress, announce=announce,
        command=f"wtawp.audit({name!r}, {dataset!r}, minutes={minutes:g})",
    )  # fmt: skip


def run_audit(
    base: Setting,
    awp: "AwpConfig | None",
    *,
    minutes: float,
    splits: int | None,
    checkpoint: Path | None,
    instance: "nn.Module | None" = None,
    html: Path | None,
    store: Path | None,
    workers: int | None,
    device: str,
    fresh: bool,
    progress: Progress | None,
    announce: Callable[[str], None] | None,
    command: str,
) -> Audit:
    """Audit the model of a setting; see `audit` for the arguments that both have.

    Args:
        base: The setting of the model without perturbation.
        awp: The perturbation of the second row; None for a model that cannot be perturbed.
        minutes: About how long it may take.
        splits: The number of splits; None for as many as fit.
        checkpoint: A file with weights to audit in place of trainings.
        instance: A trained model to audit in place of trainings.
        html: A file for the page.
        store: The file of the stored results.
        workers: The number of worker processes.
        device: "cpu" or "cuda".
        fresh: Whether everything is done anew.
        progress: Called with the share that is done, and a description.
        announce: Called with sentences about what is going to be done.
        command: What the user typed, for the page.

    Returns:
        The audit.

    Raises:
        ValueError: If the minutes are not above 0, or there are fewer than 2 splits.
        DataError: If the data are several graphs.
    """
    if not 0 < minutes < float("inf"):
        raise ValueError(f"minutes must be a number above 0, got {minutes}")
    if is_collection(data_of(base, 0)):
        raise DataError(
            f"{base.dataset} is a list of graphs, and an audit is about the nodes of one graph; `wtawp compare` is"
            " for models of whole graphs"
        )
    with Store(store) as opened:
        home = opened.path.parent / "audits"
        if checkpoint is not None or instance is not None:
            base = replace(base, weights=_keep_weights(base, checkpoint, instance, home / "checkpoints", device))
        subject = make_subject(base, awp)
        if splits is not None and not subject.is_checkpoint and splits < 2:
            raise ValueError(f"an audit compares trainings over splits and needs 2 of them or more, got {splits}")
        software = {name: versions()[name] for name in ("wtawp", "torch")}
        attacks = [spec.name for stage in ("evasion", "poisoning") for spec in audited_attacks(stage)]
        folder = home / subject.key(minutes=minutes, splits=splits, device=device, attacks=attacks, versions=software)
        cores = workers or (os.cpu_count() or 1 if device == "cpu" else 1)
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        prepared = _prepare(subject, folder, minutes, splits, cores, device, progress, announce)
        sections = make_sections(subject, prepared.sizes, prepared.abilities)
        weights = home / "checkpoints" if subject.is_checkpoint else folder / "weights"
        _run(sections, opened, weights, workers, cores, device, fresh, progress, announce)
        used_device, _ = _where(device)
        reports = [
            summarise(s.plan, opened.records(run.key for run in (*s.plan.runs(), *s.plan.clean_runs())), used_device)
            for s in sections
        ]
        if not subject.is_checkpoint and all(report.num_runs == len(report.records) for report in reports):
            shutil.rmtree(weights, ignore_errors=True)
    reduced = tuple(describe_reductions(prepared.sizes, most_splits=subject.most_splits))
    result = collect(
        subject, list(zip(sections, reports, strict=True)), sizes=prepared.sizes, reduced=reduced,
        left_out=prepared.abilities.left_out, minutes=minutes, command=command,
    )  # fmt: skip
    if html is not None:
        write_atomic(html, audit_page(result).encode())
    return result


def split_of_weights(dataset: str) -> SplitRule:
    """Find the split of weights that were trained before, for which the user named no split.

    Args:
        dataset: The name of a data set, or the path of a graph in a file.

    Returns:
        The masks of a graph of the user, or those of a file of a split.

    Raises:
        ValueError: If there are none: a split that is drawn anew would test the weights on nodes of their training.
    """
    rule = default_split(dataset)
    if rule.kind == "masks":
        return rule
    raise ValueError(
        f"the weights are given, and nothing says on which nodes of {dataset} they were trained, so that the test nodes"
        " might be among them; name the split of their training: --split masks, --split-file FILE.json, or --split"
        " random for that of `wtawp train` with --split-seed 0 (in Python split=SplitRule(kind='masks'), masks in the"
        " graph, or split=SplitRule() for the random split 0)"
    )


def _keep_weights(
    base: Setting, checkpoint: Path | None, instance: "nn.Module | None", folder: Path, device: str
) -> str:
    """Check that weights belong to the model, and keep a copy for the sections to load."""
    model, data, _ = untrained_model(Run(base, 0, 0), device=device)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    elif instance is not None:
        advice = "pass the options with which it was built, options={...}"
        try:
            model.load_state_dict(instance.state_dict())
        except RuntimeError as error:
            raise AnalysisError(
                f"the instance has other weights than {base.model} that is built anew: {shortened(str(error))};"
                f" {advice}"
            ) from error
        if not has_same_outputs(instance, model, data, tolerance=OUTPUT_TOLERANCE):
            raise AnalysisError(
                f"the instance and {base.model} that is built anew have the same weights but other outputs on"
                f" {base.dataset}; {advice}"
            )
    return keep_checkpoint(model.state_dict(), folder)


def _prepare(
    subject: Subject, folder: Path, minutes: float, splits: int | None, cores: int, device: str,
    progress: Progress | None, announce: Callable[[str], None] | None,
) -> Preparation:  # fmt: skip
    """Read what the first start of this audit decided; at the first start, measure the speed and decide."""
    path = folder / "sizes.json"
    if path.is_file():
        if announce is not None:
            announce(f"This audit was started before; it continues with the sizes that were chosen then ({path}).")
        return _read(path)
    if announce is not None:
        announce("Trying every measurement at a tiny size, to plan what fits the time.")
    start = time.monotonic()
    abilities = probe(subject, device=device, progress=_part(progress, 0.0, PROBING_SHARE))

    def seconds(sizes: Sizes) -> float:
        total = total_seconds(make_sections(subject, sizes, abilities))
        used = worthwhile_workers(total, cores)
        return total / used + (START_SECONDS if used > 1 else 0.0)

    spent = time.monotonic() - start + RESERVED_SECONDS
    limit = max(60 * minutes - spent, 6 * minutes)
    sizes = fit_sizes(seconds, limit, splits=splits, most_splits=subject.most_splits)
    prepared = Preparation(sizes=sizes, abilities=abilities, created=datetime.now(UTC).isoformat(timespec="seconds"))
    content = {"format": FORMAT, "sizes": asdict(sizes), "abilities": abilities.to_json(), "created": prepared.created}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(content, indent=1).encode())
    if announce is not None:
        announce(_describe_time(spent, seconds(sizes), limit, minutes))
    return prepared


def _describe_time(spent: float, seconds: float, limit: float, minutes: float) -> str:
    """How long the audit takes in all, and why that is more than was asked for, if it is.

    Args:
        spent: Seconds of the trial, and those that are reserved.
        seconds: The seconds of all measurements.
        limit: The seconds that they may take.
        minutes: The time that was asked for.

    Returns:
        A sentence or two.
    """
    total = f"{(spent + seconds) / 60:.1f}"
    text = f"The audit will take about {total} minutes in all, {spent / 60:.1f} of them for this trial and the page."
    if float(total) <= minutes:
        return text
    reason = "nothing is left to reduce" if seconds > limit else "the trial took most of the time"
    return f"{text} That is more than the {minutes:g} that were asked for, and {reason}."


def _read(path: Path) -> Preparation:
    """Read the sizes that an earlier start of this audit stored."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']}, and this program reads format {FORMAT}")
        return Preparation(
            sizes=Sizes.from_json(content["sizes"]), abilities=Abilities.from_json(content["abilities"]),
            created=content["created"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AuditError(f"{path} cannot be used: {error}; start anew with --fresh (fresh=True)") from error


def _run(
    sections: list[Section], store: Store, weights: Path, workers: int | None, cores: int, device: str, fresh: bool,
    progress: Progress | None, announce: Callable[[str], None] | None,
) -> None:  # fmt: skip
    """Train and measure what the store does not have."""
    plans = [section.plan for section in sections]
    keys = {run.key for plan in plans for run in plan.runs()}
    known = set() if fresh else store.done(keys, *_where(device))
    if announce is not None and known:
        announce(f"{len(known):,} of {len(keys):,} runs are in {store.path} already.")
    left = [
        chunk_seconds(sections, (run,)) for run in {r.key: r for p in plans for r in p.runs()}.values()
        if run.key not in known
    ]  # fmt: skip
    count = workers or worthwhile_workers(sum(left), cores)
    run_plans(
        plans, store, engine=local(count), device=device, fresh=fresh, weights=weights,
        progress=_part(progress, PROBING_SHARE, 1.0), cost=lambda chunk: chunk_seconds(sections, chunk),
    )  # fmt: skip


def _part(progress: Progress | None, start: float, end: float) -> Progress | None:
    """A progress that is a part of another one."""
    if progress is None:
        return None
    return lambda share, what: progress(start + share * (end - start), what)


def _where(device: str) -> tuple[str, str]:
    """The device and the version of torch, as in records."""
    return device_name(device, tf32=False), versions()["torch"]
