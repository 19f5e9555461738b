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
# # A verdict from a file
#
# You have a file with probabilities and labels. This notebook makes such a file, judges it, looks
# at it, and asks whether one group is worse than the others. It takes a few seconds.

# %%
from html import escape
from pathlib import Path

import numpy as np
from IPython.display import HTML
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from toosure.evaluate import evaluate
from toosure.evaluate.verdict import verdict
from toosure.page.evaluation import evaluation_page

# %% [markdown]
# ## A classifier, and its predictions in a file
#
# Digits under noise, learned by a small network. Half of the test digits get more noise than the
# classifier has seen: they come from "another scanner".

# %%
rng = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
order = rng.permutation(len(y))
X, y = X[order] + rng.normal(0, 4, X.shape), y[order]
classifier = MLPClassifier(random_state=0).fit(X[:500], y[:500])

test_X, test_y = X[500:], y[500:]
scanner = rng.choice(["old", "new"], len(test_y))
test_X[scanner == "old"] += rng.normal(0, 3, (int((scanner == "old").sum()), 64))
probs = classifier.predict_proba(test_X)

header = ",".join([f"p_{c}" for c in classifier.classes_] + ["scanner", "label"])
rows = [
    ",".join([*(f"{p:.9f}" for p in each), where, str(label)])
    for each, where, label in zip(probs, scanner, test_y, strict=True)
]
Path("predictions.csv").write_text("\n".join([header, *rows]))

# %% [markdown]
# ## The verdict
#
# On a terminal this is `toosure evaluate predictions.csv`. In Python:

# %%
result = evaluate(probs=probs, labels=test_y)
judgement = verdict(result)
print(judgement.sentence)
for name in ("accuracy", "nll", "ece", "smece"):
    value = result.metrics[name]
    print(f"{name:10} {value.value:.3f}  ({value.low:.3f} to {value.high:.3f})")

# %% [markdown]
# ## The page
#
# `--html` writes this page. It is one file that opens offline.


# %%
def show(page, height=620):
    """Show a page of toosure inside the notebook."""
    frame = f'<iframe srcdoc="{escape(page)}" width="100%" height="{height}"></iframe>'
    return HTML(f"<div>{frame}</div>")


show(evaluation_page(result))

# %% [markdown]
# ## Is it one group?
#
# On a terminal: `toosure evaluate predictions.csv --by scanner`. Here by hand:

# %%
for group in ("new", "old"):
    chosen = scanner == group
    part = evaluate(probs=probs[chosen], labels=test_y[chosen])
    print(f"{group} scanner, {chosen.sum()} digits: {verdict(part).sentence}")

# %% [markdown]
# Both are over-confident, the old scanner more. Confidence does not know that the images are worse.
#
# Next: [calibrate and compare](4_calibrate_and_compare.py), or
# [which metric to read](../guides/which_metric.md).
