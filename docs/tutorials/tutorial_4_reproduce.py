"""
Reproduce a table
=================

From the label of a table to its verdicts: plans, runs, records and reports, here at a size that takes seconds.
"""

# %%
# A plan is a table with its settings and its printed numbers. ``wtawp reproduce`` lists those of the paper; this one is
# our own, with the same parts: cells in rows and columns, pairs of rows, numbers of splits and initialisations.

import tempfile
from pathlib import Path

from wtawp import AwpConfig
from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.runner import run_plans
from wtawp.experiments.plans import plans
from wtawp.experiments.report.markdown import render_markdown
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Plan, Setting
from wtawp.experiments.store import Store

clean = plans()["tab:natacc"]
print(clean.title, "-", clean.num_runs, "runs")

plain = Setting(dataset="wine", epochs=30)
perturbed = Setting(dataset="wine", epochs=30, awp=AwpConfig(rho=1.0, lam="auto"))
cells = (Cell("GCN", "wine", plain, 3, 1), Cell("GCN+WT-AWP auto", "wine", perturbed, 3, 1))
plan = Plan("tutorial", "A GCN on wine", cells, (("GCN", "GCN+WT-AWP auto"),))

# %%
# Runs that the store does not have are trained; a second call finds them. A killed sweep continues where it stopped.

folder = tempfile.TemporaryDirectory()
with Store(Path(folder.name) / "results.sqlite") as store:
    print(run_plans([plan], store, engine=local(1)))
    print(run_plans([plan], store, engine=local(1)))
    records = store.records(run.key for run in plan.runs())

# %%
# A report is a pure function of records: means, paired gains over splits with their intervals, tests.

report = summarise(plan, records)
print(render_markdown([report])[:1500])
folder.cleanup()

# %%
# The whole table of the paper is ``wtawp reproduce tab:natacc``, and everything that was recorded is on the page
# :doc:`/results`.
