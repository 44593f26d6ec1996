"""Guarantees by randomized smoothing: votes under sparse noise, and the flips that the votes provably withstand.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.certificates.certificate import Certificate, Kind, certificate_of, clopper_pearson
    from wtawp.certificates.certification import certify
    from wtawp.certificates.noise import Noise, noisy_training
    from wtawp.certificates.votes import Votes, provenance_of, vote

__all__ = [
    "Certificate", "Kind", "Noise", "Votes", "certificate_of", "certify", "clopper_pearson", "noisy_training",
    "provenance_of", "vote",
]  # fmt: skip

_HOMES = {
    "Certificate": "certificate", "Kind": "certificate", "Noise": "noise", "Votes": "votes",
    "certificate_of": "certificate", "certify": "certification", "clopper_pearson": "certificate",
    "noisy_training": "noise", "provenance_of": "votes", "vote": "votes",
}  # fmt: skip
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
