"""WT-AWP with accelerate: `awp.backward` with `accelerator.backward`, which divides by the number of micro-batches.

pip install 'wtawp[accelerate]' && python examples/accelerate_accumulation.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from wtawp import WTAWP

if __name__ == "__main__":
    accelerator = Accelerator(gradient_accumulation_steps=2)
    set_seed(0)
    images, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    training, test = random_split(digits, [0.7, 0.3])

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    loader = DataLoader(training, batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    awp = WTAWP(model, rho=0.1, lam=0.5)

    for _ in range(8):
        for images, labels in loader:
            with accelerator.accumulate(model):
                # was: accelerator.backward(F.cross_entropy(model(images), labels))
                awp.backward(
                    lambda images=images, labels=labels: F.cross_entropy(model(images), labels),
                    backward=accelerator.backward,
                )
                optimizer.step()
                optimizer.zero_grad()

    model.eval()
    images, labels = (t.to(accelerator.device) for t in test[:])
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean()
    print(f"test accuracy {float(accuracy):.3f}")
