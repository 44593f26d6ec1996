"""Operators that record their products, for models that support a factored gradient (see `capabilities`)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor


class RecordingOperator(ABC):
    """Takes the role of an operator V and records its products, with respect to which a loss can be differentiated.

    The gradient with respect to V is P = U G^T, where U are the gradients at the products and G are the factors.

    Attributes:
        factors: What V was multiplied with, in the order of the products, [b, n, f] each.
        products: The products, [b, n, f] each.
    """

    def __init__(self) -> None:
        self.factors: list[Tensor] = []
        self.products: list[Tensor] = []

    def __matmul__(self, factor: Tensor) -> Tensor:  # [b, n, f] -> [b, n, f]
        product = self.times(factor)
        if torch.is_grad_enabled() and not product.requires_grad:
            product.requires_grad_()
        self.factors.append(factor.detach())
        self.products.append(product)
        return product

    @abstractmethod
    def times(self, factor: Tensor) -> Tensor:
        """Multiply without recording.

        Args:
            factor: The right factor, [b, n, f].

        Returns:
            The product, [b, n, f].
        """

    @abstractmethod
    def transposed_times(self, factor: Tensor) -> Tensor:
        """Multiply with the transpose, without recording; the result is not differentiated.

        Args:
            factor: The right factor, [b, n, f].

        Returns:
            The product, [b, n, f].
        """

    @abstractmethod
    def adjacency_gradient_factors(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the gradient with respect to the adjacency matrix A from the gradients at the products.

        Args:
            grads: Gradients at the products, in their order, [b, n, f] each.

        Returns:
            L and R [b, n, f] and t [b, n, 1], such that the gradient with respect to A_ij is <L_i, R_j> + t_i.
        """

    def gathered(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Concatenate gradients and factors, and sum up what the normalisation of V by degrees needs.

        Args:
            grads: Gradients at the products, in their order, [b, n, f] each.

        Returns:
            U and G [b, n, f], and for each node i the sum of P * V over row i and over column i, [b, n, 1].
        """
        u, g, product = (torch.cat(list(parts), 2) for parts in (grads, self.factors, self.products))
        return u, g, (u * product).sum(2, keepdim=True) + (self.transposed_times(u) * g).sum(2, keepdim=True)
