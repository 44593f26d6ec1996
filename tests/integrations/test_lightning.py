"""Lightning trains as a loop written by hand does; the callback logs, saves and refuses."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from process_pair import run_pair
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from wtawp.base import rng
from wtawp.core import WTAWP
from wtawp.core.auto import AutoState, follow_gap
from wtawp.core.observation import StepRecorder

lightning = pytest.importorskip("lightning", reason="LIGHTNING NOT CHECKED: pip install 'wtawp[lightning]'")
pl = lightning.pytorch

from lightning.pytorch.loggers import CSVLogger, Logger  # noqa: E402
from lightning.pytorch.plugins import MixedPrecision  # noqa: E402
from lightning.pytorch.strategies import FSDPStrategy  # noqa: E402

from wtawp.integrations import PerturbationCallback, gradient_scale  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
]

G = rng("test_lightning")
X, Y = torch.randn(24, 4, generator=G), torch.randint(0, 3, (24,), generator=G)
RHO, LAM, RATE = 1.0, 0.7, 0.3


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    g = rng("network of test_lightning")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g))
    return model


class Module(pl.LightningModule):
    """A small classifier with WT-AWP, by automatic or manual optimization."""

    def __init__(self, *, automatic: bool = True, accumulated: int = 1, **options: Any) -> None:
        super().__init__()
        self.automatic_optimization, self.accumulated = automatic, accumulated
        self.network = network()
        self.awp = WTAWP(self.network, **{"rho": RHO, "lam": LAM, **options})

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor | None:
        x, y = batch

        def loss() -> Tensor:
            return F.cross_entropy(self.network(x), y)

        self.log("own", float(batch_idx))
        if self.automatic_optimization:
            return self.awp.loss(loss, scale=gradient_scale(self.trainer))
        optimizer = self.optimizers()
        self.awp.backward(loss, backward=lambda value: self.manual_backward(value / self.accumulated))
        if (batch_idx + 1) % self.accumulated == 0:
            optimizer.step()
            optimizer.zero_grad()
        return None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=RATE)


def trainer_of(*, callbacks: Any = (), **options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "devices": 1, "max_epochs": 1}
    return pl.Trainer(**quiet | options, callbacks=list(callbacks))


def batches() -> DataLoader:
    return DataLoader(TensorDataset(X, Y), batch_size=4)


def train_by_hand(*, accumulated: int, autocast: torch.dtype | None, scale: float = 1.0) -> list[Tensor]:
    """The weights after one epoch: Algorithm 1 with one step on the sphere, for the first weight, written out."""
    w = [p.detach().clone() for p in network().parameters()]

    def gradient_at(at: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
        at = [t.clone().requires_grad_() for t in at]
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            logits = F.linear(torch.tanh(F.linear(x, at[0], at[1])), at[2], at[3])
        loss = F.cross_entropy(logits.float(), y)
        return [g / scale for g in torch.autograd.grad(loss * scale, at)]

    total = [torch.zeros_like(t) for t in w]
    for number, (x, y) in enumerate(zip(X.split(4), Y.split(4), strict=True), 1):
        natural = gradient_at(w, x, y)
        delta = natural[0] * (RHO * w[0].norm() / natural[0].norm())
        perturbed = gradient_at([w[0] + delta, *w[1:]], x, y)
        mixed = [(LAM * a + (1 - LAM) * b) / accumulated for a, b in zip(perturbed, natural, strict=True)]
        total = [t + g for t, g in zip(total, mixed, strict=True)]
        if number % accumulated == 0:
            w = [t - RATE * g for t, g in zip(w, total, strict=True)]
            total = [torch.zeros_like(t) for t in w]
    return w


def relative_error(found: list[Tensor], expected: list[Tensor]) -> float:
    """The distance to the expected weights, over the way that training went."""
    way = torch.cat([(a - b).detach().flatten() for a, b in zip(expected, network().parameters(), strict=True)]).norm()
    return float(torch.cat([(a - b).detach().flatten() for a, b in zip(found, expected, strict=True)]).norm() / way)


PRECISIONS = {
    "32-true": (None, 1.0, 1e-5),
    "bf16-mixed": (torch.bfloat16, 1.0, 3e-2),
    "16-mixed": (torch.float16, 2.0**10, 5e-3),
}


@pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "manual"])
@pytest.mark.parametrize("accumulated", [1, 3])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_equals_a_loop_written_by_hand(precision: str, accumulated: int, automatic: bool) -> None:
    autocast, scale, tolerance = PRECISIONS[precision]
    module = Module(automatic=automatic, accumulated=accumulated)
    options: dict[str, Any] = {"precision": precision}
    if precision == "16-mixed":  # Lightning itself offers it on GPUs only
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        options = {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)]}
    if automatic:
        options["accumulate_grad_batches"] = accumulated
    trainer_of(callbacks=[PerturbationCallback(module.awp)], **options).fit(module, batches())
    found = list(module.network.parameters())
    assert relative_error(found, train_by_hand(accumulated=accumulated, autocast=autocast, scale=scale)) < tolerance
    assert relative_error(found, train_by_hand(accumulated=accumulated + 1, autocast=autocast)) > 0.2
    assert module.awp.state_dict()["calls"] == 6


def test_small_gradients_survive_half_precision_and_would_not_without_the_scale() -> None:
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**24))
    trainer = trainer_of(plugins=[plugin])
    scale = gradient_scale(trainer)
    assert scale is not None
    assert float(scale) == 2.0**24
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    nn.init.ones_(model[0].weight)
    nn.init.ones_(model[1].weight)

    def loss() -> Tensor:
        with torch.autocast("cpu", torch.float16):
            return 1e-9 * model(torch.ones(1, 1)).float().sum()

    awp = WTAWP(model, rho=0.5, lam=0.5)
    awp.loss(loss, scale=scale).backward()
    # d/dw2 = 1e-9 * w1, with w1 = 1 and 1.5
    assert float(model[1].weight.grad) == pytest.approx(1.25e-9, rel=1e-3)
    with pytest.raises(ValueError, match="scale"):
        awp.loss(loss)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_without_a_scaler_there_is_no_scale(precision: str) -> None:
    assert gradient_scale(trainer_of(precision=precision)) is None


class Recorder(Logger):
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, dict[str, float]] = {}

    name, version = "recorder", 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.setdefault(step, {}).update(metrics)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("automatic", "accumulated"), [(True, 1), (True, 3), (False, 1), (False, 2)], ids=lambda v: str(v)
)
def test_scalars_are_logged_at_the_steps_of_lightning_and_only_those_are_recorded(
    automatic: bool, accumulated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, logger, recorded = Module(automatic=automatic, accumulated=accumulated), Recorder(), []
    report = StepRecorder.report

    def count(self: StepRecorder, *arguments: Any) -> None:
        recorded.append(self._step)
        report(self, *arguments)

    monkeypatch.setattr(StepRecorder, "report", count)
    seen = []  # every step, as another observer sees it
    if not automatic:
        module.awp.register_step_hook(seen.append)
    options = {"accumulate_grad_batches": accumulated} if automatic else {}
    trainer_of(
        callbacks=[PerturbationCallback(module.awp, prefix="p")],
        logger=logger,
        log_every_n_steps=2,
        max_epochs=2,
        **options,
    ).fit(module, batches())
    with_own = {step for step, row in logger.rows.items() if "own" in row}
    with_ours = {step for step, row in logger.rows.items() if "p/gap" in row}
    assert with_ours == with_own
    assert len(with_ours) == {(True, 1): 6, (True, 3): 2, (False, 1): 6, (False, 2): 6}[automatic, accumulated]
    row = logger.rows[min(with_ours)]
    assert {name for name in row if name.startswith("p/")} == {
        "p/natural_loss", "p/perturbed_loss", "p/gap", "p/natural_gradient_norm", "p/perturbed_gradient_norm", "p/lam",
        "p/relative_perturbation/0.weight",
    }  # fmt: skip
    assert row["p/lam"] == pytest.approx(LAM)
    assert row["p/relative_perturbation/0.weight"] == pytest.approx(RHO, rel=1e-5)
    if automatic:
        assert len(recorded) == len(with_ours) * accumulated
    else:
        for step in with_ours:
            expected = {f"p/{name}": value for name, value in seen[step].as_floats().items()}
            assert {n: logger.rows[step][n] for n in expected} == pytest.approx(expected, rel=1e-6)


def test_scalars_are_written_through_a_logger_of_lightning(tmp_path: Path) -> None:
    module = Module()
    trainer_of(callbacks=[PerturbationCallback(module.awp)], logger=CSVLogger(tmp_path), log_every_n_steps=3).fit(
        module, batches()
    )
    header = next(tmp_path.rglob("metrics.csv")).read_text(encoding="utf-8").splitlines()[0]
    assert "wtawp/gap" in header
    assert "wtawp/relative_perturbation/0.weight" in header


def test_scalars_can_be_monitored_without_a_logger_and_barebones_logs_nothing() -> None:
    module = Module()
    trainer = trainer_of(callbacks=[PerturbationCallback(module.awp)], log_every_n_steps=2)
    trainer.fit(module, batches())
    assert float(trainer.callback_metrics["wtawp/lam"]) == pytest.approx(LAM)
    bare = Module()
    trainer = pl.Trainer(accelerator="cpu", barebones=True, max_epochs=1, callbacks=[PerturbationCallback(bare.awp)])
    trainer.fit(bare, batches())
    assert not trainer.callback_metrics
    assert bare.awp.state_dict()["calls"] == 6


def test_a_resumed_training_continues_exactly(tmp_path: Path) -> None:
    """With every=4 and 6 batches an epoch, the second epoch depends on the number of calls in the first."""
    whole = Module(every=4)
    trainer_of(callbacks=[PerturbationCallback(whole.awp)], max_epochs=2).fit(whole, batches())
    first = Module(every=4)
    trainer = trainer_of(callbacks=[PerturbationCallback(first.awp)])
    trainer.fit(first, batches())
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    torch.load(tmp_path / "half.ckpt", weights_only=True)

    def resume(callbacks: list[Any], second: Module) -> list[Tensor]:
        trainer_of(callbacks=callbacks, max_epochs=2).fit(second, batches(), ckpt_path=tmp_path / "half.ckpt")
        return list(second.network.parameters())

    second = Module(every=4)
    found = resume([PerturbationCallback(second.awp)], second)
    assert second.awp.state_dict()["calls"] == 12
    assert all(torch.equal(a, b) for a, b in zip(found, whole.network.parameters(), strict=True))
    forgetful = resume([], Module(every=4))
    assert not all(torch.equal(a, b) for a, b in zip(forgetful, whole.network.parameters(), strict=True))


def test_two_perturbations_of_one_trainer_have_keys_of_their_own() -> None:
    awp = WTAWP(network(), rho=RHO, lam=LAM)
    assert PerturbationCallback(awp).state_key != PerturbationCallback(awp, prefix="other").state_key


@pytest.mark.parametrize("returned", ["nothing", "the detached loss", "another loss"])
@pytest.mark.parametrize("lam", [LAM, 0.0])
def test_a_gradient_that_automatic_optimization_would_clear_is_refused(returned: str, lam: float) -> None:
    class Mistaken(Module):
        def __init__(self) -> None:
            super().__init__(lam=lam)

        def training_step(self, batch: list[Tensor], _: int) -> Tensor | None:
            def loss() -> Tensor:
                return F.cross_entropy(self.network(batch[0]), batch[1])

            detached = self.awp.backward(loss)
            return {"nothing": None, "the detached loss": detached, "another loss": loss()}[returned]

    module = Mistaken()
    with pytest.raises(ValueError, match=r"return awp\.loss"):
        trainer_of(callbacks=[PerturbationCallback(module.awp)]).fit(module, batches())


def test_training_without_the_perturbation_is_refused() -> None:
    class Plain(Module):
        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            return F.cross_entropy(self.network(batch[0]), batch[1])

    module = Plain()
    with pytest.raises(ValueError, match="no training_step of this epoch used"):
        trainer_of(callbacks=[PerturbationCallback(module.awp)]).fit(module, batches())


def test_sharding_that_hides_parameters_is_refused() -> None:
    module = Module()
    callback = PerturbationCallback(module.awp)
    trainer = trainer_of()
    trainer.strategy.__class__ = FSDPStrategy  # a real one needs a GPU
    with pytest.raises(ValueError, match="ModelParallelStrategy"):
        callback.setup(trainer, module, "fit")


def test_what_is_not_a_perturbation_or_cannot_be_observed_is_refused() -> None:
    with pytest.raises(ValueError, match="must be the WTAWP"):
        PerturbationCallback(network())
    with pytest.raises(ValueError, match="use exact=False"):
        PerturbationCallback(WTAWP(network(), rho=RHO, lam=LAM, exact=True))


def test_an_exception_in_training_ends_the_observation() -> None:
    module = Module()
    callback = PerturbationCallback(module.awp)

    class Failing(Module):
        def training_step(self, *_: Any) -> Tensor:
            raise RuntimeError("the batch is broken")

    failing = Failing()
    with pytest.raises(RuntimeError, match="the batch is broken"):
        trainer_of(callbacks=[callback], logger=Recorder(), log_every_n_steps=1).fit(failing, batches())
    module.awp.backward(lambda: F.cross_entropy(module.network(X), Y))
    assert callback._step is None


class Follower(Module):
    """A module that logs a validation loss."""

    def __init__(self, logged: str = "val_loss") -> None:
        super().__init__(lam="auto")
        self.logged = logged

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log(self.logged, F.cross_entropy(self.network(batch[0]), batch[1]) + 3)


def fit_with_validation(module: Follower, callback: PerturbationCallback, **options: Any) -> None:
    batches = DataLoader(TensorDataset(X, Y), batch_size=4)
    trainer = pl.Trainer(
        max_epochs=3, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip
    trainer.fit(module, batches, batches)


def test_lam_follows_the_losses_of_training_and_validation() -> None:
    module, seen = Follower("own_name"), []
    train_losses: list[float] = []
    module.awp.register_step_hook(lambda step: train_losses.append(float(step.natural_loss)))
    observe = module.awp.observe

    def watch(**losses: Any) -> None:
        observe(**losses)
        seen.append((module.awp.state_dict()["auto"], float(losses["val_loss"])))

    module.awp.observe = watch  # type: ignore[method-assign]
    fit_with_validation(module, PerturbationCallback(module.awp, val_loss="own_name"))
    expected = AutoState(lam=0.0, first_loss=train_losses[0], peak=0.0)
    for epoch, (state, val_loss) in enumerate(seen):
        mean = sum(train_losses[6 * epoch : 6 * epoch + 6]) / 6
        expected = follow_gap(expected, mean, val_loss)
        assert {name: state[name] for name in expected._fields} == pytest.approx(expected._asdict(), rel=1e-5)
    assert len(seen) == 3, "once an epoch, and not for the check before the training"
    assert expected.peak > 0


def test_a_validation_loss_that_is_not_logged_is_asked_for() -> None:
    module = Follower("other")
    with pytest.raises(ValueError, match=r"nothing is logged as 'val_loss': write self.log\('val_loss', loss\)"):
        fit_with_validation(module, PerturbationCallback(module.awp))


def test_a_training_loss_without_dropout_is_followed_if_it_is_logged() -> None:
    module = Follower()
    module.on_validation_epoch_end = lambda: module.log("clean", 0.25)  # type: ignore[method-assign]
    observed, observe = [], module.awp.observe
    module.awp.observe = lambda **losses: (observed.append(losses), observe(**losses))  # type: ignore[method-assign,assignment,func-returns-value]
    fit_with_validation(module, PerturbationCallback(module.awp, train_loss="clean"))
    assert [float(losses["train_loss"]) for losses in observed] == [0.25] * 3
    with pytest.raises(ValueError, match="nothing is logged as 'other': log the training loss without dropout"):
        fit_with_validation(module, PerturbationCallback(module.awp, train_loss="other"))


@pytest.mark.skipif(sys.platform != "linux", reason="NOT CHECKED: the processes meet over the loopback of Linux")
def test_two_processes_train_as_a_loop_written_by_hand() -> None:
    right = ["automatic", "accumulated", "manual", "manual_static_graph", "fsdp2", "fsdp2_manual"]
    reports = run_pair(Path(__file__).parents[1] / "support" / "lightning_pair.py", [*right, "static_graph"], limit=240)
    for case in right:
        for report in reports[case]:
            assert "failed" not in report, report["failed"]
            assert report["error"] < 1e-5, case
            assert report["error_of_the_other_perturbation"] > 1e-2, case
        assert reports[case][0]["weights"] == reports[case][1]["weights"], case
    for report in reports["static_graph"]:
        assert "use static_graph=False, or manual optimization" in report["refused"]
