"""What two ranks do in `tests/test_distributed.py`: each case returns what it measured, as plain numbers and texts."""

import copy
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from process_pair import WORLD, run_cases
from reference_step import Named, Setting, gradients_of, reference_step, relative_error, same_bits, weights_of
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from wtawp.base import rng
from wtawp.core import WTAWP

PERTURBED = ("0.weight", "2.weight")
ROWS = 8  # of each rank in each micro-batch
G = rng("distributed_cases")
X, Y = torch.randn(4 * WORLD * ROWS, 6, generator=G), torch.randint(0, 3, (4 * WORLD * ROWS,), generator=G)
Report = dict[str, Any]


def network(*, norm: bool = False) -> nn.Sequential:
    """The same weights on each rank."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8) if norm else nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    model.append(nn.Linear(8, 3))
    g = rng("weights")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.7 * torch.randn(p.shape, generator=g))
    return model


def batch(rank: int | None, number: int = 0) -> tuple[Tensor, Tensor]:
    """The rows of one rank in a micro-batch; None joins those of all ranks."""
    start, size = number * WORLD * ROWS, ROWS * (WORLD if rank is None else 1)
    start += (rank or 0) * ROWS
    return X[start : start + size], Y[start : start + size]


def loss_on(call: Callable[[Tensor], Tensor], rank: int | None, number: int = 0) -> Callable[[], Tensor]:
    x, y = batch(rank, number)
    return lambda: F.cross_entropy(call(x), y)


def expected(rank: int | None, number: int = 0, *, divided_by: int = 1, **options: Any) -> Named:
    """The gradient of a single process on the rows of one rank, or on all of them."""
    model = network()
    setting = Setting(**{"rho": 0.3, "lam": 0.7, "perturbed": PERTURBED, **options})
    return reference_step(model, loss_on(model, rank, number), setting, scaled=lambda v: v / divided_by).gradient


def average(parts: list[Named]) -> Named:
    return {n: torch.stack([part[n] for part in parts]).mean(0) for n in parts[0]}


def total(parts: list[Named]) -> Named:
    return {n: torch.stack([part[n] for part in parts]).sum(0) for n in parts[0]}


def full(named: Named) -> Named:
    """The whole of each tensor, gathered where it is sharded, under the names of the module itself."""
    gathered = {n: t.full_tensor() if isinstance(t, DTensor) else t for n, t in named.items()}
    return {n.removeprefix("module."): t for n, t in gathered.items()}


def full_gradients(model: nn.Module) -> Named:
    return full({n: p.grad for n, p in model.named_parameters() if p.grad is not None})


def ranks_agree(named: Named) -> bool:
    """Whether every rank holds the same bits."""
    mine = torch.cat([t.detach().flatten() for t in named.values()])
    copies = [torch.empty_like(mine) for _ in range(WORLD)]
    distributed.all_gather(copies, mine)
    return all(torch.equal(c, copies[0]) for c in copies) and bool(mine.isfinite().all())


def train(model: nn.Module, rank: int, update: Callable[[Callable[[], Tensor]], object], steps: int = 50) -> Report:
    """Fifty steps, each on its own rows: whether the ranks still hold the same weights, and whether they have moved."""
    optimizer, start = torch.optim.Adam(model.parameters(), lr=0.01), full(weights_of(model))
    for step in range(steps):
        optimizer.zero_grad()
        update(loss_on(model, rank, step % 4))
        optimizer.step()
    weights = full(weights_of(model))
    return {"agree": ranks_agree(weights), "moved": relative_error(weights, start)}


def ddp_case(
    rank: int, *, through: str = "backward", awp_options: dict[str, Any] | None = None, sync: bool = True, **wrap: Any
) -> Report:
    """One step from its reference, then fifty steps; `sync=False` gives each rank its own perturbation."""
    options = awp_options or {}
    model = DistributedDataParallel(network(), **wrap)
    awp = WTAWP(model, rho=0.3, lam=0.7, **options)
    local = average([expected(r, **options) for r in range(WORLD)])
    references = {"joined": expected(None, **options), "local": local}

    def update(closure: Callable[[], Tensor]) -> object:
        return awp.backward(closure, sync=sync) if through == "backward" else awp.loss(closure).backward()

    before = weights_of(model)
    update(loss_on(model, rank))
    gradient = full_gradients(model)
    report = {name: relative_error(gradient, reference) for name, reference in references.items()}
    report |= {"restored": same_bits(weights_of(model), before), "same_gradient": ranks_agree(gradient)}
    return report | train(model, rank, update)


def auto(rank: int) -> Report:
    """Each rank observes losses of its own: lam and rho are those of their means in both, and the weights agree."""
    model = DistributedDataParallel(network())
    awp, rhos = WTAWP(model, rho=3.0, lam="auto"), []

    def update(closure: Callable[[], Tensor]) -> None:
        awp.backward(closure)
        awp.observe(train_loss=0.002 + 0.004 * rank, val_loss=0.02 + 0.02 * rank)
        rhos.append(awp.rho)

    return train(model, rank, update) | {"lam": awp.lam, "rhos": rhos}


def inner_module(rank: int) -> Report:
    """The perturbation is built on the module inside the wrapper, as a user may do."""
    model = DistributedDataParallel(network())
    awp = WTAWP(model.module, rho=0.3, lam=0.7)
    awp.backward(loss_on(model, rank))
    report = {"joined": relative_error(full_gradients(model), expected(None))}
    return report | train(model, rank, awp.backward)


def no_sync(rank: int, **wrap: Any) -> Report:
    """Three micro-batches under `no_sync`, each with the rank's own perturbation, then one that is reduced."""
    model = DistributedDataParallel(network(), **wrap)
    awp, parts = WTAWP(model, rho=0.3, lam=0.7), 4

    def accumulate(closures: list[Callable[[], Tensor]]) -> None:
        for number, closure in enumerate(closures):
            with model.no_sync() if number < parts - 1 else nullcontext():
                awp.backward(closure, backward=lambda loss: (loss / parts).backward())

    accumulate([loss_on(model, rank, number) for number in range(parts)])
    references = [average([expected(r, number, divided_by=parts) for r in range(WORLD)]) for number in range(parts - 1)]
    reference = total([*references, expected(None, parts - 1, divided_by=parts)])
    gradient = full_gradients(model)
    report = {"joined": relative_error(gradient, reference), "same_gradient": ranks_agree(gradient)}
    return report | train(model, rank, lambda closure: accumulate([closure] * parts), steps=15)


def accumulated_without_sync(rank: int) -> Report:
    """`sync=False` with gradients that are there already, those of an earlier micro-batch."""
    model = DistributedDataParallel(network())
    awp = WTAWP(model, rho=0.3, lam=0.7)
    with model.no_sync():
        awp.backward(loss_on(model, rank, 0))
    awp.backward(loss_on(model, rank, 1), sync=False)
    reference = total([average([expected(r, number) for r in range(WORLD)]) for number in range(2)])
    return {"joined": relative_error(full_gradients(model), reference)}


def large_layer(rank: int, *, sync: bool, prior: bool = False) -> Report:
    """A layer whose natural gradient is too large to be kept: it is reduced over the ranks all the same."""

    def build() -> nn.Sequential:
        model, g = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Tanh(), nn.Linear(1024, 3)), rng("large")
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=g) / 32)
        return model

    x, y = torch.randn(WORLD * 4, 1024, generator=rng("rows")), torch.tensor([0, 1, 2, 0] * WORLD)

    def loss(call: Callable[[Tensor], Tensor], r: int | None) -> Callable[[], Tensor]:
        rows = slice(None) if r is None else slice(4 * r, 4 * r + 4)
        return lambda: F.cross_entropy(call(x[rows]), y[rows])

    single, setting = build(), Setting(rho=1.0, lam=0.7, perturbed=("0.weight",))
    own = average([reference_step(single, loss(single, r), setting).gradient for r in range(WORLD)])
    reference = reference_step(single, loss(single, None), setting).gradient if sync else own
    model = DistributedDataParallel(build())
    awp = WTAWP(model, rho=1.0, lam=0.7)
    if prior:
        reference = total([reference, own])
        with model.no_sync():
            awp.backward(loss(model, rank))
    awp.backward(loss(model, rank), sync=sync)
    gradient = full_gradients(model)
    return {"joined": relative_error(gradient, reference), "same_gradient": ranks_agree(gradient)}


class Branches(nn.Module):
    """A body and a head, and a second body that only some ranks use."""

    def __init__(self) -> None:
        super().__init__()
        g = rng("branches")
        self.body, self.side, self.head = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(0.7 * torch.randn(p.shape, generator=g))

    def forward(self, x: Tensor, use_side: bool) -> Tensor:
        hidden = self.body(x) + self.side(x) if use_side else self.body(x)
        return self.head(hidden.tanh())


def unused_parameters(rank: int, *, sides: tuple[bool, ...]) -> Report:
    """A layer that no rank, or only one rank, uses: the ranks make the same decisions about it."""
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    awp = WTAWP(model, rho=0.3, lam=0.7)

    def loss(call: Callable[..., Tensor], r: int) -> Tensor:
        x, y = batch(r)
        return F.cross_entropy(call(x, use_side=sides[r]), y)

    awp.backward(lambda: loss(model, rank))
    single = Branches()
    setting = Setting(rho=0.3, lam=0.7, perturbed=("body.weight", "side.weight"))
    reference = reference_step(
        single, lambda: torch.stack([loss(single, r) for r in range(WORLD)]).mean(), setting
    ).gradient
    gradient = full_gradients(model)
    if not any(sides):  # DDP leaves such a gradient as it was: None, or zeros from its bucket
        extra = [gradient.pop(n) for n in list(gradient) if n.startswith("side.")]
        assert not any(bool(g.any()) for g in extra)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        awp.backward(lambda: loss(model, rank))
        optimizer.step()
    return {"joined": relative_error(gradient, reference), "agree": ranks_agree(full(weights_of(model)))}


def batch_norm(rank: int) -> Report:
    """The buffers of each rank after three steps are those of three plain steps, with the same weights throughout."""
    model, plain = (DistributedDataParallel(network(norm=True)) for _ in range(2))
    awp = WTAWP(model, rho=0.3, lam=0.7)
    same = []
    for number in range(3):
        awp.backward(loss_on(model, rank, number))
        loss_on(plain, rank, number)().backward()
        same.append(same_bits(dict(model.named_buffers()), dict(plain.named_buffers())))
    return {"same_buffers": same, "counted": int(model.module[1].num_batches_tracked)}


def overflow(rank: int, *, sync: bool) -> Report:
    """The loss of rank 1 overflows in the first pass: every rank skips the update, and the scale backs off."""
    model = DistributedDataParallel(network())
    awp, optimizer = WTAWP(model, rho=0.3, lam=0.7), torch.optim.Adam(model.parameters(), lr=0.01)
    scaler, before, calls = torch.amp.GradScaler("cpu", init_scale=1024.0), weights_of(model), 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        loss = loss_on(model, rank)()
        return loss * (torch.inf if rank == 1 and calls == 1 else 1.0)

    awp.backward(closure, backward=lambda loss: scaler.scale(loss).backward(), sync=sync)
    scaler.step(optimizer)
    scaler.update()
    return {"unchanged": same_bits(weights_of(model), before), "scale": scaler.get_scale()}


def plain(rank: int) -> Report:
    """lam=0 under DDP is plain DDP, bit for bit."""
    model, other = (DistributedDataParallel(network()) for _ in range(2))
    WTAWP(model, rho=0.3, lam=0.0).backward(loss_on(model, rank))
    loss_on(other, rank)().backward()
    return {"same": same_bits(gradients_of(model), gradients_of(other))}


def refusal(call: Callable[[], object]) -> Report:
    """The kind and the text of the error that a call raises."""
    try:
        call()
    except (ValueError, RuntimeError, NotImplementedError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"refused": ""}


def refused_balance(rank: int, *, how: str) -> Report:
    model = DistributedDataParallel(network())
    awp = WTAWP(model, rho=0.3, lam=0.7, balance=1.0)
    if how == "prior":
        with model.no_sync():
            loss_on(model, rank)().backward()
        return refusal(lambda: awp.backward(loss_on(model, rank)))
    with model.no_sync():
        return refusal(lambda: awp.backward(loss_on(model, rank)))


def refused_exact(rank: int) -> Report:
    model = DistributedDataParallel(network())
    return refusal(lambda: WTAWP(model, rho=0.3, lam=0.7, exact=True).backward(loss_on(model, rank)))


def refused_static_loss(rank: int) -> Report:
    model = DistributedDataParallel(network(), static_graph=True)
    return refusal(lambda: WTAWP(model, rho=0.3, lam=0.7).loss(loss_on(model, rank)).backward())


def refused_fsdp1(rank: int) -> Report:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
    return refusal(lambda: WTAWP(model, rho=0.3, lam=0.7).backward(loss_on(model, rank)))


def sharded() -> nn.Sequential:
    model, mesh = network(), init_device_mesh("cpu", (WORLD,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def fsdp2(rank: int, *, through: str = "backward", **options: Any) -> Report:
    """Sharded parameters: the gradient of the joined batch, and after fifty steps the weights of plain processes."""
    model = sharded()
    awp = WTAWP(model, rho=0.3, lam=0.7, **options)

    def update(closure: Callable[[], Tensor]) -> object:
        return awp.backward(closure) if through == "backward" else awp.loss(closure).backward()

    before = full(weights_of(model))
    update(loss_on(model, rank))
    report = {"joined": relative_error(full_gradients(model), expected(None, **options))}
    report["restored"] = same_bits(full(weights_of(model)), before)
    alone = network()
    single = WTAWP(alone, rho=0.3, lam=0.7, **options)
    optimizer = torch.optim.Adam(alone.parameters(), lr=0.01)
    for step in range(50):
        optimizer.zero_grad()
        single.backward(loss_on(alone, None, step % 4))
        optimizer.step()
    report |= train(model, rank, update)
    return report | {"drift": relative_error(full(weights_of(model)), weights_of(alone))}


def fsdp2_accumulation(rank: int) -> Report:
    """Two micro-batches, both reduced."""
    model = sharded()
    awp = WTAWP(model, rho=0.3, lam=0.7)
    for number in range(2):
        awp.backward(loss_on(model, rank, number), backward=lambda loss: (loss / 2).backward())
    reference = total([expected(None, number, divided_by=2) for number in range(2)])
    return {"joined": relative_error(full_gradients(model), reference)}


def refused_fsdp2_without_sync(rank: int) -> Report:
    model = sharded()
    model.set_requires_gradient_sync(False)
    return refusal(lambda: WTAWP(model, rho=0.3, lam=0.7).backward(loss_on(model, rank)))


def refused_fsdp2_exact(rank: int) -> Report:
    model = sharded()
    return refusal(lambda: WTAWP(model, rho=0.3, lam=0.7, exact=True).backward(loss_on(model, rank)))


def tensor_parallel(rank: int) -> Report:
    """The columns and rows of two layers are spread over the ranks, which see the same rows of data."""
    model = network()
    parallelize_module(model, init_device_mesh("cpu", (WORLD,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    awp = WTAWP(model, rho=0.3, lam=0.7)
    before = full(weights_of(model))
    awp.backward(loss_on(model, None))
    report = {"joined": relative_error(full_gradients(model), expected(None)), "rank": rank}
    report["restored"] = same_bits(full(weights_of(model)), before)
    return report | train(model, 0, awp.backward)


def failing_rank(rank: int, *, dies: bool, fails_at: int) -> Report:
    """Rank 1 raises, or its process ends, in one of the passes: rank 0 raises as well, and its model is as before."""
    model = DistributedDataParallel(network(norm=True))
    with model.no_sync():
        loss_on(model, rank)().backward()
    awp, calls = WTAWP(model, rho=0.3, lam=0.7), 0
    before, gradient = copy.deepcopy(model.state_dict()), gradients_of(model)

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        if rank == 1 and calls == fails_at:
            if dies:
                os._exit(3)
            raise RuntimeError("the batch of rank 1 is broken")
        return loss_on(model, rank)()

    report = refusal(lambda: awp.backward(closure))
    report["restored"] = same_bits(model.state_dict(), before) and same_bits(gradients_of(model), gradient)
    return report


CASES: dict[str, Callable[[int], Report]] = {
    "ddp_auto": auto,
    "ddp": ddp_case,
    "ddp_two_steps": partial(ddp_case, awp_options={"steps": 2}),
    "ddp_ball": partial(ddp_case, awp_options={"projection": "ball"}),
    "ddp_balance": partial(ddp_case, awp_options={"balance": 0.5}),
    "ddp_gradient_as_bucket_view": partial(ddp_case, gradient_as_bucket_view=True),
    "ddp_static_graph": partial(ddp_case, static_graph=True),
    "ddp_find_unused_parameters": partial(ddp_case, find_unused_parameters=True),
    "ddp_many_buckets": partial(ddp_case, bucket_cap_mb=1e-4),
    "ddp_own_perturbation": partial(ddp_case, sync=False),
    "ddp_own_perturbation_two_steps": partial(ddp_case, sync=False, awp_options={"steps": 2}),
    "ddp_own_perturbation_bucket_view": partial(ddp_case, sync=False, gradient_as_bucket_view=True),
    "ddp_loss": partial(ddp_case, through="loss"),
    "ddp_inner_module": inner_module,
    "ddp_no_sync": no_sync,
    "ddp_no_sync_bucket_view": partial(no_sync, gradient_as_bucket_view=True),
    "ddp_own_perturbation_accumulated": accumulated_without_sync,
    "ddp_layer_that_no_rank_uses": partial(unused_parameters, sides=(False, False)),
    "ddp_layer_that_one_rank_uses": partial(unused_parameters, sides=(True, False)),
    "ddp_large_layer": partial(large_layer, sync=True),
    "ddp_large_layer_own_perturbation": partial(large_layer, sync=False),
    "ddp_large_layer_accumulated": partial(large_layer, sync=True, prior=True),
    "ddp_batch_norm": batch_norm,
    "ddp_overflow_of_one_rank": partial(overflow, sync=True),
    "ddp_overflow_of_one_rank_own_perturbation": partial(overflow, sync=False),
    "ddp_plain": plain,
    "ddp_balance_under_no_sync": partial(refused_balance, how="no_sync"),
    "ddp_balance_with_prior_gradients": partial(refused_balance, how="prior"),
    "ddp_exact": refused_exact,
    "ddp_static_graph_loss": refused_static_loss,
    "fsdp1": refused_fsdp1,
    "fsdp2": fsdp2,
    "fsdp2_two_steps": partial(fsdp2, steps=2),
    "fsdp2_loss": partial(fsdp2, through="loss"),
    "fsdp2_accumulation": fsdp2_accumulation,
    "fsdp2_without_gradient_sync": refused_fsdp2_without_sync,
    "fsdp2_exact": refused_fsdp2_exact,
    "tensor_parallel": tensor_parallel,
    "rank_that_raises_in_the_first_pass": partial(failing_rank, dies=False, fails_at=1),
    "rank_that_raises_in_the_last_pass": partial(failing_rank, dies=False, fails_at=2),
    "rank_that_dies": partial(failing_rank, dies=True, fails_at=2),  # the last one: its process ends
}

if __name__ == "__main__":
    run_cases(CASES)
