"""What every package may use: errors, random generators from names, atomic files, names, digests, progress, lazy
imports.

Nothing here imports torch before a function needs it, so that reading options, plans and results stays fast.
"""

from wtawp.base.digests import describe_function, digest_of
from wtawp.base.errors import (
    AnalysisError,
    AttackError,
    CertificateError,
    CheckpointError,
    DamagedCacheWarning,
    DataError,
    DownloadError,
    NoFlipError,
    NotPerturbableError,
    OutputError,
    UncountedVotesWarning,
    UnusedDataWarning,
    VanishingGradientWarning,
    WtawpError,
    find_stack_level,
)
from wtawp.base.files import atomic_file, home, write_atomic
from wtawp.base.imports import fast_imports, lazy_exports
from wtawp.base.names import did_you_mean, is_reference, matching_name, resolve, shortened, unknown_name
from wtawp.base.progress import part_of_progress, progress_receiver, report_progress
from wtawp.base.randomness import checked_seed, isolated_rng, rng, seed_of

__all__ = [
    "AnalysisError",
    "AttackError",
    "CertificateError",
    "CheckpointError",
    "DamagedCacheWarning",
    "DataError",
    "DownloadError",
    "NoFlipError",
    "NotPerturbableError",
    "OutputError",
    "UncountedVotesWarning",
    "UnusedDataWarning",
    "VanishingGradientWarning",
    "WtawpError",
    "atomic_file",
    "checked_seed",
    "describe_function",
    "did_you_mean",
    "digest_of",
    "fast_imports",
    "find_stack_level",
    "home",
    "is_reference",
    "isolated_rng",
    "lazy_exports",
    "matching_name",
    "part_of_progress",
    "progress_receiver",
    "report_progress",
    "resolve",
    "rng",
    "seed_of",
    "shortened",
    "unknown_name",
    "write_atomic",
]
