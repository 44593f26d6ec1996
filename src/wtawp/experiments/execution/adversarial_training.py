"""Adversarial training (Xu et al. 2019; Geisler et al. 2021): training sees the graph as an attacker leaves it."""

from collections.abc import Callable

from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks import prbcd
from wtawp.attacks.prbcd_attack import Loss
from wtawp.base import seed_of


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
    """For `fit(model, ..., augment=...)`: every `every` epochs PRBCD attacks the model as it is then.

    `nodes` are the training nodes, `labels` [n] are looked at for those alone. The first `warm_up` epochs see the clean
    graph; so do validation and selection always. For `fit` with this very model: in `fit_many` all models would be
    trained against attacks on this one.

    Training is transductive: the model sees the test nodes, with their clean edges, all along. What it gains against
    an attack on them later may come from having learnt the clean graph by heart (Gosch et al. 2023), so do not read it
    as robustness on nodes that it has never seen.
    """
    if every < 1 or warm_up < 0:
        raise ValueError(f"every must be >= 1 and warm_up >= 0, got {every} and {warm_up}")
    latest: Data | None = None

    def augment(data: Data, epoch: int) -> Data:
        nonlocal latest
        if epoch < warm_up:
            return data
        if latest is None or (epoch - warm_up) % every == 0:
            flips = prbcd(
                data, model, budget=budget, nodes=nodes, labels=labels, seed=seed_of("adversarial", seed, epoch),
                steps=steps, loss=loss, block_size=block_size, samples=0,
            )  # fmt: skip
            latest = flips.apply(data)
        return latest

    return augment
