"""The errors and warnings of the package, and the caller that a warning names."""

import sys


class WtawpError(Exception):
    """The base class of all errors that this package defines."""


class NotPerturbableError(WtawpError, ValueError):
    """Raised for a model whose weights cannot be perturbed, because they are distributions."""


class DataError(WtawpError, ValueError):
    """Raised for a graph, a split, or the name of a data set that is not valid."""


class AttackError(WtawpError):
    """Raised if a model cannot be attacked as requested: it ignores the graph, or its output is not finite."""


class NoFlipError(AttackError):
    """Raised if an attack looked at all flips that it may make, and none is allowed: the target withstands it."""


class CertificateError(WtawpError):
    """Raised if a model cannot be certified: it does not return a class for every node, or votes do not match."""


class AnalysisError(WtawpError):
    """Raised if a model cannot be analyzed: its loss is not finite, or not differentiable with respect to the graph."""


class CheckpointError(WtawpError):
    """Raised if a training cannot be saved in a file or continued from it. The file is left as it is."""


class OutputError(WtawpError, OSError):
    """Raised if a file cannot be written. It is left as it was, or is not there."""


class DownloadError(WtawpError):
    """Raised if a data file is neither stored locally nor available for download."""


class DamagedCacheWarning(UserWarning):
    """Warns that a file of intermediate results is damaged, and that they are computed again."""


class UncountedVotesWarning(UserWarning):
    """Warns that no vote under noise is confident enough to count, so that nothing is predicted."""


class UnusedDataWarning(UserWarning):
    """Warns that a file holds something about a graph that is not used, such as the weights of its edges."""


class VanishingGradientWarning(UserWarning):
    """Warns that the gradient at the perturbed weights vanishes although the natural one does not: rho is too large."""


def find_stack_level() -> int:
    """Find the `stacklevel` with which `warnings.warn` names the code that called this package.

    Returns:
        The number of frames between the caller and the nearest one outside of `wtawp`, counted as `warnings` does.

    Example:
        >>> find_stack_level() >= 1
        True
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "wtawp" and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
