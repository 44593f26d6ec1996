"""The curvature of the loss by its weights: eigenvalues, trace and spectral density of the Hessian.

The Hessian is never formed: it is a product with a vector, by differentiating twice. All trainable parameters count.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor, nn

from wtawp.analysis.losses import LossFn, refuse_training_mode, trainable
from wtawp.base import AnalysisError, rng

Array = NDArray[np.float64]
SMALL = 64  # parameters up to which the Hessian is formed: ARPACK finds fewer eigenvalues than there are


@dataclass(frozen=True, eq=False)
class Hessian:
    """Of a loss by all trainable parameters laid end to end: a matrix that multiplies."""

    size: int  # number of parameters
    like: Tensor  # where vectors live, and their type
    product: Callable[[Tensor], Tensor]  # [size] -> [size]

    @staticmethod
    def of(model: nn.Module, loss_fn: LossFn) -> "Hessian":
        """At the model's weights; one forward pass serves all products."""
        refuse_training_mode(model)
        theta = list(trainable(model).values())
        with torch.enable_grad():
            loss = loss_fn()
            slopes = torch.autograd.grad(loss, theta, create_graph=True, allow_unused=True, materialize_grads=True)
            slope = torch.cat([g.reshape(-1) for g in slopes])
        if not bool(torch.isfinite(slope).all()):
            raise AnalysisError("the gradient of the loss is NaN or infinite: it has no curvature here")

        def product(vector: Tensor) -> Tensor:
            if not slope.requires_grad:  # a loss that is linear in its weights
                return torch.zeros_like(vector)
            found = torch.autograd.grad(
                slope, theta, vector, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            curved = torch.cat([h.reshape(-1) for h in found]).detach()
            if not bool(torch.isfinite(curved).all()):
                name = type(model).__name__
                raise AnalysisError(f"second derivatives of the loss of {name} are NaN or infinite: no Hessian here")
            return curved

        return Hessian(len(slope), slope.detach(), product)

    def as_operator(self) -> LinearOperator:
        """For scipy, in float64."""

        def matvec(vector: Array) -> Array:
            given = torch.from_numpy(np.ascontiguousarray(vector).reshape(-1)).to(self.like)
            found: Array = self.product(given).double().cpu().numpy()
            return found

        return LinearOperator((self.size, self.size), matvec=matvec, dtype=np.float64)

    def to_dense(self) -> Tensor:  # -> [size, size] float64
        """For few parameters."""
        unit = torch.eye(self.size, dtype=self.like.dtype, device=self.like.device)
        return torch.stack([self.product(row) for row in unit]).double().cpu()


def top_eigenvalues(model: nn.Module, loss_fn: LossFn, *, k: int = 5) -> list[float]:
    """The k largest eigenvalues of the Hessian, largest first, by Lanczos iterations (ARPACK)."""
    hessian = Hessian.of(model, loss_fn)
    if not 1 <= k <= hessian.size:
        raise ValueError(f"k must lie between 1 and the number of parameters, {hessian.size}, got {k}")
    if hessian.size <= max(SMALL, k + 1):
        dense = hessian.to_dense()
        found: Array = torch.linalg.eigvalsh((dense + dense.T) / 2).numpy()
        return [float(value) for value in found[::-1][:k]]
    start = torch.randn(hessian.size, dtype=torch.float64, generator=rng("start of eigsh"))
    if not bool(hessian.product(start.to(hessian.like)).any()):  # a loss that is linear here; ARPACK cannot start
        return [0.0] * k
    # Single precision leaves noise of about 1e-7 of the largest eigenvalue: nothing to converge to beyond that.
    exact = hessian.like.dtype == torch.float64
    try:
        values = eigsh(hessian.as_operator(), k=k, which="LA", v0=start.numpy(), tol=1e-10 if exact else 1e-5,
                       return_eigenvectors=False)  # fmt: skip
    except ArpackError as error:
        raise AnalysisError(f"the largest {k} eigenvalues of the Hessian were not found: {error}") from error
    return sorted((float(value) for value in values), reverse=True)


@dataclass(frozen=True)
class Trace:
    """An estimate of the trace of the Hessian, and its standard error (0 for a diagonal Hessian: it is then exact)."""

    mean: float
    standard_error: float


def hessian_trace(model: nn.Module, loss_fn: LossFn, *, seed: int, probes: int = 30) -> Trace:
    """Hutchinson's estimate: the mean of z^T H z over random signs z."""
    if probes < 2:
        raise ValueError(f"a standard error needs at least 2 probes, got {probes}")
    hessian = Hessian.of(model, loss_fn)
    found = []
    for number in range(probes):
        z = _signs(hessian, rng("trace", seed, number))
        found.append(float(torch.dot(z.double(), hessian.product(z).double())))
    values = np.array(found)
    return Trace(float(values.mean()), float(values.std(ddof=1) / np.sqrt(probes)))


@dataclass(frozen=True, eq=False)
class SpectralDensity:
    """The spectrum as a sum of points: for each probe, quadrature nodes and weights that sum to 1."""

    nodes: Array  # [probes, steps], estimates of eigenvalues
    weights: Array  # likewise, shares of all eigenvalues

    def at(self, grid: Array, width: float) -> Array:  # [k] -> [k]
        """The density on a grid, each point blurred to a Gaussian of this width; it integrates to 1."""
        if not width > 0:
            raise ValueError(f"width must be > 0, got {width}")
        bumps = np.exp(-0.5 * ((np.asarray(grid)[:, None, None] - self.nodes) / width) ** 2)
        density: Array = (bumps * self.weights).sum(2).mean(1) / (width * np.sqrt(2 * np.pi))
        return density

    def moment(self, power: int) -> float:
        """The mean of the eigenvalues to a power; `moment(1)` times their number is the trace."""
        return float((self.weights * self.nodes**power).sum(1).mean())


def spectral_density(
    model: nn.Module, loss_fn: LossFn, *, seed: int, probes: int = 8, steps: int = 60
) -> SpectralDensity:
    """Stochastic Lanczos quadrature (Ghorbani et al. 2019): probes of random signs, `steps` products each."""
    if probes < 1 or steps < 1:
        raise ValueError(f"probes and steps must be >= 1, got {probes} and {steps}")
    hessian = Hessian.of(model, loss_fn)
    steps = min(steps, hessian.size)
    nodes, weights = np.zeros((probes, steps)), np.zeros((probes, steps))
    for number in range(probes):
        diagonal, beside = _lanczos(hessian, _signs(hessian, rng("density", seed, number)), steps)
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        nodes[number, : len(values)], weights[number, : len(values)] = values, vectors[0] ** 2
    return SpectralDensity(nodes, weights)


def _lanczos(hessian: Hessian, start: Tensor, steps: int) -> tuple[Array, Array]:
    """The tridiagonal matrix of the Krylov space of `start`; shorter where that space ends."""
    basis = torch.zeros(steps, hessian.size, dtype=torch.float64, device=start.device)
    q = start.double() / start.double().norm()
    diagonal: list[float] = []
    beside: list[float] = []
    for i in range(steps):
        basis[i] = q
        w = hessian.product(q.to(start.dtype)).double()
        diagonal.append(float(torch.dot(w, q)))
        # Orthogonal to all before: rounding would bring found eigenvalues back as ghosts.
        w = w - (basis[: i + 1] @ w) @ basis[: i + 1]
        length = float(w.norm())
        if i + 1 == steps or length <= 1e-10 * max(map(abs, (*diagonal, *beside))):
            break
        beside.append(length)
        q = w / length
    return np.array(diagonal), np.array(beside)


def _signs(hessian: Hessian, generator: torch.Generator) -> Tensor:
    return (2.0 * torch.randint(0, 2, (hessian.size,), generator=generator) - 1).to(hessian.like)
