"""The main claims of the paper, those of its abstract and introduction, judged by the rules of all other claims."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median

from wtawp.experiments.results.claims import (
    check,
    every_pair_gains,
    every_pair_is_higher,
    features_are_certified_more,
    flatter_by_every_measure,
    higher_everywhere,
    more_accurate_and_smoother,
    significant_everywhere,
)
from wtawp.experiments.results.distinct import ROBUSTNESS, distinct_pairs
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.outcomes import ClaimOutcome, judge
from wtawp.experiments.results.statistics import PairedDifference, holm
from wtawp.experiments.results.summary import PlanReport

Reports = Mapping[str, PlanReport]
CERTIFIED = ("fig:certcora", "fig:certcite")
TIMED_ON_CPU = "released:natacc"  # trained on one CPU, so that seconds can be compared
NEGLIGIBLE = 1.1  # times the seconds of plain training
FAILURE = 10.0  # points below plain training


@dataclass(frozen=True)
class MainClaim:
    """A main claim of the paper.

    Attributes:
        subject: What it is about, in two or three words.
        text: The claim as the paper words it, shortened.
        place: Where it stands.
        plans: The plans whose measurements decide.
        judge: Takes the plans by name, complete, and returns the outcome.
        check: The name of the check where one of the plans makes the same claim; "" otherwise.
    """

    subject: str
    text: str
    place: str
    plans: tuple[str, ...]
    judge: Callable[[Reports], ClaimOutcome]
    check: str = ""


@dataclass(frozen=True)
class CheckedClaim:
    """A claim of the paper with its outcome.

    Attributes:
        subject: What a main claim is about; "" for other claims.
        text: The claim.
        place: Where it stands: a part of the paper, or the label of a table or figure.
        outcome: What the measurements say.
    """

    subject: str
    text: str
    place: str
    outcome: ClaimOutcome

    @property
    def is_main(self) -> bool:
        """Whether it is one of the main claims."""
        return bool(self.subject)


def check_claims(reports: Reports) -> list[CheckedClaim]:
    """Check the main claims whose plans have records, then all claims of plans that are not among them.

    Args:
        reports: Plans with their measurements, by name.

    Returns:
        Every claim once. Tables that are measured again by another protocol do not repeat theirs.
    """
    measured = {name for name, report in reports.items() if report.records}
    mains = [claim for claim in MAIN_CLAIMS if measured.issuperset(claim.plans)]
    checked = [CheckedClaim(c.subject, c.text, c.place, _outcome(c, reports)) for c in mains]
    known = {(c.plans[0], c.check) for c in mains if c.check}
    return checked + [
        CheckedClaim("", claim.text, name, check(claim, report))
        for name, report in reports.items()
        for claim in report.plan.claims
        if not report.plan.repeats and (name, claim.check) not in known
    ]


def _outcome(claim: MainClaim, reports: Reports) -> ClaimOutcome:
    """The outcome of a main claim; "incomplete" until every run of its plans is finished."""
    missing = sum(reports[name].num_runs - len(reports[name].records) for name in claim.plans)
    return ClaimOutcome("incomplete", f"{missing} runs are missing.") if missing else claim.judge(reports)


def _attacked_gains(reports: Reports) -> list[tuple[str, PairedDifference | None, float | None]]:
    """The gains of all distinct pairs under attack, with p-values corrected over all of them."""
    pairs = [pair for pair, is_attacked in distinct_pairs(reports, ROBUSTNESS) if is_attacked]
    corrected = iter(holm([pair.gain.p_value for pair in pairs if pair.gain is not None]))
    return [(f"{p.after}, {p.column}", p.gain, None if p.gain is None else next(corrected)) for p in pairs]


def _smaller_drops(reports: Reports) -> ClaimOutcome:
    """The attack takes significantly less from the method in more than half of the distinct pairs."""
    drops = {(d.before, d.after, d.column): d for name in ROBUSTNESS for d in compare_drops(reports[name])}.values()
    if not drops:
        return ClaimOutcome("incomplete", "No clean trainings were recorded.")
    smaller, larger = sum(d.is_smaller for d in drops), sum(d.is_larger for d in drops)
    return judge(
        2 * smaller > len(drops),
        f"What the attack takes from the clean accuracy is significantly smaller in {smaller} of {len(drops)} pairs "
        f"and significantly larger in {larger} (asked is more than half).",
    )


def _certificates(reports: Reports) -> ClaimOutcome:
    """On both data sets more nodes are certified against flips of features at every radius."""
    outcomes = {name: features_are_certified_more(reports[name]) for name in CERTIFIED}
    if any(outcome.verdict == "incomplete" for outcome in outcomes.values()):
        return ClaimOutcome("incomplete", "A comparison needs two rows and two splits.")
    sentence = " ".join(f"{name}: {outcome.sentence}" for name, outcome in outcomes.items())
    return judge(all(outcome.verdict == "holds" for outcome in outcomes.values()), sentence)


def _alleviates(reports: Reports) -> ClaimOutcome:
    """Where AWP ends ten points or more below plain training, WT-AWP with lam = 0.5 is no worse than plain training."""
    cells = {(c.cell.row, c.cell.column): c.mean for c in reports["tab:ablation"].cells}
    setting = replace(reports["tab:ablation"].cells[0].cell.setting, awp=None)
    (plain,) = (c.mean for c in reports["tab:natacc"].cells if c.cell.setting == setting)
    if plain is None:
        return ClaimOutcome("incomplete", "Plain training has no runs.")
    means = {column: (cells["AWP", column] or 0.0, cells["lambda=0.5", column] or 0.0) for _, column in cells}
    failing = {column: ours for column, (awp, ours) in means.items() if awp <= plain - FAILURE}
    rescued = sum(ours >= plain for ours in failing.values())
    return judge(
        bool(failing) and rescued == len(failing),
        f"GCN on Cora: AWP ends {FAILURE:g} points or more below plain training ({plain:.2f}) at {len(failing)} of "
        f"{len(means)} radii ({', '.join(failing)}); WT-AWP with lam = 0.5 is no worse than plain training at "
        f"{rescued} of these.",
    )


def _cost(reports: Reports) -> ClaimOutcome:
    """A training takes at most a tenth more seconds with the method."""
    report = reports[TIMED_ON_CPU]
    ratios = cost_ratios(report)
    return judge(
        median(ratios) <= NEGLIGIBLE,
        f"Seconds of a training on {report.device}, medians over runs: {median(ratios):.2f} times as many (median of "
        f"{len(ratios)} pairs, {min(ratios):.2f} to {max(ratios):.2f}; at most {NEGLIGIBLE:g} allowed).",
    )


def cost_ratios(report: PlanReport) -> list[float]:
    """How many times the seconds of its first row the second row of each pair takes.

    Args:
        report: A plan with its measurements.

    Returns:
        The ratio of the medians over runs, for each pair.
    """
    seconds = {(c.cell.row, c.cell.column): median(r.seconds for r in c.records) for c in report.cells}
    return [seconds[p.after, p.column] / seconds[p.before, p.column] for p in report.pairs]


SIGNIFICANT = "The improvement is statistically significant."
MAIN_CLAIMS = (
    MainClaim("clean accuracy", "WT-AWP consistently improves natural generalization.", "abstract", ("tab:natacc",),
              lambda reports: every_pair_is_higher(reports["tab:natacc"])),
    MainClaim("clean accuracy, significance", SIGNIFICANT, "introduction", ("tab:natacc",),
              lambda reports: significant_everywhere([(f"{p.after}, {p.column}", p.gain, p.holm_p_value)
                                                      for p in reports["tab:natacc"].pairs])),
    MainClaim("robust accuracy", "WT-AWP consistently improves robust generalization.", "abstract", ROBUSTNESS,
              lambda reports: higher_everywhere(_attacked_gains(reports))),
    MainClaim("robust accuracy, significance", SIGNIFICANT, "introduction", ROBUSTNESS,
              lambda reports: significant_everywhere(_attacked_gains(reports))),
    MainClaim("smaller loss to attacks",
              "Smoothness consequently improves their robustness to adversarial input perturbations.",
              "section on smoothness", ROBUSTNESS, _smaller_drops),
    MainClaim("graph classification", "The improvement is consistent across tasks (node-level and graph-level).",
              "introduction", ("tab:graphclass",), lambda reports: every_pair_gains(reports["tab:graphclass"]),
              "every_pair_gains"),
    MainClaim("certificates", "Certificates are improved, for flips of features at all radii.",
              "related work, section on certificates", CERTIFIED, _certificates),
    MainClaim("vanishing gradients", "WT-AWP alleviates the vanishing-gradient issue of AWP.", "abstract",
              ("tab:ablation", "tab:natacc"), _alleviates),
    MainClaim("smoother", "Models trained with WT-AWP are smoother (37 of 40 are better and smoother).",
              "section on smoothness", ("fig:lipcora",),
              lambda reports: more_accurate_and_smoother(reports["fig:lipcora"]), "more_accurate_and_smoother"),
    MainClaim("flatter", "WT-AWP finds flatter local minima.", "abstract, introduction", ("extra:flatness",),
              lambda reports: flatter_by_every_measure(reports["extra:flatness"]), "flatter_by_every_measure"),
    MainClaim("cost", "... at a negligible computational cost.", "introduction", (TIMED_ON_CPU,), _cost),
)  # fmt: skip
