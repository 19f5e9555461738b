"""How does a network of your own fare on corrupted and unknown images?"""

import torch
from torch import nn

from toosure.data import digits
from toosure.shifts.judge import judge_shifts
from toosure.shifts.ood_sets import load_ood_set
from toosure.shifts.plan import ShiftPlan

torch.manual_seed(0)
data = digits(train=1000, val=0, test=300)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _step in range(200):
    batch = torch.randint(0, len(data.train), (64,))
    loss = nn.functional.cross_entropy(model(data.train.x[batch]), data.train.y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

plan = ShiftPlan(images=200)  # 15 corruptions x 5 severities, 200 of the test images
noise = load_ood_set("noise", plan, data.inputs)
with torch.no_grad():
    record = judge_shifts(model, data, plan, [noise])

for severity in (0, *record.severities):
    accuracy, ece = record.at("accuracy", severity), record.at("ece", severity)
    print(f"severity {severity}: accuracy {100 * accuracy:.1f} %, ECE {100 * ece:.1f} points")
print(f"AUROC against noise, by energy: {record.ood['noise'].auroc['energy']:.3f}")
