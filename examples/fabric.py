"""WT-AWP with Lightning Fabric: `awp.backward` with `fabric.backward`, here in bfloat16 over two micro-batches a step.

pip install 'wtawp[lightning]' && python examples/fabric.py
"""

import torch
from lightning.fabric import Fabric
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from wtawp import WTAWP

PARTS = 2  # micro-batches of one step

if __name__ == "__main__":
    fabric = Fabric(accelerator="auto", devices=1, precision="bf16-mixed")
    fabric.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    training, test = random_split(digits, [0.7, 0.3])

    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=0.003))
    loader = fabric.setup_dataloaders(DataLoader(training, batch_size=32, shuffle=True))
    awp = WTAWP(model, rho=0.1, lam=0.5)

    for _ in range(8):
        for number, (images, labels) in enumerate(loader):
            is_last = (number + 1) % PARTS == 0
            with fabric.no_backward_sync(model, enabled=not is_last):
                # was: fabric.backward(F.cross_entropy(model(images), labels) / PARTS)
                awp.backward(
                    lambda images=images, labels=labels: F.cross_entropy(model(images), labels),
                    backward=lambda loss: fabric.backward(loss / PARTS),
                )
            if is_last:
                optimizer.step()
                optimizer.zero_grad()

    model.eval()
    images, labels = (fabric.to_device(t) for t in test[:])
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean()
    print(f"test accuracy {float(accuracy):.3f}")
