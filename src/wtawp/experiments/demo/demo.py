"""The demonstration: the paper's toy story, then a GCN with and without WT-AWP on paired splits.

It measures and reports; nothing here knows in advance who wins.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Thread

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.analysis import loss_along_random_directions, sharpness
from wtawp.base import DownloadError, VanishingGradientWarning, rng
from wtawp.core import AwpConfig
from wtawp.experiments.execution.engines import local
from wtawp.experiments.results.statistics import PairedDifference, paired_difference
from wtawp.graphs import Split, get, load, place_of, stratified
from wtawp.models import GCN
from wtawp.training import Fit, fit

TOY_RHO = 2.5
TOY_VARIANTS: dict[str, AwpConfig | None] = {
    "vanilla": None,
    "AWP": AwpConfig(rho=TOY_RHO, lam=1.0, layers="all"),
    "T-AWP": AwpConfig(rho=TOY_RHO, lam=1.0),
    "W-AWP": AwpConfig(rho=TOY_RHO, lam=0.5, layers="all"),
    "WT-AWP": AwpConfig(rho=TOY_RHO, lam=0.5),
}
PAIR: dict[str, AwpConfig | None] = {"GCN": None, "GCN + WT-AWP": AwpConfig(rho=1.0, lam=0.7)}  # Cora's in the paper
SHARPNESS_RHO = 0.1
DISTANCES = tuple(i / 10 for i in range(-10, 11))
TOY_EPOCHS = 200


@dataclass(frozen=True)
class ToyPanel:
    """One trained model of the toy story."""

    name: str
    data: Data
    scores: Tensor  # [n], the probability of class 1 less that of class 0
    fit: Fit


@dataclass(frozen=True)
class Trained:
    """One trained model of the comparison."""

    name: str
    split: int
    fit: Fit
    sharpness: float
    landscape: Tensor  # [directions, distances], the rise of the training loss


@dataclass(frozen=True)
class Demo:
    """All that the demonstration measured."""

    dataset: str
    num_nodes: int
    num_edges: int
    epochs: int
    toys: list[ToyPanel]
    trained: list[Trained]  # ordered by split, then as in PAIR

    def of(self, name: str) -> list[Trained]:
        """The models of one method, in the order of the splits."""
        return [t for t in self.trained if t.name == name]

    def accuracies(self, name: str) -> list[float]:
        """Test accuracies in per cent."""
        return [100 * t.fit.accuracy["test"] for t in self.of(name)]

    @property
    def gain(self) -> PairedDifference:
        """Test accuracy with WT-AWP less that without, in points."""
        return paired_difference(*(self.accuracies(name) for name in PAIR))

    @property
    def verdict(self) -> str:
        """One line that says what the difference means."""
        g = self.gain
        if g.low > 0:
            return "WT-AWP is better here, by more than chance between splits explains."
        if g.high < 0:
            return "WT-AWP is worse here, by more than chance between splits explains: on this graph, train without it."
        leaning = "ahead" if g.mean > 0 else "behind" if g.mean < 0 else "level"
        return (
            f"WT-AWP is {leaning} on average, but {g.num_pairs} splits cannot tell that from chance "
            "(the interval contains 0); more splits may."
        )


def demo_dataset(seconds: float = 8.0) -> tuple[str, str]:
    """Cora if it is here or comes within seconds, the generated network otherwise; and why."""
    if place_of("cora") != "not here":
        return "cora", "Cora is on this machine"
    failed: list[DownloadError] = []

    def fetch_cora() -> None:
        try:
            get("cora")
        except DownloadError as error:
            failed.append(error)

    fetching = Thread(target=fetch_cora, daemon=True)  # goes on in the background if it is slow
    fetching.start()
    fetching.join(seconds)
    if place_of("cora") != "not here":
        return "cora", "Cora was downloaded"
    return "citation", "Cora could not be fetched" if failed else f"Cora did not arrive within {seconds:.0f} s"


def run_demo(
    *,
    dataset: str = "citation",
    num_splits: int = 5,
    epochs: int = 600,
    workers: int | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Demo:
    """Train everything, `workers` models at a time (default: one per core); `progress(share, what)` is told of each."""
    if num_splits < 2:
        raise ValueError(f"a paired comparison needs at least 2 splits, got {num_splits}")
    data = load(dataset)
    # A job is (its cost in arbitrary units, what it is, the work itself); the short ones go last.
    jobs: list[tuple[float, str, Callable[[], ToyPanel | Trained]]] = [
        (
            epochs * (7 if config is None else 12),
            f"{name}, split {i + 1}",
            partial(_train, name, config, dataset, i, epochs),
        )
        for i in range(num_splits)
        for name, config in PAIR.items()
    ]
    jobs += [(TOY_EPOCHS, f"toy, {name}", partial(_toy, name, config)) for name, config in TOY_VARIANTS.items()]
    total, done = sum(cost for cost, _, _ in jobs), 0.0
    found: dict[int, ToyPanel | Trained] = {}
    for i, result in local(workers or os.cpu_count() or 1)([work for _, _, work in jobs], _call):
        found[i] = result
        done += jobs[i][0]
        if progress is not None:
            progress(done / total, jobs[i][1])
    results = [found[i] for i in range(len(jobs))]
    return Demo(
        dataset=dataset,
        num_nodes=int(data.num_nodes or 0),
        num_edges=data.edge_index.shape[1] // 2,
        epochs=epochs,
        toys=[r for r in results if isinstance(r, ToyPanel)],
        trained=[r for r in results if isinstance(r, Trained)],
    )


def _call(work: Callable[[], ToyPanel | Trained]) -> ToyPanel | Trained:
    return work()


def _toy(name: str, config: AwpConfig | None) -> ToyPanel:
    data = load("toy-linear")
    model = GCN(2, 2, generator=rng("init", 0))
    with warnings.catch_warnings():  # the figure shows that AWP fails here, and why
        warnings.simplefilter("ignore", VanishingGradientWarning)
        result = fit(model, data, stratified(data.y, seed=0), seed=0, awp=config, epochs=TOY_EPOCHS)
    with torch.no_grad():
        p = model(data.x, data.edge_index).softmax(1)
    return ToyPanel(name, data, p[:, 1] - p[:, 0], result)


def _train(name: str, config: AwpConfig | None, dataset: str, split_seed: int, epochs: int) -> Trained:
    data = load(dataset)
    split = stratified(data.y, seed=split_seed)
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init", split_seed))
    result = fit(model, data, split, seed=split_seed, awp=config, epochs=epochs)
    loss_fn = partial(_training_loss, model, data, split)
    rise = loss_along_random_directions(model, loss_fn, DISTANCES, seed=0, scale="layer") - result.loss["train"]
    return Trained(name, split_seed, result, sharpness(model, loss_fn, rho=SHARPNESS_RHO), rise)


def _training_loss(model: nn.Module, data: Data, split: Split) -> Tensor:
    return F.cross_entropy(model(data.x, data.edge_index)[split.train], data.y[split.train])
