"""Guarantees by randomized smoothing: votes under sparse noise, and the flips they withstand for certain."""

from wtawp.certificates.certificate import Certificate, Kind, certificate_of, clopper_pearson
from wtawp.certificates.certify import certify
from wtawp.certificates.noise import Noise, noisy_training
from wtawp.certificates.votes import Votes, provenance_of, vote

__all__ = ["Certificate", "Kind", "Noise", "Votes", "certificate_of", "certify", "clopper_pearson", "noisy_training"]
__all__ += ["provenance_of", "vote"]
