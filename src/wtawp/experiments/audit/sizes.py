"""How large an audit is, and in which order it is made smaller until it fits the time that it may take."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from wtawp.experiments.plans.robustness import budget_name


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How often and how long an audit measures.

    Attributes:
        splits: Splits over which the rows are paired, or initialisations where the data have a single split.
        poisoned_splits: Of these, the ones that are also trained on poisoned graphs; 0 leaves this section out.
        budgets: Budgets of attacks that do not search, as shares of the edges.
        searched_budgets: Budgets of attacks that search; none leaves these attacks out.
        attack_seconds: About how long an attack searches for one model and budget, up to its default number of steps.
        certified: What certificates are about, of "edges" and "features"; none leaves them out.
        votes: Noisy copies of the graph that vote for a certificate.
    """

    splits: int = 10
    poisoned_splits: int = 10
    budgets: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1)
    searched_budgets: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1)
    attack_seconds: float = 40.0
    certified: tuple[str, ...] = ("edges", "features")
    votes: int = 10_000

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Sizes":
        """Restore sizes after a round trip through JSON, which knows no tuples.

        Args:
            content: What `dataclasses.asdict` makes of sizes.

        Returns:
            The sizes.
        """
        restored: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in content.items()}
        return Sizes(**restored)


# What is made smaller, in this order, as long as the audit does not fit. The last ones leave sections out.
REDUCTIONS: tuple[dict[str, Any], ...] = (
    {"votes": 1000},
    {"poisoned_splits": 5},
    {"attack_seconds": 20.0},
    {"splits": 5},
    {"searched_budgets": (0.01, 0.05, 0.1)},
    {"poisoned_splits": 3},
    {"attack_seconds": 10.0},
    {"certified": ("edges",)},
    {"votes": 300},
    {"searched_budgets": (0.01, 0.05)},
    {"splits": 4},
    {"poisoned_splits": 2},
    {"attack_seconds": 5.0},
    {"splits": 3},
    {"searched_budgets": (0.05,)},
    {"poisoned_splits": 0},
    {"certified": ()},
    {"splits": 2},
    {"attack_seconds": 2.0},
    {"searched_budgets": ()},
)


def fit_sizes(
    seconds: Callable[[Sizes], float], limit: float, *, splits: int | None = None, most_splits: int | None = None
) -> Sizes:
    """Choose the largest sizes that fit the time.

    Args:
        seconds: Estimates how long an audit of some sizes takes.
        limit: Seconds that it may take.
        splits: The number of splits if the user chose it, which is then not reduced.
        most_splits: The number of splits that there are; None for any number.

    Returns:
        The sizes after as few of the reductions as suffice, without those that turn out not to be needed; or after all
        of them if none suffices.

    Example:
        >>> fit_sizes(lambda sizes: sizes.votes / 100, limit=50.0).votes
        1000
    """
    most = most_splits or Sizes().splits
    sizes = _limited(Sizes(), splits or most)
    undone: list[dict[str, Any]] = []  # what each reduction changed, as it was before
    for reduction in REDUCTIONS:
        if seconds(sizes) <= limit:
            break
        wanted = {name: value for name, value in reduction.items() if name != "splits" or splits is None}
        undone.append({name: getattr(sizes, name) for name in wanted})
        sizes = _limited(replace(sizes, **wanted), splits or min(most, wanted.get("splits", sizes.splits)))
    for before in reversed(undone):  # the last reduction may have made room for earlier ones
        larger = _limited(replace(sizes, **before), splits or min(most, before.get("splits", sizes.splits)))
        sizes = larger if seconds(larger) <= limit else sizes
    return sizes


def _limited(sizes: Sizes, splits: int) -> Sizes:
    """Sizes with this number of splits; a comparison on poisoned graphs needs two of them."""
    poisoned = min(splits, sizes.poisoned_splits)
    return replace(sizes, splits=splits, poisoned_splits=poisoned if poisoned > 1 or splits == 1 else 0)


def describe_reductions(sizes: Sizes, *, most_splits: int | None = None) -> Iterator[str]:
    """Say what is smaller than in an audit that may take any time.

    Args:
        sizes: The sizes of the audit.
        most_splits: The number of splits that there are; None for any number.

    Yields:
        A sentence for each reduced size.
    """
    names = {
        "splits": "splits", "poisoned_splits": "splits that are trained on poisoned graphs",
        "budgets": "budgets of attacks that do not search", "searched_budgets": "budgets of attacks that search",
        "attack_seconds": "seconds that an attack searches for a model and a budget", "certified": "certificates",
        "votes": "votes for a certificate",
    }  # fmt: skip
    full = asdict(_limited(Sizes(), most_splits or Sizes().splits))
    for name, value in asdict(sizes).items():
        unused = (name == "votes" and not sizes.certified) or (name == "attack_seconds" and not sizes.searched_budgets)
        if value != full[name] and not unused:
            yield f"{names[name][0].upper()}{names[name][1:]}: {_text(value)} instead of {_text(full[name])}."


def _text(value: float | tuple[float, ...] | tuple[str, ...]) -> str:
    """A size for people."""
    if isinstance(value, tuple):
        return ", ".join(budget_name(v) if isinstance(v, float) else f"on {v}" for v in value) or "none"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"
