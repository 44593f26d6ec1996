import pytest
import torch
from torch_geometric.nn import APPNP

from wtawp.graphs import gcn_operator, load, ppr_rows


@pytest.mark.parametrize("steps", [1, 10, None])
def test_pagerank_rows_equal_the_power_series_and_pyg(steps: int | None) -> None:
    data = load("karate")
    operator = gcn_operator(data.edge_index, None, 34, torch.float64)
    rows = torch.tensor([5, 0, 33])
    found = ppr_rows(operator, rows, alpha=0.1, steps=steps)
    dense = operator.to_dense()
    if steps is None:
        expected = 0.1 * torch.linalg.inv(torch.eye(34).double() - 0.9 * dense)
    else:
        powers = [0.1 * 0.9**k * torch.linalg.matrix_power(dense, k) for k in range(steps)]
        expected = sum(powers) + 0.9**steps * torch.linalg.matrix_power(dense, steps)
        pyg = APPNP(steps, 0.1)(torch.eye(34), data.edge_index)
        torch.testing.assert_close(found.float(), pyg[rows], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found, expected[rows])
