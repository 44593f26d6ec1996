"""What two ranks do in `tests/integrations/test_lightning.py`: train with Lightning's own DDP, compare with a loop."""

import os
import sys
from functools import partial
from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from process_pair import run_cases
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from wtawp.base import rng
from wtawp.core import WTAWP
from wtawp.integrations import PerturbationCallback, gradient_scale

BATCHES, ROWS, RHO, LAM, RATE = 6, 5, 0.8, 0.7, 0.2
G = rng("lightning_pair")
X = torch.randn(2, BATCHES, ROWS, 4, generator=G)  # [rank, batch, row, feature]
Y = torch.randint(0, 3, (2, BATCHES, ROWS), generator=G)


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    g = rng("network of lightning_pair")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    return model


class Module(lightning.LightningModule):
    """A classifier whose batches depend on the rank."""

    def __init__(self, *, automatic: bool) -> None:
        super().__init__()
        self.automatic_optimization = automatic
        self.network = network()
        self.awp = WTAWP(self.network, rho=RHO, lam=LAM)

    def training_step(self, _: Any, number: int) -> Tensor | None:
        x, y = X[self.global_rank, number], Y[self.global_rank, number]

        def loss() -> Tensor:
            return F.cross_entropy(self.network(x), y)

        if self.automatic_optimization:
            return self.awp.loss(loss, scale=gradient_scale(self.trainer))
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.awp.backward(loss, backward=self.manual_backward)
        optimizer.step()
        return None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=RATE)


def train_by_hand(*, joined: bool, accumulated: int) -> Tensor:
    """The weights of one process that sees all batches; the perturbation is that of both ranks or of each one."""
    w = [p.detach().clone() for p in network().parameters()]

    def gradient_at(at: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
        at = [t.clone().requires_grad_() for t in at]
        logits = F.linear(torch.tanh(F.linear(x, at[0], at[1])), at[2], at[3])
        return list(torch.autograd.grad(F.cross_entropy(logits, y), at))

    def mixed(x: Tensor, y: Tensor) -> list[Tensor]:
        natural = gradient_at(w, x, y)
        delta = natural[0] * (RHO * w[0].norm() / natural[0].norm())
        perturbed = gradient_at([w[0] + delta, *w[1:]], x, y)
        return [LAM * a + (1 - LAM) * b for a, b in zip(perturbed, natural, strict=True)]

    total = [torch.zeros_like(t) for t in w]
    for number in range(BATCHES):
        if joined:
            parts = [mixed(X[:, number].flatten(0, 1), Y[:, number].flatten())]
        else:
            parts = [mixed(X[rank, number], Y[rank, number]) for rank in range(2)]
        for part in parts:
            total = [t + g / len(parts) / accumulated for t, g in zip(total, part, strict=True)]
        if (number + 1) % accumulated == 0:
            w = [t - RATE * g for t, g in zip(w, total, strict=True)]
            total = [torch.zeros_like(t) for t in w]
    return torch.cat([t.flatten() for t in w])


def run(_: int, *, automatic: bool = True, accumulated: int = 1, static_graph: bool = False) -> dict[str, Any]:
    """Train one epoch; the loss form has a perturbation for each rank, manual optimization that of both."""
    module = Module(automatic=automatic)
    lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(static_graph=static_graph),
        max_epochs=1,
        accumulate_grad_batches=accumulated,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[PerturbationCallback(module.awp)],
    ).fit(module, DataLoader(TensorDataset(torch.zeros(2 * BATCHES)), batch_size=1))
    found = torch.cat([p.detach().flatten() for p in module.network.parameters()])
    start = torch.cat([p.detach().flatten() for p in network().parameters()])
    expected, other = (train_by_hand(joined=joined, accumulated=accumulated) for joined in (not automatic, automatic))
    return {
        "error": float((found - expected).norm() / (expected - start).norm()),
        "error_of_the_other_perturbation": float((found - other).norm() / (other - start).norm()),
        "weights": found.tolist(),
    }


def refused(rank: int) -> dict[str, Any]:
    """The message for a static graph with automatic optimization."""
    try:
        run(rank, static_graph=True)
    except ValueError as error:
        return {"refused": str(error)}
    return {"refused": "nothing"}


if __name__ == "__main__":
    os.environ.update(LOCAL_RANK=sys.argv[1], NODE_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    run_cases(
        {
            "automatic": run,
            "accumulated": partial(run, accumulated=3),
            "manual": partial(run, automatic=False),
            "manual_static_graph": partial(run, automatic=False, static_graph=True),
            "static_graph": refused,
        }
    )
