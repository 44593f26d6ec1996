"""Build what a setting describes: load its data, draw its split, construct its model."""

from dataclasses import replace
from functools import lru_cache

from torch import nn
from torch_geometric.data import Data

from wtawp.base import DataError, WtawpError, rng
from wtawp.experiments.spec import Plan, PlanError, Run, Setting, SplitRule, add_cwd_to_sys_path
from wtawp.graphs import (
    Split,
    batched,
    check_split,
    dataset_names,
    dataset_spec,
    has_masks,
    is_collection,
    k_fold,
    load,
    num_mask_splits,
    released_split,
    split_from_masks,
    stratified,
)
from wtawp.graphs.composed_names import composed_name, files_of_name
from wtawp.models.registry import model_spec


def build_model(run: Run, data: Data) -> nn.Module:
    """Construct the model of a run; its initial weights depend on the numbers of split and initialisation alone.

    Args:
        run: The run.
        data: Its graph, from which the numbers of features and classes are read.

    Returns:
        The model, on the CPU.

    Raises:
        PlanError: If a user's class cannot be imported, or fails.
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
    try:
        return spec.build(data.num_features, num_classes, dict(setting.options), generator)
    except (WtawpError, ValueError, TypeError, MemoryError):
        raise
    except Exception as error:
        if not spec.is_user_code:
            raise
        raise PlanError(
            f"{setting.model} cannot be built for {data.num_features} features and {num_classes} classes:"
            f" {type(error).__name__}: {error}"
        ) from error


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


def split_of(setting: Setting, data: Data, number: int) -> Split:
    """Divide data as a setting says.

    Random splits have the paper's shares by default: 10 / 10 / 80 per cent of nodes, 80 / 10 / 10 of graphs
    (sec:datagraphc).

    Args:
        setting: The setting.
        data: The graph, or all graphs as one batch.
        number: The number of the split: the seed of a random one, the column of masks, or the fold.

    Returns:
        The split into training, validation and test.

    Raises:
        DataError: If the masks or the shares are not usable, or if there are fewer splits.
    """
    rule = setting.split_rule
    if rule.kind == "masks":
        if is_collection(data):
            raise DataError(f"{setting.dataset} is a list of graphs, and masks divide the nodes of one graph")
        count = num_mask_splits(data)
        if count is None and number > 0:
            raise DataError(f"the masks of {setting.dataset} describe one split, so there is no split {number}")
        return check_split(split_from_masks(data, None if count is None else number), data.y)
    if rule.kind == "k-fold":
        assert rule.folds is not None
        if number >= rule.folds:
            raise DataError(f"a {rule.folds}-fold split has the splits 0 to {rule.folds - 1}, got {number}")
        return k_fold(data.y, folds=rule.folds, seed=0)[number]
    if rule.kind == "released":
        if is_collection(data):
            raise DataError(f"{setting.dataset} is a list of graphs, and the released splits are of nodes")
        return released_split(data.y, seed=number)
    default = 0.8 if is_collection(data) else 0.1
    train, val = (default if rule.train is None else rule.train), (0.1 if rule.val is None else rule.val)
    return stratified(data.y, seed=number, train=train, val=val)


def describe_split(setting: Setting, number: int = 0) -> str:
    """Say in a sentence how the data of a setting are divided, and how large the parts are.

    Args:
        setting: The setting.
        number: The number of the split; others may have parts of other sizes.

    Returns:
        The sentence.
    """
    data = data_of(setting, number)
    split, rule = split_of(setting, data, number), setting.split_rule
    unit = "graphs" if is_collection(data) else "nodes"
    ways = {"random": "at random", "masks": "by the masks of the graph", "k-fold": f"into {rule.folds} folds",
            "released": "as in the released code"}  # fmt: skip
    has_unused = not is_collection(data) and has_masks(data) and rule.kind != "masks"
    unused = "; the masks of the graph are not used (--split masks uses them)" * has_unused
    sizes = f"{len(split.train):,} {unit} to train, {len(split.val):,} to validate, {len(split.test):,} to test"
    return f"{setting.dataset}: split {ways[rule.kind]}: {sizes}{unused}."


def default_split(dataset: str) -> SplitRule:
    """Choose the split of data for which the user chose none.

    Args:
        dataset: The name of a data set, or the path of a graph in a file.

    Returns:
        The masks of a graph of the user, in a file or from a function, that has any, and those of a file of a split.
        Otherwise, and for all data sets of ours, random splits as in the paper.

    Raises:
        PlanError: If the data cannot be loaded.
    """
    if dataset in dataset_names() and dataset_spec(dataset).source != "user":
        return SplitRule()
    if (composed := composed_name(dataset)) is not None and composed.split is None:
        return default_split(composed.base)
    try:
        graphs = _graphs(dataset, 0, None)
    except (ValueError, TypeError) as error:  # also of a function of the user
        raise PlanError(f"{dataset} cannot be loaded: {error}") from error
    return SplitRule(kind="masks") if isinstance(graphs, Data) and has_masks(graphs) else SplitRule()


def mask_splits_of(dataset: str) -> int:
    """Count the splits that the masks of a graph describe.

    Args:
        dataset: The name of a data set, or the path of a graph in a file.

    Returns:
        The number of splits; 1 for masks without columns, and for a list of graphs, which is refused later.

    Raises:
        DataError: If a mask is missing, or the masks are not usable.
    """
    graphs = _graphs(dataset, 0, None)
    if not isinstance(graphs, Data):
        return 1
    count = num_mask_splits(graphs)
    split_from_masks(graphs, None if count is None else 0)
    return count or 1


def with_default_splits(plan: Plan) -> Plan:
    """Choose the splits of the cells for which the plan chooses none.

    Where nobody chose the number of splits, masks are used as often as they describe splits. Masks that describe one
    split are trained as often as the splits of other data are in all, with other initialisations.

    Args:
        plan: The plan.

    Returns:
        The plan with those that `default_split` chooses.
    """
    rules = {dataset: default_split(dataset) for dataset in {c.setting.dataset for c in plan.cells}}
    cells = []
    for cell in plan.cells:
        setting = replace(cell.setting, split=cell.setting.split or rules[cell.setting.dataset])
        splits, inits = cell.splits, cell.inits
        if "splits" in plan.unset and setting.split_rule.kind == "masks":
            splits = mask_splits_of(setting.dataset)
            inits = cell.splits * inits if splits == 1 and "inits" in plan.unset else inits
        cells.append(replace(cell, setting=setting, splits=splits, inits=inits))
    return replace(plan, cells=tuple(cells))


def _batch(name: str, seed: int, features: str | None) -> Data:
    """All graphs of a data set as one."""
    return _loaded_batch(name, seed, features, _file_state(name))


def _graphs(name: str, seed: int, features: str | None) -> Data | list[Data]:
    """The graph or the graphs of a data set, kept until others are asked for or their file has changed."""
    return _loaded(name, seed, features, _file_state(name))


def _file_state(name: str) -> tuple[object, ...]:
    """Which files a name is the path of, and what changes when one does; nothing if it is not a path."""
    states = [(file.absolute(), file.stat()) for file in files_of_name(name) if file.is_file()]
    return tuple((file, state.st_ino, state.st_size, state.st_mtime_ns) for file, state in states)


@lru_cache(maxsize=8)
def _loaded_batch(name: str, seed: int, features: str | None, state: tuple[object, ...]) -> Data:
    return batched(_loaded(name, seed, features, state))


@lru_cache(maxsize=2)
def _loaded(name: str, seed: int, features: str | None, _state: tuple[object, ...]) -> Data | list[Data]:
    add_cwd_to_sys_path()  # a name may be a reference to a function of the user
    return load(name, seed=seed, features=features)  # type: ignore[arg-type]  # `load` checks it
