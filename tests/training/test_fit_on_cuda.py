"""The options of `fit` on a GPU; skipped, with a reason, where there is none."""

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import CheckpointError, rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split, load, stratified
from wtawp.models import GCN
from wtawp.training import Fit, dot_product, fit, fit_many

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_a_training_continues_from_a_checkpoint_where_it_is_replayed(tmp_path: Path) -> None:
    data = load("citation")
    data.x = data.x.double()
    split, awp = stratified(data.y, seed=0), AwpConfig(rho=0.5, lam=0.5, every=2)
    path = tmp_path / "training.pt"

    def train(checkpoint: Path | None, observe: Callable[[nn.Module, int], None] | None = None) -> Fit:
        model = GCN(data.num_features, 7, generator=rng("init")).double().cuda()
        return fit(model, data, split, seed=0, awp=awp, epochs=24, checkpoint=checkpoint, checkpoint_every=5,
                   observe=observe)  # fmt: skip

    def keep(_model: nn.Module, epoch: int) -> None:
        shutil.copy(path, tmp_path / f"{epoch}.pt")

    expected = train(None)
    for found in (train(path, keep), train(path), train(tmp_path / "3.pt"), train(tmp_path / "17.pt")):
        assert found.epoch == expected.epoch
        for name, values in expected.history.items():
            assert found.history[name] == pytest.approx(values, rel=1e-7, abs=1e-10)
    model = GCN(data.num_features, 7, generator=rng("init")).double()
    with pytest.raises(CheckpointError, match=r"device \(cuda in the file, cpu now\)"):
        fit(model, data, split, seed=0, awp=awp, epochs=24, checkpoint=path)


def warm_up(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=6)


def margin(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.multi_margin_loss(output, target)


@pytest.mark.parametrize(
    "options",
    [
        {"scheduler": warm_up},
        {"optimizer": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9), "scheduler": warm_up},
        {"optimizer": torch.optim.Adafactor},
        {"loss": margin, "metric": lambda o, t: float((o.argmax(1) == t).sum()), "select_on": "metric"},
        {"loss": margin, "awp": AwpConfig(rho=0.5, lam=0.5, every=3)},
        {"awp": AwpConfig(rho=0.5, lam=0.5, every=3)},
    ],
)
def test_own_optimizers_schedules_and_losses_train_on_the_gpu_as_on_the_cpu(options: dict[str, Any]) -> None:
    data = load("citation")
    data.x = data.x.double()
    splits = [stratified(data.y, seed=s) for s in range(2)]
    losses = []
    for device in ("cpu", "cuda"):
        models = [GCN(data.num_features, 7, generator=rng("init", i)).double().to(device) for i in range(2)]
        results = fit_many(models, data, splits, seeds=[0, 1], epochs=12, **options)
        losses.append([v for r in results for name in ("train_loss", "val_loss") for v in r.history[name]])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


def test_links_train_on_the_gpu_as_on_the_cpu() -> None:
    data = load("citation")
    pairs = torch.randint(0, data.num_nodes, (2, 90), generator=rng("pairs"))
    graph = Data(x=data.x.double(), edge_index=data.edge_index, edge_label_index=pairs,
                 edge_label=(data.y[pairs[0]] == data.y[pairs[1]]).double())  # fmt: skip
    parts = Split(*torch.arange(90).split(30))
    losses = []
    for device in ("cpu", "cuda"):
        model = GCN(data.num_features, 7, generator=rng("init")).double().to(device)
        with warnings.catch_warnings(action="ignore"):  # some of the random pairs are edges
            result = fit(model, graph, parts, seed=0, epochs=8, decoder=dot_product, metric=lambda o, t: 0.0,  # noqa: ARG005
                         loss=F.binary_cross_entropy_with_logits)  # fmt: skip
        losses.append(result.history["val_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
