"""What training and evaluation require of graphs, targets and splits. Whatever would give a wrong number is refused."""

import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from wtawp.base import DataError, find_stack_level, shortened
from wtawp.core import AwpConfig
from wtawp.core.config import MIN_AUTO_LR
from wtawp.graphs import Split, SplitWithoutTest, is_collection, is_memory_mapped, split_from_masks
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.calls import Forward
from wtawp.models.capabilities import StackAware, StackAwareOnGraphs

PARTS = ("train", "val", "test")
Samples = Literal["nodes", "graphs", "pairs"]
RECIPES = "docs/own_loop.md"
CALLS = {  # how each function of a caller is called, and an example of one
    "loss": "loss(output, target), such as torch.nn.functional.mse_loss",
    "metric": "metric(output, target), such as lambda output, target: (output - target).abs().mean()",
    "scheduler": "scheduler(optimizer), such as lambda optimizer: CosineAnnealingLR(optimizer, 200)",
    "augment": "augment(data, epoch), which returns a graph",
    "observe": "observe(model, epoch)",
    "decoder": "decoder(first, second), such as wtawp.training.dot_product",
    "forward": "forward(model, data), such as lambda model, data: model(data.x, data.edge_index)",
}


def check_perturbation(awp: object) -> None:
    """Refuse what does not describe a perturbation.

    Args:
        awp: What a caller has passed.

    Raises:
        ValueError: If it is neither None nor an `AwpConfig`.
    """
    if awp is not None and not isinstance(awp, AwpConfig):
        raise ValueError(f"awp takes the options of the method, AwpConfig(rho=..., lam=...), got {type(awp).__name__}")


def warn_of_slow_training(awp: AwpConfig, lr: float) -> None:
    """Warn of lam="auto" with a learning rate for which its rule was not made.

    Args:
        awp: How the weights are perturbed.
        lr: The learning rate of Adam.
    """
    if awp.is_auto and not awp.is_plain and lr < MIN_AUTO_LR:
        warnings.warn(
            f'lam="auto" was chosen and confirmed with lr=0.01, and counts epochs: with lr={lr:g} it can perturb a'
            " model before it has learned, which cost a GraphSAGE 3.8 points of accuracy at lr=0.003; compare with"
            " plain training, or choose lam as a number",
            stacklevel=find_stack_level(),
        )


def device_of_trained(model: nn.Module) -> torch.device:
    """Find where a model is that shall be trained.

    Args:
        model: The model.

    Returns:
        The device of its parameters.

    Raises:
        ValueError: If it has no parameters, or all are frozen.
    """
    device = next((p.device for p in model.parameters()), None)
    if device is None:
        raise ValueError(f"{type(model).__name__} has no parameters to train")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(f"all parameters of {type(model).__name__} are frozen; nothing is left to train")
    return device


def check_data(model: object, data: object, forward: Forward | None, caller: str) -> None:
    """Refuse what is not a module, or not a graph or a list of graphs.

    Args:
        model: What a caller has passed as the model.
        data: What a caller has passed as the graph, or as several.
        forward: The adapter of the caller, which heterogeneous graphs need; None if there is none.
        caller: Name of the function, for messages.

    Raises:
        DataError: If one of them is something else.
    """
    if not isinstance(model, nn.Module):
        raise DataError(f"{caller} takes a torch.nn.Module, got {type(model).__name__}")
    if isinstance(data, HeteroData) and forward is None:
        raise DataError(
            f"{caller} calls models as model(x, edge_index), and a HeteroData has several of both; pass"
            ' forward=lambda model, data: model(data.x_dict, data.edge_index_dict)["paper"], which returns the rows of'
            f" the nodes that have y. If {caller} takes no forward=, see {RECIPES}"
        )
    if isinstance(data, Data | HeteroData):
        return
    if not isinstance(data, Sequence) or isinstance(data, str) or not all(isinstance(graph, Data) for graph in data):
        kind = type(data).__name__
        hint = f"; load it first: load({data!r})" if isinstance(data, str) else ""
        raise DataError(f"{caller} takes a PyG Data, or a list of them to classify whole graphs, got {kind}{hint}")
    for i, graph in enumerate(data):
        is_of_nodes = isinstance(graph.y, Tensor) and graph.y.dim() and len(graph.y) == graph.num_nodes > 1
        if is_of_nodes and isinstance(graph.y, Tensor) and len(graph.y) > 1:
            raise DataError(
                f"graph {i} of the list has a target for each of its {graph.num_nodes} nodes, and {caller} takes one"
                " for each graph. For targets of nodes, join the graphs: union = Batch.from_data_list(graphs), with the"
                f" masks train_mask, val_mask and test_mask, and Data without its batch; see {RECIPES}"
            )


def check_functions(**functions: object) -> None:
    """Refuse what cannot be called where a function is expected, such as the name of a loss.

    Args:
        **functions: What a caller has passed, by the name of the argument, one of `CALLS`; None is accepted.

    Raises:
        ValueError: If one of them is no function, or is the class of a module that must be built first.
    """
    for name, function in functions.items():
        if isinstance(function, type) and issubclass(function, nn.Module):
            kind = function.__name__
            raise ValueError(f"{name} must be a function or an object, got the class {kind}; build it: {name}={kind}()")
        if function is not None and not callable(function):
            got = f"{shortened(repr(function), 60)} ({type(function).__name__})"
            raise ValueError(f"{name} must be a function, called as {CALLS[name]}; got {got}")


def refuse_trainable(**functions: object) -> None:
    """Refuse a loss or a metric that has something to learn, of which the optimizer would know nothing.

    Args:
        **functions: What a caller has passed, by the name of the argument.

    Raises:
        ValueError: If one of them is a module with parameters to train.
    """
    for name, function in functions.items():
        if isinstance(function, nn.Module) and any(p.requires_grad for p in function.parameters()):
            raise ValueError(
                f"{name} is a {type(function).__name__} with parameters, which would not be trained; make it part of"
                " the model, or call .requires_grad_(False) on it"
            )


def check_graph(data: Data, model: nn.Module, *, is_adapted: bool) -> None:
    """Refuse a graph without features or edges, with numbers that are not finite, or with edges that leave it.

    Args:
        data: The graph, or a collection of graphs as one batch.
        model: The module that is called with it.
        is_adapted: Whether an adapter calls the module, which may do without features and edges.

    Raises:
        DataError: If something is missing or not valid.
    """
    x, edges = data.x, data.edge_index
    if x is None and not is_adapted:
        raise DataError("the graph has no features x; give it some, such as data.x = torch.eye(data.num_nodes)")
    if edges is None and not is_adapted:
        raise DataError("the graph has no edge_index [2, e]; PyG's ToSparseTensor keeps it if remove_edge_index=False")
    if x is not None:
        check_features(x, model)
    if edges is not None:
        if edges.dim() != 2 or len(edges) != 2 or edges.dtype != torch.int64:
            raise DataError(f"edge_index must be int64 of shape [2, e], got {edges.dtype} of shape {list(edges.shape)}")
        size = data.num_nodes
        if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < size:
            raise DataError(
                f"edge_index must name nodes 0 to {size - 1}, got {int(edges.min())} to {int(edges.max())};"
                " the features have one row for each node"
            )
    if isinstance(weight := data.get("edge_weight"), Tensor):
        is_ours = isinstance(model, StackAware | StackAwareOnGraphs)  # others may take weights of any shape
        if is_ours and edges is not None and not is_adapted and weight.shape != edges.shape[1:]:
            expected = f"[{edges.shape[1]}]"
            raise DataError(f"edge_weight must have one number for each edge, {expected}, got {list(weight.shape)}")
        _check_finite("edge_weight", weight)


def check_features(x: Tensor, model: nn.Module) -> None:
    """Refuse features that are not finite, or of a type that a model of this package cannot multiply.

    Args:
        x: The features. The values of memory-mapped ones are not checked.
        model: The module; others than those of this package may take any type.

    Raises:
        DataError: If the features are not valid.
    """
    weights = next(model.parameters()).dtype
    is_ours = isinstance(model, StackAware | StackAwareOnGraphs)
    if is_ours and weights not in (torch.float32, torch.float64) and x.device.type == "cpu":
        raise DataError(
            f"models of wtawp compute in float32 or float64 on a CPU, got {weights}; for less precision use"
            " torch.autocast in a loop of your own"
        )
    if is_ours and x.dtype != weights:
        raise DataError(
            f"the features x are {x.dtype} and the weights of {type(model).__name__} are {weights}; write"
            f" data.x = data.x.to({weights})"
        )
    if not is_memory_mapped(x):
        _check_finite("x", x)


def _check_finite(name: str, values: Tensor) -> None:
    """Refuse numbers that are NaN or infinite."""
    numbers = values if values.layout == torch.strided else values.to_sparse().coalesce().values()
    if not numbers.is_floating_point() or not numbers.numel():
        return
    if not bool(torch.isfinite(torch.stack(torch.aminmax(numbers))).all()):  # NaN if there is one; no copy of numbers
        bad = ~torch.isfinite(numbers)
        first = f", the first in row {int(bad.nonzero()[0, 0])}" if values.layout == torch.strided else ""
        raise DataError(f"{int(bad.sum())} numbers of {name} are NaN or infinite{first}; fill them in first")


def targets_of(data: Data | HeteroData) -> Tensor:
    """Find the targets of a graph: those of its nodes, or of the only type of nodes that has some.

    Args:
        data: The graph, or a collection of graphs as one batch.

    Returns:
        The targets, [n, ...].

    Raises:
        DataError: If there are none, several types of nodes have some, or there is not one for each node.
    """
    if isinstance(data, HeteroData):
        labels: Tensor = _labelled_store(data).y
        return labels
    y = data.y
    if not isinstance(y, Tensor):
        raise DataError("the data have no targets y to train with")
    if not is_collection(data) and (y.dim() == 0 or len(y) != data.num_nodes):
        raise DataError(f"the graph has {data.num_nodes} nodes and targets y of shape {list(y.shape)}: one for each")
    return y


def _labelled_store(data: HeteroData) -> Data:
    """The targets and masks of the only type of nodes that has targets, as a graph without edges."""
    labelled = [store for store in data.node_stores if isinstance(store.get("y"), Tensor)]
    if len(labelled) != 1:
        got = ", ".join(str(store._key) for store in labelled) or "none"
        raise DataError(f"exactly one type of nodes must have targets y, got {got}; remove y from the others")
    store = labelled[0]
    return Data(num_nodes=len(store.y), **{n: store[n] for n in ("y", *(f"{p}_mask" for p in PARTS)) if n in store})


def splits_of(
    data: Data | HeteroData | Sequence[Data],
    splits: Split | Sequence[Split] | None,
    split_index: int | None,
    *,
    is_of_pairs: bool = False,
) -> Split | list[Split]:
    """Take the splits that were passed, or read one from the masks of the graph.

    Args:
        data: The graph, or graphs.
        splits: One split, or several; None for the masks.
        split_index: Number of the split, if the masks describe several.
        is_of_pairs: Whether the samples are pairs of nodes, which have no masks.

    Returns:
        One split, or several.

    Raises:
        DataError: If there is neither a split nor a mask.
        ValueError: If there are both a split and a `split_index`.
    """
    if splits is not None:
        if split_index is not None:
            raise ValueError(
                f"split_index={split_index} chooses among the masks of a graph, but a split was passed too"
            )
        if isinstance(splits, Split):
            return splits
        if not isinstance(splits, Sequence) or not all(isinstance(split, Split) for split in splits):
            raise DataError("a split must be a Split(train, val, test), such as `stratified(data.y, seed=0)`")
        return list(splits)
    if is_of_pairs:
        raise DataError("a link prediction needs a split of the pairs in edge_label_index; masks are those of nodes")
    if isinstance(data, HeteroData):
        return split_from_masks(_labelled_store(data), split_index)
    if not isinstance(data, Data) or is_collection(data):
        raise DataError("several graphs have no masks; pass a split of them, such as `stratified(y, seed=0)`")
    return split_from_masks(data, split_index)


def checked_split(split: Split, y: Tensor, *, has_classes: bool, samples: Samples) -> Split:
    """Check that a split can be trained and measured with.

    Args:
        split: The split, as indices or boolean masks.
        y: The targets that it divides, [n, ...].
        has_classes: Whether targets are class numbers, -1 for unknown ones.
        samples: What the split divides, for messages.

    Returns:
        The split as indices.

    Raises:
        DataError: If a part is empty (but for the test part of a `SplitWithoutTest`), is neither indices nor a mask, or
            names samples that do not exist or have no label; if a sample is in two parts; or if validation and test
            have a class that training does not have.
    """
    has_test = not (isinstance(split, SplitWithoutTest) and len(split.test) == 0)
    parts = {
        name: checked_rows(getattr(split, name), len(y), f"the {name} part of the split", samples=samples)
        for name in PARTS[: None if has_test else 2]
    }
    parts.setdefault("test", split.test)
    everyone = torch.cat([part.cpu() for part in parts.values()])
    twice = len(everyone) - len(torch.unique(everyone))
    if twice:
        sizes = ", ".join(f"{name} {len(part)}" for name, part in parts.items())
        raise DataError(
            f"the parts of a split must be disjoint, but {twice} {samples} occur more than once; they hold {sizes}"
        )
    if has_classes:
        y = y.long() if y.dtype == torch.bool else y  # torch.isin takes no booleans
        labels = {name: y[part.to(y.device)] for name, part in parts.items()}
        for name, known in labels.items():
            if bool((known < 0).any()):
                raise DataError(
                    f"{int((known < 0).sum())} {samples} of the {name} part have no label (-1); leave them out"
                )
        held_out = torch.cat([labels["val"], labels["test"]])
        unseen = held_out[~torch.isin(held_out, labels["train"])]
        if len(unseen):
            classes = ", ".join(map(str, torch.unique(unseen).tolist()))
            raise DataError(
                f"the training part has nothing of class {classes}, which {len(unseen)} {samples} of the validation and"
                " test parts have; choose a larger training part, or leave these out"
            )
    return Split(**parts) if has_test else SplitWithoutTest(**parts)
