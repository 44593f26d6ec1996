"""What two ranks do in `tests/test_frameworks.py`: Lightning with manual optimisation and its own DDP."""

import os
import sys
from typing import Any

import lightning
import torch
from distributed_cases import batch, expected, full_gradients, loss_on, network, ranks_agree
from process_pair import WORLD, run_cases
from reference_step import relative_error, weights_of
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from wtawp.core import WTAWP


class Manual(lightning.LightningModule):
    """A module that hands Lightning's own backward to the step."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.network, self.error = network(), -1.0
        self.awp = WTAWP(self.network, rho=0.3, lam=0.7)

    def training_step(self, _: Any, number: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.awp.backward(loss_on(self.network, self.global_rank, number % 4), backward=self.manual_backward)
        if number == 0:
            self.error = relative_error(full_gradients(self.network), expected(None))
        optimizer.step()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def manual(rank: int) -> dict[str, Any]:
    """Fifty steps on two ranks."""
    model = Manual()
    start = weights_of(model.network)
    data: DataLoader[tuple[Tensor, ...]] = DataLoader(TensorDataset(torch.zeros(50 * WORLD)), batch_size=1)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=WORLD,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    weights = weights_of(model.network)
    assert trainer.world_size == WORLD
    assert trainer.global_rank == rank
    assert len(batch(rank)[0]) > 0
    return {"error": model.error, "agree": ranks_agree(weights), "moved": relative_error(weights, start)}


if __name__ == "__main__":
    os.environ.update(LOCAL_RANK=sys.argv[1], NODE_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    run_cases({"manual": manual})
