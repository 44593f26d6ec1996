"""The weights of the epoch that did best on the validation set, for each model of a stack."""

from typing import Any

import torch
from torch import Tensor

from wtawp.training.options import FitSelectOn
from wtawp.training.step import Stack


class BestWeights:
    """The best weights so far of every member: those of the last epoch that improved on the validation set.

    Args:
        theta: The stacked weights that are trained in place.
        buffers: The stacked buffers that are updated in place.
        size: Number of members.
        device: Where they are.
        select_on: What must improve, see `Schedule`.
        first: The first epoch whose weights may be kept.
    """

    def __init__(
        self,
        theta: Stack,
        buffers: Stack,
        size: int,
        device: torch.device,
        select_on: FitSelectOn,
        *,
        first: int = 0,
    ) -> None:
        self.theta, self.buffers, self.select_on, self.first = theta, buffers, select_on, first
        self.best = {n: w.detach().clone() for n, w in theta.items()}
        self.best_buffers = {n: b.clone() for n, b in buffers.items()}
        self.loss = torch.full((size,), torch.inf, dtype=torch.float64, device=device)
        self.score = torch.full((size,), -torch.inf, dtype=torch.float64, device=device)
        self.epoch = torch.zeros(size, dtype=torch.int64, device=device)
        self.stopped = torch.zeros(size, dtype=torch.bool, device=device)

    def update(self, epoch: Tensor, loss: Tensor, score: Tensor, patience: int | None) -> None:
        """Keep the current weights of the members that have improved.

        Args:
            epoch: Number of the epoch, counted from 0.
            loss: Validation loss of each member, [b].
            score: Metric of each member on the validation set, the higher the better, [b].
            patience: Number of epochs without improvement after which a member stops; None for never.
        """
        if self.first:  # what is not a number changes nothing
            counts = epoch >= self.first
            loss, score = torch.where(counts, loss, torch.nan), torch.where(counts, score, torch.nan)
        better = self._is_better(epoch, loss, score)
        torch.fmin(self.loss, loss.to(self.loss.dtype), out=self.loss)
        torch.fmax(self.score, score.to(self.score.dtype), out=self.score)
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        if patience is not None:
            self.stopped |= epoch - self.epoch >= patience
        pairs = [(self.best, self.theta), (self.best_buffers, self.buffers)]
        if better.device.type == "cpu":  # few members improve in late epochs: copy those alone
            improved = [i for i, is_better in enumerate(better.tolist()) if is_better]
            for i in improved:
                for best, now in pairs:
                    for n in best:
                        best[n][i].copy_(now[n][i].detach())
        else:
            for best, now in pairs:
                for n in best:
                    best[n].copy_(torch.where(better.view(-1, *[1] * (best[n].dim() - 1)), now[n].detach(), best[n]))

    def _is_better(self, epoch: Tensor, loss: Tensor, score: Tensor) -> Tensor:  # [], [b], [b] -> [b] bool
        """Which members have improved, of those that have not stopped."""
        if self.select_on == "last":
            better = (epoch >= self.first).expand(loss.shape)
        elif self.select_on == "loss":
            better = loss < self.loss
        elif self.select_on == "either":
            better = (loss < self.loss) | (score > self.score)
        else:  # "accuracy" and "metric"
            better = score > self.score
        return better & ~self.stopped

    def state_dict(self) -> dict[str, Any]:
        """Collect what must be saved to continue.

        Returns:
            Tensors, by name.
        """
        names = ("best", "best_buffers", "loss", "score", "epoch", "stopped")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned.
        """
        for name, saved in state.items():
            own = getattr(self, name)
            for key in saved if isinstance(saved, dict) else ():
                own[key].copy_(saved[key])
            if not isinstance(saved, dict):
                own.copy_(saved)
