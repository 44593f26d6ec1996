"""WT-AWP on two processes with DistributedDataParallel: nothing but the model changes.

By default the processes share one perturbation, that of the joined batch. With `sync=False` each has its own, which
saves the communication of the first pass.

python examples/ddp.py
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from wtawp import WTAWP

WORLD = 2


def run(rank: int, meeting: str) -> None:
    """What each process does; the model is gone before the process group is."""
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD)
    train(rank)
    distributed.destroy_process_group()


def train(rank: int) -> None:
    """Train on the rows of one process, and compare the weights at the end."""
    torch.manual_seed(0)
    images, labels = (torch.tensor(a) for a in load_digits(return_X_y=True))
    images, order = images.float() / 16, torch.randperm(len(labels))
    training, test = order[:1200], order[1200:]

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    awp = WTAWP(model, rho=0.1, lam=0.5)
    for epoch in range(8):
        shuffled = training[torch.randperm(len(training), generator=torch.Generator().manual_seed(epoch))]
        for rows in shuffled[rank::WORLD].split(40):  # the processes have different rows
            optimizer.zero_grad()
            awp.backward(lambda rows=rows: F.cross_entropy(model(images[rows]), labels[rows]))
            optimizer.step()

    with torch.no_grad():
        accuracy = (model(images[test]).argmax(1) == labels[test]).float().mean()
    sums = [torch.zeros(()) for _ in range(WORLD)]
    distributed.all_gather(sums, sum(p.detach().double().sum() for p in model.parameters()).float())
    if rank == 0:
        print(f"the same weights in all processes: {len({float(s) for s in sums}) == 1}")
        print(f"test accuracy {float(accuracy):.3f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        torch.multiprocessing.start_processes(run, (meeting,), nprocs=WORLD, start_method="fork")
