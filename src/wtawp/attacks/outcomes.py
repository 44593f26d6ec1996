"""What several attacks on one victim reached: the winner, the accuracy that each left, and why others were skipped.

The outcome travels in the provenance of flips, as pairs of texts, so that records keep it and reports can count it.
Reading it needs neither torch nor torch_geometric.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

WINNER, REACHED, SKIPPED = "winner", "accuracy under ", "skipped "


@dataclass(frozen=True)
class AttackOutcome:
    """The result of several attacks on one victim.

    Attributes:
        winner: The attack whose flips were taken.
        accuracies: The accuracy that each attack left on the attacked nodes, from 0 to 1, by its name.
        skipped: Why an attack could not be applied, by its name.

    Example:
        >>> outcome = AttackOutcome("PRBCD", {"PRBCD": 0.5, "GRBCD": 0.75}, {"PGD": "the victim takes no edge_weight"})
        >>> AttackOutcome.of(outcome.provenance()) == outcome
        True
    """

    winner: str
    accuracies: Mapping[str, float]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def provenance(self) -> tuple[tuple[str, str], ...]:
        """Write the outcome as entries for the provenance of flips.

        Returns:
            Pairs (name, value).
        """
        reached = [(REACHED + name, f"{accuracy:.6g}") for name, accuracy in self.accuracies.items()]
        return ((WINNER, self.winner), *reached, *((SKIPPED + name, why) for name, why in self.skipped.items()))

    @staticmethod
    def of(provenance: Iterable[tuple[str, str]]) -> "AttackOutcome | None":
        """Read the outcome from the provenance of flips.

        Args:
            provenance: Pairs (name, value), also of other things.

        Returns:
            The outcome; None where the flips are those of a single attack.
        """
        entries = dict(provenance)
        if WINNER not in entries:
            return None
        accuracies = {n.removeprefix(REACHED): float(v) for n, v in entries.items() if n.startswith(REACHED)}
        skipped = {n.removeprefix(SKIPPED): v for n, v in entries.items() if n.startswith(SKIPPED)}
        return AttackOutcome(entries[WINNER], accuracies, skipped)
