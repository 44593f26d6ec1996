"""Guarantees by randomized smoothing: votes under sparse noise, and the flips that the votes provably withstand.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.certificates.certificate import Certificate, Kind, certificate_of, clopper_pearson
    from wtawp.certificates.certification import certify
    from wtawp.certificates.collective_certificate import CollectiveCertificate, collective
    from wtawp.certificates.conformal import PredictionSets, conformal_sets
    from wtawp.certificates.fields import ReceptiveFields, receptive_fields
    from wtawp.certificates.noise import Noise, noisy_training
    from wtawp.certificates.vote_origin import provenance_of
    from wtawp.certificates.votes import Votes, vote

__all__ = [
    "Certificate", "CollectiveCertificate", "Kind", "Noise", "PredictionSets", "ReceptiveFields", "Votes",
    "certificate_of", "certify", "clopper_pearson", "collective", "conformal_sets", "noisy_training", "provenance_of",
    "receptive_fields", "vote",
]  # fmt: skip

_HOMES = {
    "Certificate": "certificate", "CollectiveCertificate": "collective_certificate", "Kind": "certificate",
    "Noise": "noise", "PredictionSets": "conformal", "ReceptiveFields": "fields", "Votes": "votes",
    "certificate_of": "certificate", "certify": "certification", "clopper_pearson": "certificate",
    "collective": "collective_certificate", "conformal_sets": "conformal", "noisy_training": "noise",
    "provenance_of": "vote_origin", "receptive_fields": "fields", "vote": "votes",
}  # fmt: skip
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
