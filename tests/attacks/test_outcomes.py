import subprocess
import sys

from wtawp.attacks.outcomes import AttackOutcome

OUTCOME = AttackOutcome("PGD, ce", {"PGD, ce": 0.25, "PRBCD": 0.5}, {"GRBCD": "no edge_weight"})


def test_an_outcome_comes_back_from_the_provenance_among_other_entries() -> None:
    entries = (("attack", "strongest"), ("seed", "3"), *OUTCOME.provenance(), ("winner's attack", "pgd"))
    assert AttackOutcome.of(entries) == OUTCOME
    assert all(isinstance(text, str) for entry in entries for text in entry)


def test_flips_of_a_single_attack_have_no_outcome() -> None:
    assert AttackOutcome.of((("attack", "pgd"), ("seed", "0"))) is None
    assert AttackOutcome.of(()) is None


def test_reading_an_outcome_imports_nothing_that_computes() -> None:
    code = "import sys, wtawp.attacks.outcomes; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"torch", "torch_geometric", "numpy"}
