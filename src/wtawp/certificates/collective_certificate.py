"""The collective certificate (Schuchardt, Bojchevski, Klicpera, Guennemann 2021): how many nodes one attack can change.

The certificate of a node counts flips over the whole input. An adversary who wants to change many predictions at once
has to share one budget among all of them, and a flip outside the receptive field of a node does not reach the node.
The collective certificate uses both: it bounds the number of nodes that any single perturbation within a global budget
can change, from the same votes.

Why a flip outside the field does not count. Let x' be any perturbed input and i a node. Let x'' be equal to x' inside
the field of i and to the clean x outside of it. Noise is independent from position to position and the logits of i
depend on the noisy copy inside the field alone, so the smoothed predictions of i at x' and at x'' are equal. And x''
differs from x by the flips in the field only: if these are within a radius that is certified for i, the prediction has
not changed. This needs that the logits of i depend on the same field for every noisy copy of every perturbed input:

- Features, with edges that are neither perturbed nor noisy: the field is the nodes within L hops. The same holds under
  noise that only removes edges, as every noisy graph is then a part of the clean one.
- Edges that the adversary and the noise only remove (p_add = 0): the field is the edges that touch the nodes within L
  hops in the clean graph, of which those of any part of that graph are a subset.
- Noise that adds edges joins any two nodes with some probability, so that every prediction depends on everything; and
  an edge that the adversary adds brings a field into another. There is no local argument for either, and both are
  refused. `Certificate.certified` holds for one perturbation of all nodes at once there too, but each node has to
  withstand the whole budget.

All certificates must hold together: a collective claim with confidence 1 - alpha needs a certificate that was computed
with `over_nodes=True`, which divides alpha among the nodes; any other certificate is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wtawp.certificates.certificate import Certificate, checked_labels, checked_nodes
from wtawp.certificates.collective_program import AttackProgram, Budget, Integers, Prices
from wtawp.certificates.fields import ReceptiveFields

Floats = NDArray[np.float64]
GROWTH = 1.25  # from one budget for which the program is solved to the next; all between them are bounded by its prices


@dataclass(frozen=True, eq=False)
class CollectiveCertificate:
    """How many nodes keep their prediction under any single perturbation within a global budget.

    Attributes:
        additions: The budgets of additions, [A].
        deletions: The budgets of deletions, [D].
        certified: The number of nodes that are certified together within each budget, [A, D].
        per_node: The number of nodes of which each is certified for the whole budget, [A, D].
        num_nodes: The number of nodes that were asked for, including those that abstain or are wrong.
        alpha: The probability that any of these numbers is too large.
        program_shape: The numbers of constraints and of variables of the linear program.
    """

    additions: Integers
    deletions: Integers
    certified: Integers
    per_node: Integers
    num_nodes: int
    alpha: float
    program_shape: tuple[int, int]

    @property
    def ratio(self) -> Floats:
        """The share of nodes that are certified together within each budget, [A, D]."""
        return np.asarray(self.certified / self.num_nodes)

    @property
    def per_node_ratio(self) -> Floats:
        """The share of nodes of which each is certified for the whole budget, [A, D]."""
        return np.asarray(self.per_node / self.num_nodes)

    @property
    def average(self) -> float:
        """The average certifiable radius: the area under `ratio` as a function of additions or of deletions.

        With budgets left out, the ratio of the next larger budget is taken for them, which is never too large. Nodes
        whose fields have too few ones or zeros can never be attacked, and the ratio does not fall to 0 then: the area
        counts up to the last budget only, on an axis that was left open the first one at which the final ratio is
        reached.

        Raises:
            ValueError: If neither additions nor deletions have a single budget.
        """
        return self._area(self.ratio)

    @property
    def per_node_average(self) -> float:
        """The average radius of the nodes one by one: the area under `per_node_ratio`; see `average`."""
        return self._area(self.per_node_ratio)

    def _area(self, ratio: Floats) -> float:
        """The sum of the ratio at 1, 2, ... flips."""
        if min(ratio.shape) > 1:
            raise ValueError(
                f"the average is over additions or over deletions, with a single budget of the other; got"
                f" {len(self.additions)} budgets of additions and {len(self.deletions)} of deletions"
            )
        budgets = self.additions if len(self.additions) > 1 else self.deletions
        return float((np.diff(budgets, prepend=0) * ratio.ravel()).sum())


def collective(
    certificate: Certificate,
    fields: ReceptiveFields,
    *,
    labels: ArrayLike | None = None,
    nodes: ArrayLike | None = None,
    additions: Sequence[int] | None = (0,),
    deletions: Sequence[int] | None = None,
    most: int = 100,
) -> CollectiveCertificate:
    """Bound how many nodes stay as they are when one perturbation with a global budget attacks all of them.

    Args:
        certificate: The certificate of each node, with `over_nodes=True`: all of them must hold at once.
        fields: The part of the input on which each node depends, from `receptive_fields`; its `on` is the part of the
            input that is perturbed, the other part is not.
        labels: The true labels of all nodes, [n], to count only nodes that are predicted correctly as well. None: all
            certified nodes count.
        nodes: The nodes to count: distinct indices, or a boolean mask [n]. None: all nodes.
        additions: The budgets of additions. None: 0, 1, ... up to the first from which on a larger budget certifies no
            fewer nodes, usually none (with the smallest of the given budgets of deletions).
        deletions: The budgets of deletions, or None as for additions. One of both must be given.
        most: The largest radius that is searched for each node.

    Returns:
        The number of certified nodes for each pair of budgets, with that of the nodes one by one beside it. The former
        is never smaller than the latter.

    Raises:
        ValueError: If the certificate does not hold for all nodes together or has no noise on the part of the fields,
            the noise adds edges, edges may be added, labels are not one whole number for each node, nodes are repeated
            or out of range, or budgets are not whole numbers >= 0.
        CertificateError: If the solver fails.

    Example:
        >>> from scipy import sparse
        >>> from wtawp.certificates import Noise, certificate_of
        >>> votes = np.array([[1000, 0]] * 3)
        >>> certificate = certificate_of(votes, {"features": Noise(p_add=0.01, p_del=0.6)}, over_nodes=True)
        >>> alone = sparse.eye_array(3, dtype=bool, format="csr")  # each node depends on its own features alone
        >>> fields = ReceptiveFields("features", alone, np.full(3, 90), np.full(3, 10))
        >>> result = collective(certificate, fields, deletions=(0, 9, 18, 27))
        >>> result.certified, result.per_node
        (array([[3, 2, 1, 0]]), array([[3, 0, 0, 0]]))
    """
    stairs = _checked_stairs(certificate, fields, most)
    chosen = checked_nodes(nodes, len(stairs))
    is_counted = stairs[:, 0] >= 0
    if labels is not None:
        is_counted &= certificate.prediction == checked_labels(labels, len(stairs))
    kept = chosen[is_counted[chosen]]
    if fields.on == "edges" and (additions is None or any(additions)):
        raise ValueError(
            "a collective certificate of edges is against deletions only, because added edges change which nodes"
            " depend on what; use additions=(0,), or Certificate.certified(edges=...) for each node"
        )
    program = AttackProgram(fields.reach[kept], fields.zeros, fields.ones, stairs[kept])
    rows, columns, prices = _axes(program, additions, deletions)
    per_node = _per_node(stairs[kept], rows, columns)
    budgets = [(int(a), int(d)) for a in rows for d in columns]
    attacked = program.most_attacked(budgets, prices).reshape(per_node.shape)
    # A larger budget never attacks fewer nodes, and a node that withstands the whole budget is not attacked.
    for axis in (0, 1):
        attacked = np.flip(np.minimum.accumulate(np.flip(attacked, axis), axis), axis)
    certified = np.maximum(len(kept) - attacked, per_node)
    return CollectiveCertificate(rows, columns, certified, per_node, len(chosen), certificate.alpha, program.shape)


def _checked_stairs(certificate: Certificate, fields: ReceptiveFields, most: int) -> Integers:  # -> [n, A]
    """The certified radii of all nodes, after checks that the certificate and the fields allow a local argument."""
    if not certificate.over_nodes:
        raise ValueError(
            "the certificates of all nodes must hold together: compute this one with over_nodes=True"
            " (certify(..., over_nodes=True), or certificate_of(votes, over_nodes=True))"
        )
    if fields.on not in certificate.noise:
        raise ValueError(f"this certificate is about {' and '.join(certificate.noise)}, the fields about {fields.on}")
    if "edges" in certificate.noise and certificate.noise["edges"].p_add > 0:
        raise ValueError(
            "noise that adds edges lets every prediction depend on the whole graph, so that nothing is local; vote"
            " with edges=Noise(p_add=0.0, ...), or use Certificate.certified for each node"
        )
    stairs = certificate.deletions(fields.on, most=most)
    if fields.reach.shape[0] != len(stairs):
        raise ValueError(f"fields are of {fields.reach.shape[0]} nodes and the certificate is of {len(stairs)}")
    return stairs


def _axes(
    program: AttackProgram, additions: Sequence[int] | None, deletions: Sequence[int] | None
) -> tuple[Integers, Integers, list[Prices]]:
    """The budgets on both axes, and the prices of those budgets for which the program is solved."""
    if additions is None and deletions is None:
        raise ValueError("give the budgets of additions or of deletions; only one of both can be left open")
    if additions is None:
        columns = _checked_budgets("deletions", deletions)
        rows, prices = _open_axis(program, 0, int(columns[0]))
    elif deletions is None:
        rows = _checked_budgets("additions", additions)
        columns, prices = _open_axis(program, 1, int(rows[0]))
    else:
        rows, columns = _checked_budgets("additions", additions), _checked_budgets("deletions", deletions)
        prices = {}
    for a in _spaced(rows):
        for d in _spaced(columns):
            if (a, d) not in prices:
                prices[a, d] = program.solve((a, d))
    return rows, columns, list(prices.values())


def _open_axis(program: AttackProgram, kind: int, other: int) -> tuple[Integers, dict[Budget, Prices]]:
    """The budgets 0, 1, ... of one kind, up to the first from which on larger ones certify no fewer nodes."""
    whole = int(program.capacity[kind].sum())
    prices: dict[Budget, Prices] = {}

    def attacked(flips: int) -> int:
        budget = (flips, other) if kind == 0 else (other, flips)
        prices[budget] = program.solve(budget)
        return int(program.most_attacked([budget], [prices[budget]])[0])

    in_the_end, before, last = attacked(whole), -1, 0
    while attacked(last) < in_the_end:
        before, last = last, min(_next(last), whole)
    while last - before > 1:
        middle = (before + last) // 2
        before, last = (middle, last) if attacked(middle) < in_the_end else (before, middle)
    return np.arange(last + 1), prices


def _next(budget: int) -> int:
    """The next budget for which the program is solved."""
    return max(budget + 1, int(GROWTH * budget))


def _spaced(budgets: Integers) -> list[int]:
    """Those of some budgets for which the program is solved: the last, and no more than needed before."""
    chosen: list[int] = []
    for budget in budgets.tolist():
        if not chosen or budget >= _next(chosen[-1]):
            chosen.append(budget)
    return chosen if chosen[-1] == budgets[-1] else [*chosen, int(budgets[-1])]


def _checked_budgets(name: str, budgets: Sequence[int] | None) -> Integers:
    """Budgets in rising order."""
    array = np.unique(np.asarray(budgets))
    if array.size == 0 or not np.issubdtype(array.dtype, np.integer) or array[0] < 0:
        raise ValueError(f"{name} must be one or more whole numbers >= 0, got {budgets!r}")
    return array.astype(np.int64)


def _per_node(stairs: Integers, rows: Integers, columns: Integers) -> Integers:  # -> [A, D]
    """The number of nodes of which each is certified for the whole budget."""
    last = stairs.shape[1] - 1
    counts = [(stairs[:, a, None] >= columns).sum(0) if a <= last else 0 * columns for a in rows.tolist()]
    return np.stack(counts)
