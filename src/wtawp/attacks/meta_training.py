"""The training of Metattack's linear surrogate, and the way back through it, for a stack of b surrogates at once.

M [b, k, d] holds the training nodes' rows of S S X, so that the training logits are M W1 W2. All that a training
depends on is M, the labels as one-hot targets [b, k, c], the share of each row in the loss [b, k, 1] and the first
weights W1 [b, d, h] and W2 [b, h, c].
"""

import torch
from torch import Tensor

RATE, MOMENTUM = 0.1, 0.9  # of the training that is differentiated through
ADAM_RATE = 0.01  # of A-Metattack's


class Descent:
    """Gradient descent with momentum on W1 and W2, and the gradient of its result with respect to M.

    W1 is its start minus M^T moved, so a step needs no more than M W1 = M W1_0 - (M M^T) moved.
    """

    def __init__(self, rows: Tensor, targets: Tensor, share: Tensor, first: Tensor, second: Tensor, steps: int) -> None:
        # [b, k, d], [b, k, c], [b, k, 1], [b, d, h], [b, h, c]
        self.rows, self.share, self.start = rows, share, first
        self.kernel, hidden_start = rows @ rows.mT, rows @ first
        self.tape = []
        moved = torch.zeros_like(hidden_start)  # [b, k, h]
        speed, second_speed = torch.zeros_like(moved), torch.zeros_like(second)
        for _ in range(steps):
            hidden = torch.baddbmm(hidden_start, self.kernel, moved, alpha=-1)  # M W1
            probabilities = (hidden @ second).softmax(2)
            to_logits = share * (probabilities - targets)
            self.tape.append((moved, hidden, second, probabilities, to_logits))
            speed = torch.baddbmm(speed, to_logits, second.mT, beta=MOMENTUM)
            second_speed = torch.baddbmm(second_speed, hidden.mT, to_logits, beta=MOMENTUM)
            moved = moved.add(speed, alpha=RATE)
            second = second.sub(second_speed, alpha=RATE)
        self.moved, self.second = moved, second
        self.first = torch.baddbmm(first, rows.mT, moved, alpha=-1)

    def gradient(self, to_weights: Tensor) -> Tensor:  # [b, d, c] -> [b, k, d]
        """The gradient with respect to M of a loss whose gradient with respect to the trained W1 W2 is `to_weights`.

        `to_x` is the gradient of that loss with respect to x; those of the two speeds include their effect on all
        later steps.
        """
        to_first, to_second = to_weights @ self.second.mT, self.first.mT @ to_weights
        to_moved = -(self.rows @ to_first)
        to_speed, to_second_speed = torch.zeros_like(to_moved), torch.zeros_like(to_second)
        to_hiddens = []
        for _, hidden, second, probabilities, to_logits in reversed(self.tape):
            to_speed = (MOMENTUM * to_speed).add_(to_moved, alpha=RATE)
            to_second_speed = (MOMENTUM * to_second_speed).sub_(to_second, alpha=RATE)
            # through the step's gradients, to_logits second^T and hidden^T to_logits
            to_to_logits = torch.baddbmm(to_speed @ second, hidden, to_second_speed)  # [b, k, c]
            centred = to_to_logits - (probabilities * to_to_logits).sum(2, keepdim=True)
            to_z = self.share * probabilities * centred
            to_hidden = torch.baddbmm(to_logits @ to_second_speed.mT, to_z, second.mT)
            to_second = to_second + to_speed.mT @ to_logits + hidden.mT @ to_z
            to_moved = torch.baddbmm(to_moved, self.kernel, to_hidden, alpha=-1)
            to_hiddens.append(to_hidden)
        moves = torch.cat([moved for moved, *_ in reversed(self.tape)], 2)  # [b, k, steps h]
        to_kernel = -(torch.cat(to_hiddens, 2) @ moves.mT)  # [b, k, k]
        to_rows = (to_kernel + to_kernel.mT) @ self.rows - self.moved @ to_first.mT
        return to_rows + torch.stack(to_hiddens).sum(0) @ self.start.mT


def adam_trajectory(
    rows: Tensor, targets: Tensor, share: Tensor, first: Tensor, second: Tensor, steps: int
) -> Tensor:  # as for Descent -> [b, d, steps, c]
    """W1 W2 before each step of a training with Adam, for A-Metattack. The first weights are changed in place."""
    path, optimizer = [], torch.optim.Adam([first, second], lr=ADAM_RATE)
    for _ in range(steps):
        path.append(first @ second)
        to_weights = rows.mT @ (share * ((rows @ path[-1]).softmax(2) - targets))
        first.grad, second.grad = to_weights @ second.mT, first.mT @ to_weights
        optimizer.step()
    return torch.stack(path, 2)
