"""What WT-AWP does during training, as scalars of TensorBoard: losses, their gap, gradient norms, |delta| / |theta|.

pip install 'wtawp[log]' && python examples/tensorboard_scalars.py [FOLDER]; tensorboard --logdir FOLDER
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.tensorboard import SummaryWriter

from wtawp import WTAWP
from wtawp.integrations import ScalarLogger

if __name__ == "__main__":
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    training, test = random_split(digits, [0.7, 0.3])

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    awp = WTAWP(model, rho=0.1, lam=0.5)
    awp.register_step_hook(  # any function of a step will do, with or without TensorBoard
        lambda step: print(f"step {step.step}: gap of the losses {float(step.gap):.3f}"), every=50
    )

    with SummaryWriter(sys.argv[1] if sys.argv[1:] else "runs") as writer, ScalarLogger(awp, writer, every=5):
        for _ in range(8):
            for images, labels in DataLoader(training, batch_size=64, shuffle=True):
                optimizer.zero_grad()
                awp.backward(lambda images=images, labels=labels: F.cross_entropy(model(images), labels))
                optimizer.step()

    images, labels = test[:]
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean()
    print(f"test accuracy {float(accuracy):.3f}")
