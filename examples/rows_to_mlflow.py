"""Rows and reliability diagrams in MLflow: here a file, and a server by its address."""

import torch
from mlflow import MlflowClient
from sklearn.datasets import load_digits
from torch import nn

from toosure import Watch
from toosure.integrations.mlflow import rows_to

torch.manual_seed(0)
digits = load_digits()
inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train, val = (inputs[:200], labels[:200]), (inputs[200:700], labels[200:700])

model = nn.Sequential(nn.Linear(64, 100), nn.Tanh(), nn.Linear(100, 10))
loss = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

client = MlflowClient("sqlite:///mlflow.db")
run_id = client.create_run(client.create_experiment("digits")).info.run_id
rows = rows_to(client, run_id, run="runs/rows_to_mlflow")
with rows, Watch(model, loss, train, val, run="runs/rows_to_mlflow", notify=rows) as watch:
    for _step in range(100):
        optimizer.zero_grad()
        loss(model(train[0]), train[1]).backward()
        optimizer.step()
        watch.step(lr=0.5)

client.set_terminated(run_id)
print(f"ECE {watch.last['val/ece']:.3f}; the rows are in runs/rows_to_mlflow and in mlflow.db")
