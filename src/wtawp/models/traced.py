"""Operators that record their products, for modules with a `SupportsFactoredGradient`: the gradient in thin factors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor


class RecordingView(ABC):
    """Stands in for an operator, and remembers its products, which can be differentiated by.

    The gradient with respect to the view V is P = U G^T, of the gradients U at its products and the factors G.
    """

    def __init__(self) -> None:
        self.factors: list[Tensor] = []  # [b, n, f] each
        self.products: list[Tensor] = []  # likewise

    def __matmul__(self, factor: Tensor) -> Tensor:  # [b, n, f] -> [b, n, f]
        product = self.times(factor)
        if torch.is_grad_enabled() and not product.requires_grad:
            product.requires_grad_()
        self.factors.append(factor.detach())
        self.products.append(product)
        return product

    @abstractmethod
    def times(self, factor: Tensor) -> Tensor:
        """The product alone."""

    @abstractmethod
    def transposed_times(self, factor: Tensor) -> Tensor:
        """The product of the transpose, not to be differentiated."""

    @abstractmethod
    def slopes(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """L, R [b, n, f] and t [b, n, 1] from the gradients at the products: dL/dA_ij is <L_i, R_j> + t_i."""

    def gathered(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """U and G [b, n, f] side by side, and the sums of P * V over row i and column i [b, n, 1]."""
        u, g, product = (torch.cat(list(parts), 2) for parts in (grads, self.factors, self.products))
        return u, g, (u * product).sum(2, keepdim=True) + (self.transposed_times(u) * g).sum(2, keepdim=True)
