"""Adversarial training (Xu et al. 2019; Geisler et al. 2021): the model is trained on the graph after an attack."""

from collections.abc import Callable

from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.losses import Loss
from wtawp.attacks.prbcd_attack import prbcd
from wtawp.base import checked_seed, seed_of


def attacked_by_prbcd(
    model: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    every: int = 1,
    warm_up: int = 10,
    steps: int = 10,
    loss: Loss = "tanh_margin",
    block_size: int = 250_000,
) -> Callable[[Data, int], Data]:
    """Make an augmentation for `fit` that attacks the model with PRBCD while it is trained.

    Pass it to `fit(model, ..., augment=...)` with the same model: in `fit_many` all models would be trained against
    attacks on this one. Validation and the selection of the epoch use the clean graph.

    Training is transductive: the model sees the test nodes with their clean edges in every epoch. A gain against a
    later attack on these nodes may come from memorizing the clean graph (Gosch et al. 2023), so do not interpret it as
    robustness on unseen nodes.

    Args:
        model: The model that is trained, which the attack uses as it is at that epoch.
        budget: Flips allowed: a share of the edges (float) or their number (int).
        nodes: The training nodes, whose loss the attack increases.
        labels: The classes of all nodes, [n]; only those of the training nodes are used.
        seed: The seed of the attacks.
        every: Epochs between two attacks, at least 1; between them the last attacked graph is used again.
        warm_up: Epochs at the beginning that use the clean graph, at least 0.
        steps: Steps of each attack; fewer than for an evaluation, since there are many attacks.
        loss: The loss that the attack increases.
        block_size: Edges that the attack considers at a time.

    Returns:
        A function that takes the clean graph and the epoch, and returns the graph to train on.

    Raises:
        ValueError: If the seed is no whole number, or `every` or `warm_up` is too small.
    """
    seed = checked_seed(seed)
    if every < 1 or warm_up < 0:
        raise ValueError(f"every must be >= 1 and warm_up >= 0, got {every} and {warm_up}")
    attacked: Data | None = None

    def augment(data: Data, epoch: int) -> Data:
        nonlocal attacked
        if epoch < warm_up:
            return data
        if attacked is None or (epoch - warm_up) % every == 0:
            flips = prbcd(
                data, model, budget=budget, nodes=nodes, labels=labels, seed=seed_of("adversarial", seed, epoch),
                steps=steps, loss=loss, block_size=block_size, samples=0,
            )  # fmt: skip
            attacked = flips.apply(data)
        return attacked

    return augment
