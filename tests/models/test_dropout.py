import pytest
import torch
from torch.func import vmap

from wtawp.graphs.splitmix64 import splitmix64
from wtawp.models.dropout import dropout, masks, normal

X = torch.ones(40, 8, dtype=torch.float64)


def masked(key: int, x: torch.Tensor = X, p: float = 0.5, positions: torch.Tensor | None = None) -> torch.Tensor:
    with masks(torch.tensor(key)):
        return dropout(x, p, True, positions=positions)


def test_it_keeps_the_mean_and_is_off_in_evaluation() -> None:
    big = torch.ones(2000, 100)
    for p in (0.1, 0.5, 0.8):
        out = masked(7, big, p)
        assert float((out == 0).float().mean()) == pytest.approx(p, abs=0.005)
        assert float(out.mean()) == pytest.approx(1.0, abs=0.02)
    assert dropout(big, 0.5, False) is big
    assert dropout(big, 0.0, True) is big


def test_the_mask_is_a_function_of_key_layer_and_position() -> None:
    assert torch.equal(masked(1), masked(1))
    assert not torch.equal(masked(1), masked(2))
    with masks(torch.tensor(1)):
        first, second = dropout(X, 0.5, True), dropout(X, 0.5, True)
    assert torch.equal(first, masked(1))
    assert not torch.equal(first, second)
    rows = torch.tensor([30, 2, 17])
    assert torch.equal(masked(1, X[rows], positions=rows), masked(1)[rows])


def test_masks_of_different_keys_and_places_are_unrelated() -> None:
    kept = (
        torch.stack([masked(int(k), torch.ones(10, 8)) > 0 for k in splitmix64(torch.arange(2000))]).float().flatten(1)
    )
    assert float((kept.mean(0) - 0.5).abs().max()) < 0.05
    correlation = torch.corrcoef(kept.T).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 0.12  # 3,160 pairs of 2,000 draws: five standard deviations


def test_a_stack_draws_what_its_members_draw_alone() -> None:
    keys = torch.tensor([3, 4, 5])
    x = torch.rand(3, 40, 8, dtype=torch.float64)

    def run(x: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        with masks(key):
            return dropout(x, 0.5, True)

    for stack, in_dims in ((x, (0, 0)), (x[0], (None, 0))):
        together = vmap(run, in_dims=in_dims)(stack, keys)
        alone = torch.stack([masked(int(k), stack if in_dims[0] is None else stack[i]) for i, k in enumerate(keys)])
        assert torch.equal(together, alone)


def test_its_gradient_is_the_mask() -> None:
    x = torch.rand(40, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: masked(9, x), x)
    keys = torch.tensor([1, 2])

    def shared(x: torch.Tensor) -> torch.Tensor:  # one x, two masks: gradients add up
        def run(key: torch.Tensor) -> torch.Tensor:
            with masks(key):
                return dropout(x, 0.5, True)

        return vmap(run)(keys)

    assert torch.autograd.gradcheck(shared, x)


def test_without_a_stream_torch_decides() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = dropout(X, 0.5, True), dropout(X, 0.5, True)
        torch.manual_seed(0)
        assert torch.equal(dropout(X, 0.5, True), first)
        assert not torch.equal(first, second)


def test_normal_draws_are_standard_and_belong_to_their_place_and_key() -> None:
    x = torch.zeros(2000, 50)
    with masks(torch.tensor(5)):
        alone = normal(x)
    assert abs(float(alone.mean())) < 0.01
    assert abs(float(alone.std()) - 1) < 0.01
    assert abs(float(alone.double().pow(4).mean()) - 3) < 0.1
    with masks(torch.tensor([5, 6])):
        stack = normal(x.double().expand(2, -1, -1), positions=torch.arange(2000))
    torch.testing.assert_close(stack[0].float(), alone)
    assert abs(float((stack[0] * stack[1]).mean())) < 0.02
    rows = torch.tensor([1500, 3])
    with masks(torch.tensor(5)):
        torch.testing.assert_close(normal(x[rows], positions=rows), alone[rows])
