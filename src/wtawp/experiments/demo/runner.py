"""Train the demonstration: the paper's toy problem, then a GCN with and without WT-AWP on paired splits.

The verdict follows from the measurements; nothing here assumes which method is better.
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
from wtawp.base import DataError, DownloadError, VanishingGradientWarning, rng
from wtawp.core import AwpConfig
from wtawp.experiments.execution.engines import EngineError, LostChunk, local
from wtawp.experiments.results.statistics import PairedDifference, paired_difference
from wtawp.graphs import Split, fetch_dataset, load, locate_dataset, stratified
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
COMPARED = AwpConfig(rho=1.0, lam=0.7)  # the paper's values for Cora
PAIR: dict[str, AwpConfig | None] = {"GCN": None, "GCN + WT-AWP": COMPARED}  # without and with, by their labels
SHARPNESS_RHO = 0.1
DISTANCES = tuple(i / 10 for i in range(-10, 11))
TOY_EPOCHS = 200


@dataclass(frozen=True)
class ToyPanel:
    """One trained model of the toy problem.

    Attributes:
        name: The name of the method.
        awp: How its weights were perturbed; None for plain training.
        data: The graph.
        scores: The probability of class 1 less that of class 0, [n].
        fit: The training.
    """

    name: str
    awp: AwpConfig | None
    data: Data
    scores: Tensor
    fit: Fit


@dataclass(frozen=True)
class Trained:
    """One trained model of the comparison.

    Attributes:
        name: The name of the method, as in `PAIR`.
        awp: How its weights were perturbed; None for plain training.
        split: The number of the split.
        fit: The training.
        sharpness: The largest rise of the training loss in a ball of radius `SHARPNESS_RHO`.
        landscape: The rise of the training loss along random directions, [directions, distances].
    """

    name: str
    awp: AwpConfig | None
    split: int
    fit: Fit
    sharpness: float
    landscape: Tensor


@dataclass(frozen=True)
class Demo:
    """The results of the demonstration.

    Attributes:
        dataset: The name of the data set of the comparison.
        num_nodes: Its number of nodes.
        num_edges: Its number of edges.
        epochs: The epochs of each training.
        toys: The models of the toy problem.
        trained: The models of the comparison, ordered by split, then as in `PAIR`.
    """

    dataset: str
    num_nodes: int
    num_edges: int
    epochs: int
    toys: list[ToyPanel]
    trained: list[Trained]

    def of(self, name: str) -> list[Trained]:
        """The models of one method.

        Args:
            name: "GCN" or "GCN + WT-AWP".

        Returns:
            A model for each split, in their order.
        """
        return [t for t in self.trained if t.name == name]

    def accuracies(self, name: str) -> list[float]:
        """The test accuracies of one method.

        Args:
            name: "GCN" or "GCN + WT-AWP".

        Returns:
            Per cent, one for each split.
        """
        return [100 * t.fit.accuracy["test"] for t in self.of(name)]

    @property
    def gain(self) -> PairedDifference:
        """The test accuracy with WT-AWP less that without, in points, paired over splits."""
        return paired_difference(*(self.accuracies(name) for name in PAIR))

    @property
    def verdict(self) -> str:
        """One sentence on what the difference means."""
        g = self.gain
        if g.low is None or g.high is None:
            return (
                f"WT-AWP changes the accuracy by {g.mean:+.2f} points in each of the {g.num_pairs} splits; without any "
                "spread between them, nothing can be said about chance; more splits may differ."
            )
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
    """Choose the data set of the demonstration: Cora if it can be had quickly, otherwise a generated network.

    Args:
        seconds: How long to wait for a download; eight seconds suffice for Cora's small file.

    Returns:
        The name of the data set, and the reason for the choice.
    """
    if locate_dataset("cora") != "not here":
        return "cora", "Cora is on this machine"
    failed: list[DownloadError] = []

    def fetch_cora() -> None:
        try:
            fetch_dataset("cora")
        except DownloadError as error:
            failed.append(error)

    fetching = Thread(target=fetch_cora, daemon=True)  # goes on in the background if it is slow
    fetching.start()
    fetching.join(seconds)
    if locate_dataset("cora") != "not here":
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
    """Train the models of the demonstration and measure their sharpness and loss landscapes.

    Args:
        dataset: The data set of the comparison: any node-level graph; by default one that needs no download.
        num_splits: Paired splits, at least 2; five show a difference without taking long.
        epochs: Epochs of each training; WT-AWP needs more of them than plain training.
        workers: Models that are trained at the same time; by default one for each core.
        progress: Called after each model with the share of the work that is done and the name of the model.

    Returns:
        The trained models with their measurements.

    Raises:
        ValueError: If there are fewer than 2 splits.
        DataError: If the data set is a list of graphs, or there is no such data set.
        EngineError: If the process that trains a model dies, again and again.
    """
    if num_splits < 2:
        raise ValueError(f"a paired comparison needs at least 2 splits, got {num_splits}")
    data = load(dataset)
    if isinstance(data, list):
        raise DataError(f"{dataset} is a list of graphs, and the demonstration classifies the nodes of one; "
                        "choose another data set, or use `wtawp compare`")  # fmt: skip
    # A job is its cost in arbitrary units, its name and the work itself; short jobs go last.
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
    finished: dict[int, ToyPanel | Trained] = {}
    for i, result in local(workers or os.cpu_count() or 1)([work for _, _, work in jobs], _call):
        if isinstance(result, LostChunk):
            raise EngineError(f"{jobs[i][1]} could not be trained: {result.reason}")
        finished[i] = result
        done += jobs[i][0]
        if progress is not None:
            progress(done / total, jobs[i][1])
    results = [finished[i] for i in range(len(jobs))]
    return Demo(
        dataset=dataset,
        num_nodes=int(data.num_nodes or 0),
        num_edges=data.edge_index.shape[1] // 2,
        epochs=epochs,
        toys=[r for r in results if isinstance(r, ToyPanel)],
        trained=[r for r in results if isinstance(r, Trained)],
    )


def _call(work: Callable[[], ToyPanel | Trained]) -> ToyPanel | Trained:
    """Do a job, in whichever process."""
    return work()


def _toy(name: str, config: AwpConfig | None) -> ToyPanel:
    """Train one model of the toy problem."""
    data = load("toy-linear")
    model = GCN(2, 2, generator=rng("init", 0))
    with warnings.catch_warnings():  # the figure shows that AWP fails here, and why
        warnings.simplefilter("ignore", VanishingGradientWarning)
        result = fit(model, data, stratified(data.y, seed=0), seed=0, awp=config, epochs=TOY_EPOCHS)
    with torch.no_grad():
        p = model(data.x, data.edge_index).softmax(1)
    return ToyPanel(name, config, data, p[:, 1] - p[:, 0], result)


def _train(name: str, config: AwpConfig | None, dataset: str, split_seed: int, epochs: int) -> Trained:
    """Train one model of the comparison and measure it."""
    data = load(dataset)
    split = stratified(data.y, seed=split_seed)
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init", split_seed))
    result = fit(model, data, split, seed=split_seed, awp=config, epochs=epochs)
    loss_fn = partial(_training_loss, model, data, split)
    rise = loss_along_random_directions(model, loss_fn, DISTANCES, seed=0, scale="layer") - result.loss["train"]
    return Trained(name, config, split_seed, result, sharpness(model, loss_fn, rho=SHARPNESS_RHO), rise)


def _training_loss(model: nn.Module, data: Data, split: Split) -> Tensor:
    """The loss on the training nodes."""
    return F.cross_entropy(model(data.x, data.edge_index)[split.train], data.y[split.train])
