"""The inner loops of sparse times dense, in the fastest form that the machine offers.

Each function works on a stack: values [b or 1, e], dense [b or 1, m, h] -> [b, n, h]; a leading 1 is shared by all.
The loops are compiled by numba on the CPU (with the extra `fast`) and by Triton on a GPU; without them, torch is used.
"""

import warnings
from importlib.util import find_spec
from itertools import pairwise

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd.forward_ad import unpack_dual

HAS_NUMBA = find_spec("numba") is not None
HAS_TRITON = find_spec("triton") is not None
MOST_RUNS = 4  # of rising columns that `multiply_block` takes one after another; receptive fields have one a hop
GATHERED = (1 << 18, 1 << 26)  # how many numbers are gathered at a time, on the CPU and on a GPU

if HAS_NUMBA:
    from wtawp.graphs import kernels_numba
if HAS_TRITON:
    from wtawp.graphs import kernels_triton


def is_differentiated(values: Tensor) -> bool:
    """Whether a derivative of any kind, or a transform of `torch.func`, follows these numbers."""
    has_tangent = unpack_dual(values).tangent is not None  # type: ignore[no-untyped-call]
    return values.requires_grad or has_tangent or is_functorch_wrapped_tensor(values)


def is_plain(values: Tensor) -> bool:
    """Whether compiled code may read these numbers: on the CPU, in a type of numpy, and not differentiated."""
    return (
        values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64) and not is_differentiated(values)
    )


def multiply(indptr: Tensor, indices: Tensor, values: Tensor, dense: Tensor, *, compiled: bool = True) -> Tensor:
    """CSR times dense for every member of the stack; `compiled=False` uses torch, which the tests compare with."""
    if compiled and HAS_NUMBA and dense.device.type == "cpu":
        batch, rows, width = max(len(values), len(dense)), len(indptr) - 1, dense.shape[2]
        out = torch.empty(batch, rows, width, dtype=dense.dtype)
        values, dense = values.detach().contiguous(), dense.detach().contiguous()
        kernels_numba.multiply(indptr.numpy(), indices.numpy(), values.numpy(), dense.numpy(), out.numpy())
        return out
    if compiled and HAS_TRITON and dense.device.type == "cuda":
        return kernels_triton.multiply(indptr, indices, values.detach(), dense.detach())
    if len(values) == 1:
        return _shared_values(indptr, indices, values[0], dense)
    return _own_values(indptr, indices, values, dense)


def multiply_block(
    indptr: Tensor, indices: Tensor, values: Tensor, rows: Tensor, cols: Tensor, dense: Tensor
) -> Tensor | None:  # [r], [c], [m, h] -> [r, h]
    """The product of the submatrix of `rows` and `cols` with the rows `cols` of `dense`, bit for bit, without either.

    None if there is no compiled loop for it: then cut out both and multiply them.
    """
    breaks = (cols.diff() < 0).nonzero()[:, 0] + 1
    is_simple = HAS_NUMBA and len(breaks) < MOST_RUNS and dense.dtype == values.dtype and dense.is_contiguous()
    if not (is_simple and is_plain(values) and is_plain(dense)):
        return None
    with temporarily_clear_interpreter_stack():
        run_of = torch.full((len(dense),), MOST_RUNS, dtype=torch.uint8)
        starts = [0, *breaks.tolist(), len(cols)]
        for run, (start, end) in enumerate(pairwise(starts)):
            run_of[cols[start:end]] = run
        out = torch.empty(len(rows), dense.shape[1], dtype=dense.dtype)
        arrays = (t.contiguous().numpy() for t in (indptr, indices, values, rows.long(), dense, out))
        kernels_numba.multiply_by_runs(run_of.numpy(), len(starts) - 1, *arrays)
        return out


def inner_products(rows: Tensor, cols: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """<left[r], right[c]> for every entry (r, c), the gradient of values: [..., n, h], [..., m, h] -> [..., e].

    It works on some entries at a time, because the gathered rows are h times as large as the result; on the CPU they
    then stay in the cache.
    """
    width = max(left[..., 0, :].numel(), right[..., 0, :].numel(), 1)
    step = max(1, GATHERED[left.device.type == "cuda"] // width)
    parts = zip(torch.split(rows, step), torch.split(cols, step), strict=True)
    return torch.cat([(left[..., r, :] * right[..., c, :]).sum(-1) for r, c in parts], -1)


def _shared_values(indptr: Tensor, indices: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """One product with the members of the stack side by side: [m, b * h]."""
    batch, m, width = dense.shape
    indices = indices.to(indptr.dtype)  # torch wants one type for both
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # torch warns that its CSR is in beta
        matrix = torch.sparse_csr_tensor(indptr, indices, values, (len(indptr) - 1, m), check_invariants=False)
    folded = dense.transpose(0, 1).reshape(m, batch * width)
    return (matrix @ folded).view(len(matrix), batch, width).transpose(0, 1)


def _own_values(indptr: Tensor, indices: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """Gather and sum, for members with different values (features after dropout, attention)."""
    batch, rows = len(values), len(indptr) - 1
    row = torch.repeat_interleave(
        torch.arange(rows, device=indptr.device), indptr.diff().long(), output_size=len(indices)
    )
    messages = dense[:, indices] * values[..., None] if len(dense) > 1 else dense[0, indices] * values[..., None]
    return messages.new_zeros(batch, rows, dense.shape[2]).index_add(1, row, messages)
