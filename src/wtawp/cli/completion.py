"""What a shell offers to complete a name: data sets, models, attacks. Nothing that computes is imported.

`wtawp --install-completion` sets it up for the shell in use. Typer drops what does not begin with the text as it was
typed, so that these functions, other than look-ups, distinguish upper and lower case.
"""

from collections.abc import Iterable
from pathlib import Path

from wtawp.attacks.registry import attack_names, attack_spec
from wtawp.graphs.registry import SUFFIXES, dataset_names, dataset_spec
from wtawp.models.registry import model_names, model_spec

Offers = list[tuple[str, str]]  # the text that is inserted, and a help text for shells that show one


def complete_dataset(incomplete: str) -> Offers:
    """Offer data sets, and files of graphs in the folder that the text names.

    Args:
        incomplete: What the user has typed so far.

    Returns:
        Names with what they classify, and paths.

    Example:
        >>> complete_dataset("kar")
        [('karate', 'classifies nodes, 34 nodes')]
    """
    specs = [dataset_spec(name) for name in _beginning_with(incomplete, dataset_names())]
    named = [(s.name, f"classifies {s.level}s" + (f", {s.nodes:,} nodes" if s.nodes else "")) for s in specs]
    folder, slash, _ = incomplete.rpartition("/")
    try:
        files = sorted(path.name for path in Path(folder + slash).iterdir() if path.name.endswith(SUFFIXES))
    except OSError:  # no such folder: then there is nothing to offer
        files = []
    return named + [(path, "file") for path in _beginning_with(incomplete, (folder + slash + f for f in files))]


def complete_model(incomplete: str) -> Offers:
    """Offer models.

    Args:
        incomplete: What the user has typed so far.

    Returns:
        Names with their descriptions.

    Example:
        >>> complete_model("PooledG")[0][0]
        'PooledGCN'
    """
    return [(name, model_spec(name).description) for name in _beginning_with(incomplete, model_names())]


def complete_attack(incomplete: str) -> Offers:
    """Offer attacks.

    Args:
        incomplete: What the user has typed so far.

    Returns:
        Names with the stages at which they can be used.

    Example:
        >>> complete_attack("m")
        [('minmax', 'poisoning'), ('metattack', 'poisoning'), ('meta-pgd', 'poisoning')]
    """
    return [(name, " and ".join(attack_spec(name).stages)) for name in _beginning_with(incomplete, attack_names())]


def _beginning_with(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin with a text."""
    return [name for name in names if name.startswith(incomplete)]
