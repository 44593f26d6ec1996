"""
Does it help on my data?
========================

Several random splits, each trained with and without WT-AWP from the same initial weights, and an interval for the gain.
"""

# %%
# ``fit_many`` trains many models at once. Members of a stack may have splits of their own.

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from wtawp import AwpConfig, fit_many, load, rng, stratified
from wtawp.models import GCN

data = load("citation")
splits = [stratified(data.y, seed=seed) for seed in range(6)]
methods = {
    "plain": None,
    "rho=1, lam=0.7": AwpConfig(rho=1.0, lam=0.7),
    'rho=1, lam="auto"': AwpConfig(rho=1.0, lam="auto"),
}
accuracy = {}
for name, awp in methods.items():
    models = [GCN(data.num_features, 7, generator=rng("init", seed)) for seed in range(6)]
    results = fit_many(models, data, splits, seeds=range(6), awp=awp, epochs=60)
    accuracy[name] = np.array([100 * result.accuracy["test"] for result in results])

# %%
# Gains are paired: the same split and the same initial weights with and without. The interval is that of the mean over
# splits.

gains = {name: accuracy[name] - accuracy["plain"] for name in list(methods)[1:]}
for name, gain in gains.items():
    low, high = stats.t.interval(0.95, len(gain) - 1, gain.mean(), stats.sem(gain))
    verdict = "helps" if low > 0 else "harms" if high < 0 else "cannot be told from plain training"
    print(f"{name:20} gain {gain.mean():+.2f} ({low:+.2f} to {high:+.2f}): {verdict}")

# %%

figure, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
for row, gain in enumerate(gains.values()):
    low, high = stats.t.interval(0.95, len(gain) - 1, gain.mean(), stats.sem(gain))
    ax.plot(gain, np.full(len(gain), row), "o", alpha=0.4)
    ax.errorbar(gain.mean(), row, xerr=[[gain.mean() - low], [high - gain.mean()]], fmt="kd", capsize=3)
ax.axvline(0, color="grey", linewidth=0.8)
ax.set(yticks=range(len(gains)), yticklabels=list(gains), ylim=(-0.5, len(gains) - 0.5), xlabel="gain in points")
plt.show()

# %%
# On the command line, all of this and more (what it costs, whether the model underfits, records that are kept) is
# ``wtawp compare citation --splits 6``; see :doc:`/compare`.
