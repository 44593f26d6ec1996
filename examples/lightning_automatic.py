"""WT-AWP in Lightning with automatic optimization: `training_step` returns `awp.loss(...)`.

pip install 'wtawp[lightning]' && python examples/lightning_automatic.py
"""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from wtawp import WTAWP
from wtawp.integrations import PerturbationCallback, gradient_scale


class Classifier(lightning.LightningModule):
    """Digits from 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.awp = WTAWP(self.network, rho=0.1, lam=0.5)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        # was: return F.cross_entropy(self.network(images), labels)
        return self.awp.loss(
            lambda: F.cross_entropy(self.network(images), labels),
            scale=gradient_scale(self.trainer),  # for precision="16-mixed"; None otherwise
        )

    def test_step(self, batch: list[torch.Tensor]) -> None:
        images, labels = batch
        self.log("accuracy", (self.network(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003)


if __name__ == "__main__":
    lightning.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    training, test = random_split(digits, [0.7, 0.3])

    module = Classifier()
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=1,
        max_epochs=8,
        log_every_n_steps=5,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=lightning.pytorch.loggers.CSVLogger("lightning_logs"),
        callbacks=[PerturbationCallback(module.awp)],  # logs the gap and others; saves the state with checkpoints
    )
    trainer.fit(module, DataLoader(training, batch_size=64, shuffle=True))
    gap = float(trainer.callback_metrics["wtawp/gap"])
    [result] = trainer.test(module, DataLoader(test, batch_size=len(test)), verbose=False)
    print(f"gap of the losses {gap:.3f}, test accuracy {result['accuracy']:.3f}")
