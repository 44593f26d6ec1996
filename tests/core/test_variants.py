"""SAM and ASAM against loops written from their papers; `test_awp.py` has the variants of the paper."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import rng
from wtawp.core import ASAM, SAM, WTAWP

G = rng("test_variants")
X = torch.randn(12, 4, generator=G, dtype=torch.float64)
Y = torch.randint(0, 3, (12,), generator=G)


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    g = rng("network")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def sam_loop(model: nn.Module, rho: float, unit: Callable[[Tensor], Tensor], steps: int) -> None:
    """SAM (unit = 1) and ASAM (unit = |w| + 0.01) in fifteen lines, as their papers state them."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        scale = rho / sum((unit(p.data) * p.grad).pow(2).sum() for p in model.parameters()).sqrt()
        kept = [p.data.clone() for p in model.parameters()]
        for p in model.parameters():
            p.data += unit(p.data) ** 2 * p.grad * scale
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        for p, k in zip(model.parameters(), kept, strict=True):
            p.data = k
        optimizer.step()


@pytest.mark.parametrize(("build", "unit"), [(SAM, torch.ones_like), (ASAM, lambda w: w.abs() + 0.01)])
def test_sam_and_asam_step_for_step(build: Callable[..., WTAWP], unit: Callable[[Tensor], Tensor]) -> None:
    ours, theirs = network(), network()
    awp, optimizer = build(ours, rho=0.4), torch.optim.Adam(ours.parameters(), lr=0.05)
    assert list(awp.perturbed) == [n for n, _ in ours.named_parameters()]
    for step in range(1, 21):
        optimizer.zero_grad()
        awp.backward(lambda: F.cross_entropy(ours(X), Y))
        optimizer.step()
        theirs = network()
        sam_loop(theirs, 0.4, unit, step)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-11)
