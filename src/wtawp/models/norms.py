"""Normalisation of hidden features, for stacks of models: what makes classic GNNs strong baselines.

Luo et al. (2024, "Classic GNNs are strong baselines") show that normalisation, skip connections and depth decide how
well GCN, GAT and GraphSAGE do. The skip connections are part of the convolutions in `wtawp.models.layers`.
"""

from collections.abc import Iterable
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import DataError

Norm = Literal["layer", "batch"]


class LayerNorm(nn.Module):
    """Layer normalisation (Ba et al. 2016) of each row, as torch's `nn.LayerNorm`; it takes a stack of models.

    Args:
        width: Number of features.

    Example:
        >>> LayerNorm(2)(torch.tensor([[1.0, 3.0], [10.0, 30.0]])).round(decimals=3).tolist()
        [[-1.0, 1.0], [-1.0, 1.0]]
    """

    EPS = 1e-5  # torch's

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:  # [..., n, h] -> [..., n, h]
        """Normalise each row over its features."""
        return F.layer_norm(x, x.shape[-1:], eps=self.EPS) * self.weight[..., None, :] + self.bias[..., None, :]


class BatchNorm(nn.Module):
    """Batch normalisation (Ioffe and Szegedy 2015) over nodes, as torch's `nn.BatchNorm1d`; it takes a stack of models.

    In training the statistics are those of the rows that come in, and the running averages follow them: each member of
    a stack has its own. In evaluation mode the running averages are used, so that a row depends on no other row.

    Args:
        width: Number of features.

    Example:
        >>> norm = BatchNorm(1)
        >>> norm(torch.tensor([[1.0], [3.0]])).round(decimals=3).tolist()
        [[-1.0], [1.0]]
        >>> norm.running_mean
        tensor([0.2000])
    """

    EPS, MOMENTUM = 1e-5, 0.1  # torch's
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:  # [..., n, h] -> [..., n, h]
        """Normalise each feature over the rows.

        Args:
            x: Features, [..., n, h].

        Returns:
            The normalised features, [..., n, h].

        Raises:
            DataError: If there is a single row in training, which has no variance.
        """
        x = x.to(self.weight.dtype)  # under autocast, sums of many rows need more digits
        if not self.training:
            return self._scaled(x - self.running_mean[..., None, :], self.running_var)
        n = x.shape[-2]
        if n < 2:
            raise DataError(
                'norm="batch" needs two nodes or more in training, got one; use larger batches, or norm="layer"'
            )
        mean = x.mean(-2)
        centred = x - mean[..., None, :]
        variance = centred.square().mean(-2)
        with torch.no_grad():  # in place: buffers of a stack belong to the training loop
            self.running_mean.lerp_(mean, self.MOMENTUM)
            self.running_var.lerp_(variance * (n / (n - 1)), self.MOMENTUM)
        return self._scaled(centred, variance)

    def _scaled(self, centred: Tensor, variance: Tensor) -> Tensor:  # [..., n, h], [..., h] -> [..., n, h]
        """Divide by the standard deviation and apply the learned scale and shift."""
        scale = self.weight * (variance + self.EPS).rsqrt()
        return centred * scale[..., None, :] + self.bias[..., None, :]


def hidden_norms(norm: Norm | None, convs: Iterable[nn.Module]) -> nn.ModuleList:
    """Build the normalisations of the hidden layers of a model.

    A batch norm subtracts the bias of the convolution before it again, so that its gradient is nothing but rounding
    errors, which Adam would scale up. These biases are therefore frozen; the norm has a bias of its own.

    Args:
        norm: "layer", "batch", or None for none.
        convs: The convolutions of the hidden layers, each with a `bias` [h]; a batch norm freezes their biases.

    Returns:
        One module for each convolution; for None, modules without parameters that return their input.

    Raises:
        ValueError: If `norm` is something else.

    Example:
        >>> hidden_norms("layer", [nn.Linear(3, 64)])[0].weight.shape
        torch.Size([64])
    """
    if norm is None:
        return nn.ModuleList(nn.Identity() for _ in convs)
    if norm not in get_args(Norm):
        raise ValueError(f'norm must be "layer", "batch" or None, got {norm!r}')
    biases = [cast(Tensor, conv.bias) for conv in convs]
    if norm == "layer":
        return nn.ModuleList(LayerNorm(len(bias)) for bias in biases)
    return nn.ModuleList(BatchNorm(len(bias.requires_grad_(False))) for bias in biases)


def has_batch_norm(model: nn.Module) -> bool:
    """Tell whether a model of this package normalises over nodes, so that its outputs in training depend on all nodes.

    Args:
        model: Any module.

    Returns:
        True if one of its parts is a `BatchNorm`.

    Example:
        >>> has_batch_norm(nn.Sequential(BatchNorm(2))), has_batch_norm(LayerNorm(2))
        (True, False)
    """
    return any(isinstance(module, BatchNorm) for module in model.modules())
