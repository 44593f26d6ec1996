"""
One line in my loop
===================

A PyTorch Geometric model of your own, trained plainly and with WT-AWP in the same loop.
"""

# %%
# The graph is a generated citation network. Any PyG ``Data`` with ``x``, ``edge_index`` and ``y`` works.

import matplotlib.pyplot as plt
import torch
from torch.nn import functional as F
from torch_geometric.nn import GCN

from wtawp import WTAWP, load, stratified

data = load("citation")
split = stratified(data.y, seed=0)
print(data)

# %%
# The loop is yours. The one line is ``awp.backward(closure)`` in place of ``closure().backward()``; ``awp.observe``
# tells the perturbation after each epoch how well the model fits, so that ``lam="auto"`` can follow it.


def train(lam):
    torch.manual_seed(0)
    model = GCN(data.num_features, 64, num_layers=2, out_channels=7, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    awp = WTAWP(model, rho=1.0, lam=lam)

    def loss_on(nodes):
        return F.cross_entropy(model(data.x, data.edge_index)[nodes], data.y[nodes])

    history = []
    for _ in range(60):
        model.train()
        optimizer.zero_grad()
        awp.backward(lambda: loss_on(split.train))
        optimizer.step()
        model.eval()
        with torch.no_grad():
            train_loss, val_loss = float(loss_on(split.train)), float(loss_on(split.val))
            predicted = model(data.x, data.edge_index).argmax(1)
        if lam == "auto":
            awp.observe(train_loss=train_loss, val_loss=val_loss)
        accuracy = float((predicted == data.y)[split.test].float().mean())
        history.append((train_loss, val_loss, accuracy, awp.lam))
    return history


histories = {"plain": train(0.0), "lam=0.7": train(0.7), 'lam="auto"': train("auto")}
for name, history in histories.items():
    print(f"{name:12} test accuracy {history[-1][2]:.3f}")

# %%
# WT-AWP keeps the training loss above that of plain training: it regularises. With ``lam="auto"`` it starts plainly,
# and the weight of the perturbed loss rises with the gap between the two losses.

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for name, history in histories.items():
    train_loss, val_loss, _, lam = zip(*history, strict=True)
    axes[0].plot(train_loss, label=name)
    axes[1].plot(val_loss, label=name)
    axes[2].plot(lam, label=name)
for ax, title in zip(axes, ("training loss", "validation loss", "lam"), strict=True):
    ax.set(xlabel="epoch", title=title)
axes[0].legend(frameon=False)
plt.show()

# %%
# Does it help? One split and one seed cannot tell. The next tutorial asks properly.
