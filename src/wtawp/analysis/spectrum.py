"""The curvature of the loss in the weights: eigenvalues, trace and spectral density of the Hessian.

The Hessian of large models is never formed; only its product with a vector is computed, by differentiating twice. It
covers all trainable parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor, nn

from wtawp.analysis.losses import LossFn, refuse_training_mode, trainable
from wtawp.base import AnalysisError, checked_seed, rng

Array = NDArray[np.float64]
MAX_DENSE_SIZE = 64  # parameters up to which the Hessian is formed: ARPACK cannot compute all eigenvalues


@dataclass(frozen=True, eq=False)
class Hessian:
    """The Hessian of a loss in all trainable parameters, flattened and concatenated, as a function of vectors.

    Attributes:
        size: Number of trainable parameters.
        like: A tensor with the device and type that vectors must have.
        product: The product of the Hessian with a vector, [size] -> [size].
    """

    size: int
    like: Tensor
    product: Callable[[Tensor], Tensor]

    @staticmethod
    def of(model: nn.Module, loss_fn: LossFn) -> "Hessian":
        """The Hessian at the model's present weights; one forward pass serves all products.

        Args:
            model: A model in evaluation mode.
            loss_fn: Returns the loss at the model's present weights, twice differentiable.

        Returns:
            The Hessian. Its product raises AnalysisError where second derivatives are not finite.

        Raises:
            AnalysisError: If the gradient of the loss is not finite.
            ValueError: If a module is in training mode, or nothing is trainable.

        Example:
            >>> model = nn.Linear(2, 1, bias=False).eval()
            >>> Hessian.of(model, lambda: model.weight.square().sum()).to_dense()
            tensor([[2., 0.],
                    [0., 2.]], dtype=torch.float64)
        """
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
            parts = torch.autograd.grad(
                slope, theta, vector, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            curved = torch.cat([h.reshape(-1) for h in parts]).detach()
            if not bool(torch.isfinite(curved).all()):
                name = type(model).__name__
                raise AnalysisError(f"second derivatives of the loss of {name} are NaN or infinite: no Hessian here")
            return curved

        return Hessian(len(slope), slope.detach(), product)

    def as_operator(self) -> LinearOperator:
        """Wrap the product for scipy's iterative solvers.

        Returns:
            A linear operator on float64 vectors; the products are computed in the model's own precision.
        """

        def matvec(vector: Array) -> Array:
            tensor = torch.from_numpy(np.ascontiguousarray(vector).reshape(-1)).to(self.like)
            product: Array = self.product(tensor).double().cpu().numpy()
            return product

        return LinearOperator((self.size, self.size), matvec=matvec, dtype=np.float64)

    def to_dense(self) -> Tensor:  # -> [size, size] float64
        """Form the matrix, by one product for each parameter; meant for small models.

        Returns:
            The Hessian [size, size], in float64 on the CPU.
        """
        unit = torch.eye(self.size, dtype=self.like.dtype, device=self.like.device)
        return torch.stack([self.product(row) for row in unit]).double().cpu()


def top_eigenvalues(model: nn.Module, loss_fn: LossFn, *, k: int = 5) -> list[float]:
    """Compute the largest eigenvalues of the Hessian by Lanczos iterations (ARPACK).

    Args:
        model: A model in evaluation mode.
        loss_fn: Returns the loss at the model's present weights.
        k: How many eigenvalues, from 1 to the number of trainable parameters.

    Returns:
        The k eigenvalues, largest first.

    Raises:
        ValueError: If `k` is out of its range, or a module is in training mode.
        AnalysisError: If derivatives of the loss are not finite, or the iterations do not converge.

    Example:
        >>> model = nn.Linear(2, 1, bias=False).eval()
        >>> curvature = torch.tensor([1.0, 3.0])
        >>> top_eigenvalues(model, lambda: (curvature * model.weight.square()).sum() / 2, k=2)
        [3.0, 1.0]
    """
    hessian = Hessian.of(model, loss_fn)
    if not 1 <= k <= hessian.size:
        raise ValueError(f"k must lie between 1 and the number of parameters, {hessian.size}, got {k}")
    if hessian.size <= max(MAX_DENSE_SIZE, k + 1):
        dense = hessian.to_dense()
        ascending: Array = torch.linalg.eigvalsh((dense + dense.T) / 2).numpy()
        return [float(value) for value in ascending[::-1][:k]]
    start = torch.randn(hessian.size, dtype=torch.float64, generator=rng("start of eigsh"))
    if not bool(hessian.product(start.to(hessian.like)).any()):  # the loss is linear here, and ARPACK cannot start
        return [0.0] * k
    # Single precision leaves noise of about 1e-7 of the largest eigenvalue: nothing to converge to beyond that.
    exact = hessian.like.dtype == torch.float64
    try:
        values = eigsh(hessian.as_operator(), k=k, which="LA", v0=start.numpy(), tol=1e-10 if exact else 1e-5,
                       return_eigenvectors=False)  # fmt: skip
    except ArpackError as error:
        raise AnalysisError(f"the largest {k} eigenvalues of the Hessian could not be computed: {error}") from error
    return sorted((float(value) for value in values), reverse=True)


@dataclass(frozen=True)
class Trace:
    """An estimate of the trace of the Hessian.

    Attributes:
        mean: The estimate.
        standard_error: Its standard error over the probes; 0 for a diagonal Hessian, where the estimate is exact.
    """

    mean: float
    standard_error: float


def hessian_trace(model: nn.Module, loss_fn: LossFn, *, seed: int, probes: int = 30) -> Trace:
    """Estimate the trace of the Hessian by Hutchinson's method: the mean of z^T H z over random signs z.

    Args:
        model: A model in evaluation mode.
        loss_fn: Returns the loss at the model's present weights.
        seed: Seed of the random signs.
        probes: Number of vectors z, at least 2; the standard error falls with its square root.

    Returns:
        The estimate and its standard error.

    Raises:
        ValueError: If there are fewer than 2 probes, or a module is in training mode.
        AnalysisError: If derivatives of the loss are not finite.

    Example:
        >>> model = nn.Linear(2, 1, bias=False).eval()
        >>> hessian_trace(model, lambda: model.weight.square().sum(), seed=0)
        Trace(mean=4.0, standard_error=0.0)
    """
    seed = checked_seed(seed)
    if probes < 2:
        raise ValueError(f"a standard error needs at least 2 probes, got {probes}")
    hessian = Hessian.of(model, loss_fn)
    products = []
    for number in range(probes):
        z = _signs(hessian, rng("trace", seed, number))
        products.append(float(torch.dot(z.double(), hessian.product(z).double())))
    values = np.array(products)
    return Trace(float(values.mean()), float(values.std(ddof=1) / np.sqrt(probes)))


@dataclass(frozen=True, eq=False)
class SpectralDensity:
    """The spectrum of a Hessian as a sum of weighted points, one set for each probe.

    Attributes:
        nodes: Quadrature nodes [probes, steps], which estimate eigenvalues.
        weights: The share of all eigenvalues that each node stands for, [probes, steps]; each row sums to 1.
    """

    nodes: Array
    weights: Array

    def at(self, grid: Array, width: float) -> Array:  # [k] -> [k]
        """Evaluate the density on a grid, with each node blurred to a Gaussian.

        Args:
            grid: Eigenvalues at which to evaluate it.
            width: Standard deviation of the Gaussians, above 0.

        Returns:
            The density at each point of the grid; over all eigenvalues it integrates to 1.

        Raises:
            ValueError: If `width` is not above 0.
        """
        if not width > 0:
            raise ValueError(f"width must be > 0, got {width}")
        bumps = np.exp(-0.5 * ((np.asarray(grid)[:, None, None] - self.nodes) / width) ** 2)
        density: Array = (bumps * self.weights).sum(2).mean(1) / (width * np.sqrt(2 * np.pi))
        return density

    def moment(self, power: int) -> float:
        """The mean of the eigenvalues raised to a power; `moment(1)` times their number is the trace.

        Args:
            power: The power, at least 0.

        Returns:
            The mean over all eigenvalues, averaged over the probes.
        """
        return float((self.weights * self.nodes**power).sum(1).mean())


def spectral_density(
    model: nn.Module, loss_fn: LossFn, *, seed: int, probes: int = 8, steps: int = 60
) -> SpectralDensity:
    """Estimate the spectral density by stochastic Lanczos quadrature (Ghorbani et al. 2019).

    Args:
        model: A model in evaluation mode.
        loss_fn: Returns the loss at the model's present weights.
        seed: Seed of the probes, which are vectors of random signs.
        probes: Number of probes, at least 1.
        steps: Products with the Hessian for each probe, at least 1; at most the number of parameters is used.

    Returns:
        The density as quadrature nodes and weights.

    Raises:
        ValueError: If `probes` or `steps` is below 1, or a module is in training mode.
        AnalysisError: If derivatives of the loss are not finite.
    """
    seed = checked_seed(seed)
    if probes < 1 or steps < 1:
        raise ValueError(f"probes and steps must be >= 1, got {probes} and {steps}")
    hessian = Hessian.of(model, loss_fn)
    steps = min(steps, hessian.size)
    nodes, weights = np.zeros((probes, steps)), np.zeros((probes, steps))
    for number in range(probes):
        diagonal, off_diagonal = _lanczos(hessian, _signs(hessian, rng("density", seed, number)), steps)
        values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
        nodes[number, : len(values)], weights[number, : len(values)] = values, vectors[0] ** 2
    return SpectralDensity(nodes, weights)


def _lanczos(hessian: Hessian, start: Tensor, steps: int) -> tuple[Array, Array]:
    """Diagonal and off-diagonal of the Lanczos matrix of `start`; shorter where its Krylov space ends."""
    basis = torch.zeros(steps, hessian.size, dtype=torch.float64, device=start.device)
    q = start.double() / start.double().norm()
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for i in range(steps):
        basis[i] = q
        w = hessian.product(q.to(start.dtype)).double()
        diagonal.append(float(torch.dot(w, q)))
        # Orthogonalise against all previous vectors: rounding would repeat converged eigenvalues.
        w = w - (basis[: i + 1] @ w) @ basis[: i + 1]
        length = float(w.norm())
        if i + 1 == steps or length <= 1e-10 * max(map(abs, (*diagonal, *off_diagonal))):
            break
        off_diagonal.append(length)
        q = w / length
    return np.array(diagonal), np.array(off_diagonal)


def _signs(hessian: Hessian, generator: torch.Generator) -> Tensor:
    """A vector of random signs, drawn on the CPU."""
    return (2.0 * torch.randint(0, 2, (hessian.size,), generator=generator) - 1).to(hessian.like)
