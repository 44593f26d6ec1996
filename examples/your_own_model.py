"""Any PyTorch Geometric model with and without WT-AWP, in your own training loop.

python examples/your_own_model.py
"""

import torch
from torch.nn import functional as F
from torch_geometric.nn import GCN

from wtawp import WTAWP, load, stratified

data = load("citation")
split = stratified(data.y, seed=0)

for lam in (0.0, 0.5):  # 0 is plain training
    torch.manual_seed(0)
    model = GCN(data.num_features, 64, num_layers=2, out_channels=7, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    awp = WTAWP(model, rho=0.5, lam=lam)

    def loss_on_training_nodes(model: torch.nn.Module = model) -> torch.Tensor:
        return F.cross_entropy(model(data.x, data.edge_index)[split.train], data.y[split.train])

    for _ in range(200):
        model.train()
        optimizer.zero_grad()
        awp.backward(loss_on_training_nodes)  # was: loss_on_training_nodes().backward()
        optimizer.step()

    model.eval()
    with torch.no_grad():
        predicted = model(data.x, data.edge_index).argmax(1)
    accuracy = float((predicted == data.y)[split.test].float().mean())
    print(f"{awp}\n  test accuracy {accuracy:.3f}\n")
