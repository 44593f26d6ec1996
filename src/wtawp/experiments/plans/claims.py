"""A small plan for each checked sentence of the paper's text."""

from dataclasses import replace

from wtawp.core import AwpConfig
from wtawp.experiments.plans.paper import DATASETS, MLP, TOY
from wtawp.experiments.spec import Cell, Claim, Plan, Setting


def claim_plans() -> tuple[Plan, ...]:
    """Build a small plan for each checked sentence of the paper's text.

    Returns:
        The plans, whose names begin with "claim:".
    """
    last = replace(TOY, awp=AwpConfig(lam=1.0, rho=2.5, layers="last"))
    first = replace(TOY, awp=AwpConfig(lam=1.0, rho=2.5))
    moons = replace(MLP, dataset="toy-moons", options=(*MLP.options, ("linear", False)))
    left_out = {
        "first two layers": "all-but-last",
        "all but the middle": ("lins.0.weight", "lins.2.weight"),
        "all but the first": ("lins.1.weight", "lins.2.weight"),
    }
    # The first layer has 303^2 weights: an adaptive rho = 303 moves each weight by its size, as a relative rho = 1
    # moves the layer by its norm.
    radii = {"relative to the layer, rho=1": AwpConfig(lam=0.7, rho=1.0)}
    adaptive = (10.0, 30.0, 100.0, 300.0, 1000.0)
    radii |= {f"adaptive, rho={r:g}": AwpConfig(lam=0.7, rho=r, radius="adaptive") for r in adaptive}
    with_large_rho = AwpConfig(lam=1.0, rho=20.0, layers="all")

    def trained(row: str, column: str, awp: AwpConfig) -> Cell:
        return Cell(row, column, Setting(dataset="cora", awp=awp), judged=False)

    return (
        Plan("claim:second-layer", "Perturbing only the second layer of the toy",
             tuple(Cell(row, "accuracy", setting, judged=False)
                   for row, setting in (("first layer", first), ("second layer", last))),
             claims=(Claim("Perturbing only the second layer instead performs similarly.", "rows_agree_within_3"),)),
        Plan("claim:left-out-layer", "T-AWP on the MLP with another layer left out",
             tuple(Cell(row, "accuracy", replace(moons, awp=AwpConfig(lam=1.0, rho=0.4, layers=layers)), judged=False)
                   for row, layers in left_out.items()),
             claims=(Claim("The results are similar when the middle or the first layer is left out.",
                           "rows_agree_within_3"),)),
        Plan("claim:exact-gradient", "Exact against first-order gradient",
             tuple(trained(row, f"rho={rho:g}", AwpConfig(lam=0.7, rho=rho, exact=row == "exact"))
                   for rho in (0.1, 1.0) for row in ("first order", "exact")),
             claims=(Claim("The exact gradient gives almost the same accuracy.", "rows_agree_within_half"),)),
        Plan("claim:adaptive-radius", "A scale-invariant radius",
             tuple(trained(row, "cora", awp) for row, awp in radii.items()),
             claims=(Claim("A scale-invariant radius brings no benefit.", "first_row_is_not_beaten"),)),
        Plan("claim:vanishing-gradient", "AWP with rho = 20 loses its gradient",
             tuple(Cell("AWP rho=20", d, Setting(dataset=d, awp=with_large_rho, keep=("history",)), 20, 1, judged=False)
                   for d in DATASETS),
             claims=(Claim("The gradient vanishes from about epoch 20 on Cora and Citeseer, 80 on PolBlogs.",
                           "gradient_vanishes"),)),
    )  # fmt: skip
