"""Plans that measure how flat and how smooth trained models are: two figures of the paper, and plans beyond it."""

from dataclasses import replace

from wtawp.core import AwpConfig
from wtawp.experiments.spec import LAST, Cell, Claim, MeasureRequest, Option, Plan, Setting
from wtawp.training.options import SelectOn

# Measures by their names in tables. The radii are those at which the loss rises by a little, and by much.
SMOOTHNESS = {
    f"{matrix}, {definition}": MeasureRequest(
        "smoothness", (("wrt", wrt), ("definition", definition), ("samples", 100))
    )
    for definition in ("paper", "released")
    for matrix, wrt in (("A", "adjacency"), ("X", "features"))
}
LANDSCAPES = {
    "layer": MeasureRequest("landscape", (("scale", "layer"), ("reach", 1.0))),
    "unit": MeasureRequest("landscape", (("scale", "unit"), ("reach", 30.0))),
}
SHARPNESS = {
    "layer": MeasureRequest("sharpness", (("radius", "layer"), ("rho", 0.1))),
    "adaptive": MeasureRequest("sharpness", (("radius", "adaptive"), ("rho", 2.0))),
    "global": MeasureRequest("sharpness", (("radius", "global"), ("rho", 0.5))),
}
SPECTRUM = MeasureRequest("spectrum", (("top", 1), ("probes", 30)))
FLATNESS = (*SHARPNESS.values(), SPECTRUM, *LANDSCAPES.values())
PAIR = ("GCN", "GCN+WT-AWP")
# Suffixes of columns, and the epoch whose weights are measured there. Validation may select epoch 14 of a plain GCN,
# when its training loss is still falling, so that the result may depend on this choice.
EPOCHS_MEASURED: dict[str, SelectOn] = {"": "either", LAST: "last"}

LANDSCAPE_METHODS = {
    "GCN": None,
    "GCN+AWP": AwpConfig(lam=1.0, rho=0.1, layers="all"),
    "GCN+WT-AWP": AwpConfig(lam=0.5, rho=0.5),
}


def smoothness_plan() -> Plan:
    """Build fig:lipcora: gradient norms of GCN and GCN+WT-AWP, lam = 0.5 and rho = 1, on 20 splits.

    Returns:
        The plan.
    """
    measures = tuple(SMOOTHNESS.values())
    cells = [
        Cell(row, f"{dataset}{suffix}", Setting(dataset=dataset, awp=awp, measures=measures, select_on=select_on),
             20, 1, judged=False)
        for suffix, select_on in EPOCHS_MEASURED.items()
        for dataset in ("cora", "citeseer")
        for row, awp in zip(PAIR, (None, AwpConfig(lam=0.5, rho=1.0)), strict=True)
    ]  # fmt: skip
    claim = Claim("In most cases (37 out of 40) the models trained with WT-AWP have both better accuracy and smaller "
                  "average gradient norm.", "more_accurate_and_smoother")  # fmt: skip
    return Plan("fig:lipcora", "Smoothness: gradient norms by graph and features", tuple(cells), (),
                ("smoothness_arrows",), (claim,))  # fmt: skip


def landscape_plan() -> Plan:
    """Build fig:lossland: landscapes of three methods from the same initialisations, on 20 splits.

    Returns:
        The plan.
    """
    measures = tuple(LANDSCAPES.values())
    cells = [
        Cell(row, f"cora{suffix}", Setting(dataset="cora", awp=awp, measures=measures, select_on=select_on), 20, 1,
             judged=False)
        for suffix, select_on in EPOCHS_MEASURED.items()
        for row, awp in LANDSCAPE_METHODS.items()
    ]  # fmt: skip
    claim = Claim("The loss landscape of GCN+AWP is slightly flatter than the vanilla GCN. GCN+WT-AWP is flatter than "
                  "both of them.", "landscapes_in_order")  # fmt: skip
    return Plan("fig:lossland", "Loss landscapes", tuple(cells), (), ("landscape_lines",), (claim,))


def flatness_plan(pairs: dict[str, tuple[float, float]]) -> Plan:
    """Build a plan that compares GCN and GCN+WT-AWP by every measure of flatness, paired over 20 splits.

    Args:
        pairs: The pair (lam, rho) for each data set.

    Returns:
        The plan.
    """
    cells = [
        Cell(row, f"{dataset}{suffix}", Setting(dataset=dataset, awp=awp, measures=FLATNESS, select_on=select_on),
             20, 1, judged=False)
        for suffix, select_on in EPOCHS_MEASURED.items()
        for dataset, (lam, rho) in pairs.items()
        for row, awp in zip(PAIR, (None, AwpConfig(lam=lam, rho=rho)), strict=True)
    ]  # fmt: skip
    claim = Claim("WT-AWP finds flatter local minima.", "flatter_by_every_measure")
    return Plan("extra:flatness", "Is the solution of WT-AWP flatter?", tuple(cells), (PAIR,),
                ("flatness_ratios", "landscape_lines"), (claim,))  # fmt: skip


def sharpness_plan() -> Plan:
    """Build a plan that records sharpness while three methods are trained, with the same radius for all of them.

    Returns:
        The plan.
    """
    cells = [
        Cell(row, "cora", Setting(dataset="cora", awp=awp, keep=("history", "sharpness")), 5, 1, judged=False)
        for row, awp in LANDSCAPE_METHODS.items()
    ]
    return Plan("extra:sharpness", "Sharpness while training", tuple(cells), (), ("sharpness_curves",))


def bounds_plan(nodes: dict[str, tuple[float, float]], graphs: dict[str, tuple[float, float]]) -> Plan:
    """Build a plan that evaluates Theorem 1 and the graph-level bound, with and without WT-AWP.

    Args:
        nodes: The pair (lam, rho) for each data set of nodes.
        graphs: The pair (lam, rho) for each data set of graphs.

    Returns:
        The plan.
    """
    cells = []
    for dataset, (lam, rho) in {**nodes, **graphs}.items():
        plain = Setting(dataset=dataset, measures=(MeasureRequest("bound"),))
        if dataset in graphs:
            plain = replace(plain, model="PooledGCN", select_on="accuracy")
        perturbed = AwpConfig(lam=lam, rho=rho, layers="first" if dataset in graphs else "all-but-last")
        for row, awp in zip(PAIR, (None, perturbed), strict=True):
            cells.append(Cell(row, dataset, replace(plain, awp=awp), 20, 1, judged=False))
    return Plan("extra:bounds", "What the bounds say", tuple(cells), (), ("bound_curves",))


def vanishing_plan() -> Plan:
    """Build a plan that records logits and gradients of AWP and its variants, with and without `balance`.

    Returns:
        The plan, on a toy data set and on Cora.
    """
    cells = []
    linear: tuple[tuple[str, Option], ...] = (("dropout", 0.0), ("hidden", (100, 100)), ("linear", True))
    columns = {
        "toy, GCN, rho=2.5": (Setting(dataset="toy-linear"), 2.5),
        "toy, linear network, rho=0.25": (Setting(dataset="toy-linear", model="MLP", options=linear), 0.25),
        "cora, GCN, rho=2.5": (Setting(dataset="cora"), 2.5),
    }
    for column, (base, rho) in columns.items():
        plain = replace(base, keep=("history", "saturation"))
        cells.append(Cell("plain", column, plain, 20, 1, judged=False))
        for name, lam, layers in (("AWP", 1.0, "all"), ("W-AWP", 0.5, "all"), ("T-AWP", 1.0, "all-but-last"),
                                  ("WT-AWP", 0.5, "all-but-last")):  # fmt: skip
            for balance in (None, 1.0):
                awp = AwpConfig(lam=lam, rho=rho, layers=layers, balance=balance)
                row = name if balance is None else f"{name}, balance=1"
                setting = replace(base, awp=awp, keep=("history", "saturation"))
                cells.append(Cell(row, column, setting, 20, 1, judged=False))
    return Plan("extra:vanishing", "Logits and gradients while training", tuple(cells), (), ("saturation_curves",))
