"""What checking a claim of the paper gives: a verdict, and the numbers behind it."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "does not hold", "incomplete"]


@dataclass(frozen=True)
class ClaimOutcome:
    """The outcome of checking a claim.

    Attributes:
        verdict: "holds", "does not hold", or "incomplete" where runs are missing.
        sentence: The numbers behind the verdict.
    """

    verdict: Verdict
    sentence: str


def judge(holds: bool, sentence: str) -> ClaimOutcome:
    """Make an outcome of a condition that could be tested.

    Args:
        holds: Whether the claim holds.
        sentence: The numbers behind that.

    Returns:
        The outcome.

    Example:
        >>> judge(False, "0 of 3 runs.").verdict
        'does not hold'
    """
    return ClaimOutcome("holds" if holds else "does not hold", sentence)
