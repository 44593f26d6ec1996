"""
How robust is my GNN?
=====================

Attacks of growing strength on a model of your own, and what can be guaranteed.
"""

# %%
# A GCN of PyTorch Geometric, trained by ``fit``, which takes any module that is called as ``model(x, edge_index)``.

import matplotlib.pyplot as plt
import torch
from torch_geometric.nn import GCN

from wtawp import AwpConfig, Noise, attack, certify, evaluate, fit, load, stratified

data = load("citation")
split = stratified(data.y, seed=0)


def trained(awp):
    torch.manual_seed(0)
    model = GCN(data.num_features, 16, num_layers=2, out_channels=7, dropout=0.5)
    fit(model, data, split, seed=0, awp=awp, epochs=60)
    return model


models = {"plain": trained(None), "WT-AWP auto": trained(AwpConfig(rho=1.0, lam="auto"))}

# %%
# An attack flips edges within a budget to mislead the model on the test nodes. Random flips hardly matter; an attack
# that follows the gradient of the model itself does. The stronger the attack, the more the number says about the model.

budgets = [0.02, 0.05, 0.1]
curves = {}
for name, model in models.items():
    clean = evaluate(model, data, split.test)[1]
    for method, options in (("random", {}), ("prbcd", {"steps": 10, "samples": 5, "block_size": 20_000})):
        under_attack = [clean]
        for budget in budgets:
            flips = attack(data, model, method=method, budget=budget, nodes=split.test, seed=0, **options)
            under_attack.append(evaluate(model, flips.apply(data), split.test)[1])
        curves[name, method] = under_attack

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for (name, method), values in curves.items():
    style = "--" if method == "random" else "-"
    ax.plot([0, *budgets], values, style, marker="o", label=f"{name}, {method}")
ax.set(xlabel="share of edges flipped", ylabel="test accuracy")
ax.legend(frameon=False)
plt.show()

# %%
# An attack shows how low the accuracy can be brought; a certificate shows how low it cannot. The certificate holds for
# the smoothed model: the class that the model predicts most often on noisy copies of the graph.

certificate = certify(data, models["plain"], edges=Noise(p_add=0.001, p_del=0.4), samples=300, seed=0)
for deletions in (0, 1, 2, 4):
    sure = torch.as_tensor(certificate.certified(edges=(0, deletions)))
    right = torch.as_tensor(certificate.prediction) == data.y
    print(f"{deletions} deletions: {100 * float((sure & right)[split.test].float().mean()):.1f} % certified and right")

# %%
# ``wtawp attack`` and ``wtawp certify`` do this over several splits with intervals; see :doc:`/attacks` and
# :doc:`/certificates`.
