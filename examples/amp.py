"""WT-AWP in float16 with a gradient scaler: the closure computes the loss, `backward=` scales it.

python examples/amp.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

from wtawp import WTAWP

if __name__ == "__main__":
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    training, test = random_split(digits, [0.7, 0.3])

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    scaler = torch.amp.GradScaler(device)
    awp = WTAWP(model, rho=0.1, lam=0.5)

    for _ in range(8):
        for images, labels in DataLoader(training, batch_size=64, shuffle=True):
            images, labels = images.to(device), labels.to(device)

            def loss(images: torch.Tensor = images, labels: torch.Tensor = labels) -> torch.Tensor:
                with torch.autocast(device, torch.float16):
                    return F.cross_entropy(model(images), labels)

            optimizer.zero_grad()
            awp.backward(
                loss, backward=lambda value: scaler.scale(value).backward()
            )  # was: scaler.scale(loss()).backward()
            scaler.unscale_(optimizer)  # once a step, as without the method
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    model.eval()
    images, labels = (t.to(device) for t in test[:])
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean()
    print(f"test accuracy {float(accuracy):.3f}, scale {scaler.get_scale():.0f}")
