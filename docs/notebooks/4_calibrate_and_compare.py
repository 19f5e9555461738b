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
# # Calibrate and compare
#
# A trained network is too sure. Fit calibrators on validation data, let held-out rows choose one,
# and ask test data whether it helped beyond chance.

# %%
from html import escape

import torch
from IPython.display import HTML
from torch import nn

from toosure.data import digits
from toosure.evaluate import evaluate
from toosure.evaluate.paired import compare
from toosure.evaluate.verdict import verdict
from toosure.page.evaluation import evaluation_page
from toosure.posthoc import CALIBRATORS, Temperature, choose
from toosure.predictions import from_logits

# %%
data = digits(train=300, val=500, noise=0.1)
torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(200):
    loss = nn.functional.cross_entropy(model(data.train.x), data.train.y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

with torch.no_grad():
    val_logits, test_logits = model(data.val.x), model(data.test.x)
before = evaluate(test_logits, data.test.y)
print(verdict(before).sentence)

# %% [markdown]
# ## One number
#
# Temperature scaling divides the logits by one number. It changes no prediction.

# %%
temperature = Temperature().fit(val_logits, data.val.y)
after = evaluate(temperature(test_logits), data.test.y)
print(f"T = {float(temperature.temperature):.2f}: {verdict(after).sentence}")

# %% [markdown]
# ## Eleven calibrators
#
# Each is fitted on four fifths of the validation rows and judged on the fifth that it has not seen.
# On a terminal: `toosure calibrate val.npz test.npz`.

# %%
choice = choose(val_logits, data.val.y, CALIBRATORS)
for trial in choice.trials:
    held_out = "could not be fitted" if trial.nll is None else f"{trial.nll:.4f}"
    print(f"{trial.name:22} {held_out}")
print(f"\ntaken: {choice.name}")

# %% [markdown]
# ## Is it better beyond chance?
#
# On the same test rows, with intervals of the differences (`toosure compare` on a terminal):

# %%
first = from_logits(test_logits, data.test.y)
second = from_logits(choice.calibrator(test_logits), data.test.y)
comparison = compare(first, second)
print(comparison.sentence)
for each in comparison.differences:
    change = each.change
    print(f"{each.key:9} {change.value:+.4f}  ({change.low:+.4f} to {change.high:+.4f})")

# %%
page = escape(evaluation_page(evaluate(second)))
HTML(f'<div><iframe srcdoc="{page}" width="100%" height="620"></iframe></div>')

# %% [markdown]
# Next: [which calibrator?](../guides/which_calibrator.md), and all of them with their parameters
# and traps: [calibrators](../calibrators.md).
