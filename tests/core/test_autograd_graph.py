"""What is read from the graph of a loss."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from wtawp.core.autograd_graph import (
    computes_in_float16,
    has_static_graph,
    is_scaled_by_grad_scaler,
    leaves_of,
    nodes_of,
)


def test_the_leaves_are_those_of_the_graph_once_each() -> None:
    shared, outside, unused = (torch.ones(2, 2, requires_grad=True) for _ in range(3))
    loss = ((torch.ones(2, 2) @ shared).relu() @ shared * outside).sum()
    leaves = leaves_of(loss)
    assert len(leaves) == 2
    assert {id(leaf) for leaf in leaves} == {id(shared), id(outside)}
    assert id(unused) not in {id(leaf) for leaf in leaves}


def test_a_loss_that_is_a_leaf_has_no_nodes_and_is_its_own_leaf() -> None:
    loss = torch.ones((), requires_grad=True)
    assert nodes_of(loss) == []
    assert leaves_of(loss)[0] is loss


def test_float16_is_seen_inside_autocast_and_in_weights_and_bfloat16_is_not() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    for dtype, expected in ((torch.float16, True), (torch.bfloat16, False)):
        with torch.autocast("cpu", dtype):
            loss = model(torch.ones(2, 3)).float().sum()
        assert computes_in_float16(nodes_of(loss)) == expected
    assert not computes_in_float16(nodes_of(model(torch.ones(2, 3)).sum()))
    assert not has_static_graph(nodes_of(model(torch.ones(2, 3)).sum()))


def test_only_the_product_with_a_scaler_s_own_scale_counts_as_scaled() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    loss = nn.Linear(3, 1)(torch.ones(2, 3)).sum()
    assert is_scaled_by_grad_scaler(scaler.scale(loss))
    assert is_scaled_by_grad_scaler(scaler.scale(loss / 4))
    for other in (loss, loss * 8.0, loss * torch.tensor(8.0), loss * loss, loss + loss):
        assert not is_scaled_by_grad_scaler(other)


@pytest.mark.parametrize("context", ["torch.no_grad()", "torch.inference_mode()"])
def test_the_package_can_be_imported_where_gradients_are_switched_off(context: str) -> None:
    code = f"import torch\nwith {context}:\n    from wtawp.core import autograd_graph\n"
    code += "print(autograd_graph._ACCUMULATE.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "AccumulateGrad"
