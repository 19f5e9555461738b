# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Watch a loop
#
# A network learns digits, a fifth of whose labels are wrong. Three added lines say at every
# twentieth step how sure it is against how right, how sharp the loss is, and where the margins are.

# %%
from html import escape

import torch
from IPython.display import HTML
from sklearn.datasets import load_digits
from torch import nn

from toosure import Run, Watch
from toosure.page.report import report

# %%
torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
wrong = torch.rand(len(labels)) < 0.2
labels[wrong] = torch.randint(10, (int(wrong.sum()),))
train, val = torch.randperm(len(labels))[:700].split([200, 500])

# %% [markdown]
# ## The loop
#
# `Watch` reads the model and leaves everything else alone. `measure=` adds the best temperature on
# validation data, which splits the NLL into calibration and refinement.

# %%
model = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = (inputs[train], labels[train]), (inputs[val], labels[val])
measured = ("gn_sharpness", "temperature")

with Watch(model, loss, *data, run="runs/notebook", measure=measured) as watch:
    for _epoch in range(100):
        for batch in train[torch.randperm(len(train))].split(50):
            optimizer.zero_grad()
            loss(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
            watch.step(lr=0.1)

# %% [markdown]
# ## The rows
#
# A run is a folder; reading it needs neither torch nor the model.

# %%
run = Run("runs/notebook")
columns = run.columns
keys = ("step", "val/ece", "val/accuracy", "val/temperature", "train/gn_sharpness")
print("  ".join(f"{key:>18}" for key in keys))
for row in range(4, run.count, 4):
    print("  ".join(f"{columns[key][row]:18.3g}" for key in keys))

# %% [markdown]
# The accuracy is there after some 80 steps. From then on the network learns the noise: the best
# temperature rises from 1.4 to 3.6, which means that the network is more and more too sure.
#
# ## The report
#
# On a terminal: `toosure report runs -o report.html`, or `toosure live runs` while it trains.

# %%
page = escape(report("runs/notebook"))
HTML(f'<div><iframe srcdoc="{page}" width="100%" height="760"></iframe></div>')

# %% [markdown]
# Next: [SAM, CSAM and the honest radius side by side](3_sam_csam_honest_radius.py), or
# [reading the report](../guides/reading_the_report.md).
