"""Build what a setting describes: load its data, draw its split, construct its model."""

from functools import lru_cache

from torch import nn
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.experiments.spec import PlanError, Run, Setting, add_cwd_to_sys_path
from wtawp.graphs import Split, batched, is_collection, load, stratified
from wtawp.models.registry import model_spec


def build_model(run: Run, data: Data) -> nn.Module:
    """Construct the model of a run; its initial weights depend on the numbers of split and initialisation alone.

    Args:
        run: The run.
        data: Its graph, from which the numbers of features and classes are read.

    Returns:
        The model, on the CPU.

    Raises:
        PlanError: If a user's class cannot be imported.
        ValueError: If a user's class does not construct a `torch.nn.Module`.
    """
    setting, num_classes = run.setting, int(data.y.max()) + 1
    spec, generator = model_spec(setting.model), rng("init", run.split, run.init)
    if spec.is_user_code:
        add_cwd_to_sys_path()
        try:
            spec.resolve()
        except ImportError as error:
            raise PlanError(f"there is no model {setting.model}: {error}; write package.module:Class") from error
    return spec.build(data.num_features, num_classes, dict(setting.options), generator)


def data_of(setting: Setting, split: int) -> Data:
    """Load the data of a setting.

    Args:
        setting: The setting.
        split: The number of the split: some toy data sets are drawn anew for each split.

    Returns:
        The graph, or all graphs as one batch.
    """
    return _batch(setting.dataset, split if setting.is_redrawn else 0, setting.features)


def graphs_of(setting: Setting) -> Data | list[Data]:
    """Load the data of a setting without making a batch of several graphs.

    Args:
        setting: The setting.

    Returns:
        One graph, or a list of graphs.
    """
    return _graphs(setting.dataset, 0, setting.features)


def split_of(data: Data, number: int) -> Split:
    """Draw a split with the paper's shares: 10 / 10 / 80 per cent of nodes, 80 / 10 / 10 of graphs (sec:datagraphc).

    Args:
        data: The graph, or all graphs as one batch.
        number: The number of the split, which is its seed.

    Returns:
        The split into training, validation and test.
    """
    return stratified(data.y, seed=number, train=0.8 if is_collection(data) else 0.1, val=0.1)


@lru_cache(maxsize=8)
def _batch(name: str, seed: int, features: str | None) -> Data:
    return batched(_graphs(name, seed, features))


@lru_cache(maxsize=2)
def _graphs(name: str, seed: int, features: str | None) -> Data | list[Data]:
    add_cwd_to_sys_path()  # a name may be a reference to a function of the user
    return load(name, seed=seed, features=features)  # type: ignore[arg-type]  # `load` checks it
