"""What two ranks do in `tests/core/test_observation.py`: each compares what it observes with its own batch."""

from typing import Any

import torch
from process_pair import WORLD, run_cases
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from wtawp.base import rng
from wtawp.core import WTAWP, StepStatistics

RHO = 0.5
G = rng("observed_pair")
X, Y = torch.randn(2, 8, 4, generator=G), torch.randint(0, 3, (2, 8), generator=G)  # [rank, row, ...]


def network() -> nn.Sequential:
    model, g = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), rng("network of observed_pair")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    return model


def loss_and_gradient(w: list[Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
    w = [t.detach().clone().requires_grad_() for t in w]
    loss = F.cross_entropy(torch.tanh(x @ w[0].T + w[1]) @ w[2].T + w[3], y)
    return loss.detach(), list(torch.autograd.grad(loss, w))


def observe(rank: int) -> dict[str, Any]:
    """Both kinds of distributed models, beside what the rank should observe; the perturbation is that of both ranks."""
    w = [p.detach() for p in network().parameters()]
    joined = loss_and_gradient(w, X.flatten(0, 1), Y.flatten())[1][0]
    moved = [w[0] + joined * (RHO * w[0].norm() / joined.norm()), *w[1:]]
    pairs = [loss_and_gradient(at, X[rank], Y[rank]) for at in (w, moved)]
    losses, norms = [loss for loss, _ in pairs], [torch.cat([g.flatten() for g in gs]).norm() for _, gs in pairs]
    sharded = fully_shard(network(), mesh=init_device_mesh("cpu", (WORLD,)))
    report = {"expected": [float(t) for t in (*losses, *norms)] + [RHO]}
    for kind, model in {"ddp": DistributedDataParallel(network()), "fsdp2": sharded}.items():
        steps: list[StepStatistics] = []
        awp = WTAWP(model, rho=RHO, lam=0.7)
        awp.register_step_hook(steps.append)
        awp.backward(lambda model=model: F.cross_entropy(model(X[rank]), Y[rank]))
        [step] = steps
        found = [step.natural_loss, step.perturbed_loss, step.natural_gradient_norm, step.perturbed_gradient_norm]
        report[kind] = [float(t) for t in (*found, *step.relative_perturbation.values())]
    return report


if __name__ == "__main__":
    run_cases({"observe": observe})
